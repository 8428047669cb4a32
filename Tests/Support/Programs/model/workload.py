"""Does every kind of operation at least once, then leaves a tree behind: sizes around the chunk, overwrites, growth,
truncation, holes, links, long and odd names, attributes, special files. A second argument is a number of rounds of
churn before that (files made, changed, renamed, removed).

workload.py DIRECTORY [ROUNDS]"""

import mmap
import os
import random
import sys

from probe import err, fallocate, noise, put, renameat2

C = 4096
SIZES = [0, 1, 15, 16, 17, 31, 32, 33, C - 1, C, C + 1, 2 * C, 2 * C + 500, 40 * C, 70001, (1 << 20) + 3]


def contents():
    for size in SIZES:
        put("size-%d" % size, noise(size, size))
    put("overwritten", noise(1, 50000))
    with open("overwritten", "r+b") as file:
        for at, n in [(0, 1), (5, 4090), (4095, 2), (8192, 4096), (20000, 20001), (49999, 5)]:
            file.seek(at)
            file.write(noise(at, n))
    for end in (0, 1, 4095, 4096, 4097, 30000, 60000, 2 << 20):
        name = "truncated-%d" % end
        put(name, noise(2, 50000))
        os.truncate(name, end)
    with open("grown", "wb", buffering=0) as file:
        for n in (1, 15, 16, 4000, 64, 4096, 5000, 1):
            file.write(noise(n, n))
    with open("appended", "ab", buffering=0) as file:
        for i in range(50):
            file.write(noise(i, i * 7))
    put("truncated-and-written", noise(3, 9000))
    put("truncated-and-written", noise(4, 10))
    fd = os.open("mapped", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 30000)
    with mmap.mmap(fd, 30000) as m:
        m[100:200] = b"m" * 100
        m[8000:20000] = noise(5, 12000)
    os.close(fd)


def holes():
    fd = os.open("sparse", os.O_CREAT | os.O_RDWR)
    os.pwrite(fd, b"start", 0)
    os.pwrite(fd, noise(6, 5000), 3 << 20)
    os.ftruncate(fd, 8 << 20)
    os.close(fd)
    put("punched", noise(7, 300_000))
    fd = os.open("punched", os.O_RDWR)
    fallocate(fd, 3, 10000, 100_000)
    fallocate(fd, 3, 290_000, 50_000)
    fallocate(fd, 1, 290_000, 100_000)
    fallocate(fd, 0, 299_000, 5000)
    err(fallocate, fd, 16, 200_000, 5000)
    os.close(fd)
    put("gap", b"before")
    with open("gap", "r+b") as file:
        file.seek(20000)
        file.write(b"after")


def names_and_links():
    os.makedirs("dir/sub/deeper")
    os.mkdir("d" * 200)
    put("d" * 200 + "/" + "f" * 255, b"long")
    put(b"\xff\xfe odd\n", b"odd")
    put("vaultfs.json", b"no special name here")
    put("été 写真", b"text")
    os.symlink("dir/sub", "link")
    os.symlink("x" * 3000, "long-link")
    os.symlink(b"\xff", "s" * 240)
    put("one", b"linked" * 1000)
    os.link("one", "dir/two")
    os.link("one", "h" * 230)
    os.mkfifo("fifo")
    put("moved", b"moved")
    os.rename("moved", "dir/sub/moved")
    os.rename("dir/sub/deeper", "dir/renamed")
    put("r" * 230, b"long to short")
    os.rename("r" * 230, "short")
    put("s1", b"1")
    put("l" * 230, b"2")
    renameat2("s1", "l" * 230, 2)
    os.mkdir("empty-target")
    os.mkdir("over")
    put("over/inside", b"x")
    os.rename("over", "empty-target")


def attributes():
    for path in ("one", "dir", "d" * 200, "size-0"):
        err(os.setxattr, path, "user.name", b"value of " + os.fsencode(path[:20]))
        err(os.setxattr, path, "user.empty", b"")
        err(os.setxattr, path, "user.gone", b"x")
        err(os.removexattr, path, "user.gone")
        err(os.setxattr, path, "user.name", b"replaced", os.XATTR_REPLACE)
        err(os.setxattr, path, "user." + "n" * 120, bytes(range(256)))
    err(os.setxattr, ".", "user.root", b"r")


def churn(rounds):
    rng = random.Random(1)
    os.mkdir("churn")
    os.chdir("churn")
    for i in range(rounds):
        name = "%d" % rng.randrange(50) + "x" * rng.choice([0, 0, 220])
        choice = rng.randrange(6)
        if choice < 2:
            put(name, rng.randbytes(rng.randrange(60000)))
        elif choice == 2 and os.path.exists(name):
            os.rename(name, "%d" % rng.randrange(50))
        elif choice == 3 and os.path.exists(name):
            os.unlink(name)
        elif choice == 4 and os.path.exists(name):
            with open(name, "r+b") as file:
                file.seek(rng.randrange(60000))
                file.write(rng.randbytes(5000))
        else:
            for entry in os.scandir("."):
                with open(entry.path, "rb") as file:
                    file.read()
                if rng.random() < 0.9:
                    break
    os.chdir("..")


def main():
    os.chdir(sys.argv[1])
    if len(sys.argv) > 2:
        churn(int(sys.argv[2]))
    contents()
    holes()
    names_and_links()
    attributes()


main()
