"""A view whose files have keys, vectors, ciphers and chunk sizes of their own, by view.json.

view_manifest.py BINARY DIRECTORY LOCK_FILE. Mounts by itself."""

import json
import os
import random
import subprocess
import sys

from view_files import VECTOR, chunks

binary, directory, lock_file = sys.argv[1:]
mountpoint, source = os.path.join(directory, "mount"), os.path.join(directory, "source")
rng = random.Random(1)
os.makedirs(os.path.join(source, "keys"))
os.makedirs(os.path.join(source, "season 1"))
files, expected = {}, {}


def add(name, entry, size, key, vector, plaintext_size):
    expected[name] = rng.randbytes(plaintext_size)
    with open(os.path.join(source, name), "wb") as file:
        file.write(chunks(key, vector, expected[name], size))
    if entry is not None:
        files[name] = entry


def key(name, count, text=False):
    value = rng.randbytes(count)
    with open(os.path.join(source, "keys", name), "wb") as file:
        file.write(value.hex().encode() if text else value)
    return value


common, other, outside = key("common", 16), key("other", 32, text=True), key("outside", 24)
os.rename(os.path.join(source, "keys", "outside"), os.path.join(directory, "keys", "outside"))
vector = rng.randbytes(16)
add("one", {"key": "keys/common", "iv": vector.hex(), "chunkSize": 1000}, 1000, common, vector, 12345)
add("two", {"key": "keys/other", "cipher": "aes-256-cbc"}, 4096, other, VECTOR, 4096 * 5)
add("three", {"key": os.path.join(directory, "keys", "outside")}, 4096, outside, VECTOR, 1)
add("season 1/episode 1", None, 16 << 10, common, vector, 100_000)
add("season 1/episode 2", None, 16 << 10, common, vector, 100_001)
files["season 1/*"] = {"key": "keys/common", "iv": vector.hex(), "chunkSize": 16 << 10}
with open(os.path.join(source, "view.json"), "w") as file:
    json.dump({"format": "cbc-chunks", "files": files}, file)

subprocess.run(
    [binary, "view", "cbc-chunks", source, mountpoint, "--lock-file", lock_file, "--chunk-size", "4096", "--iv", VECTOR.hex()],
    check=True)
try:
    if sorted(os.listdir(mountpoint)) != ["keys", "one", "season 1", "three", "two"]:
        sys.exit(f"FAILED: the mount lists {os.listdir(mountpoint)}")
    if os.path.exists(os.path.join(mountpoint, "view.json")):
        sys.exit("FAILED: view.json is there")
    for name, plaintext in expected.items():
        with open(os.path.join(mountpoint, name), "rb") as file:
            if file.read() != plaintext or os.fstat(file.fileno()).st_size != len(plaintext):
                sys.exit(f"FAILED: {name}")
finally:
    subprocess.run([binary, "unmount", mountpoint], check=True)
