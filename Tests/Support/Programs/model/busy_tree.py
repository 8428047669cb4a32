"""Changes a tree of small files all the time, until it is killed: overwrites, appends, cuts, makes, renames, removes.

busy_tree.py DIRECTORY SEED"""

import os
import random
import shutil
import sys

root, draw = sys.argv[1], random.Random(int(sys.argv[2]))
os.makedirs(root)
names = [f"{n}" * draw.choice([1, 3, 200]) for n in range(8)]


def change(path):
    kind = draw.randrange(7)
    if kind == 0:
        os.makedirs(path + ".d/inner", exist_ok=True)
        with open(path + ".d/inner/x", "wb") as file:
            file.write(b"x" * draw.randrange(10000))
    elif kind == 1:
        shutil.rmtree(path + ".d", ignore_errors=True)
    elif kind == 2 and os.path.exists(path):
        os.replace(path, path[:-1] + "9")
    elif kind == 3 and os.path.exists(path):
        os.truncate(path, draw.randrange(30000))
    elif kind == 4:
        with open(path, "ab") as file:
            file.write(draw.randbytes(draw.randrange(20000)))
    elif kind == 5 and os.path.exists(path):
        os.unlink(path)
    else:
        with open(path, "r+b" if os.path.exists(path) else "w+b") as file:
            for _ in range(20):
                file.seek(draw.randrange(40000))
                file.write(draw.randbytes(draw.randrange(5000)))


while True:
    change(os.path.join(root, draw.choice(names)))
