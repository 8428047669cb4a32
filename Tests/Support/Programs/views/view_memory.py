"""Searches a daemon's memory for a view's passphrase, keys and plaintext: before a lock, after a lock that forgets, and
the same again after an unlock. Run it as root, with the daemon run without memfd_secret(2).

view_memory.py VAULTFS MOUNTPOINT FILE ORIGINAL KEY UNLOCK_ARGUMENT...

FILE is on the mount and stays open. KEY is a file with its AES-256 key in hexadecimal digits, and perhaps the
passphrase after them. Prints a line for each state and each kind of secret: the number of its pieces that were
found, and their total."""

import mmap
import os
import subprocess
import sys

from memory_needles import aes, find_daemon, scan

vaultfs, mountpoint, name, original, key_file, *unlock = sys.argv[1:]
with open(key_file, "rb") as file:
    key, *passphrase = file.read().split(b"\n")
with open(original, "rb") as file:
    content = file.read()
kinds = {"key": aes(bytes.fromhex(key.decode())), "content": [content[4096:4128], content[-32:]]}
if passphrase and passphrase[0]:
    kinds["passphrase"] = passphrase[:1]
daemon = find_daemon(mountpoint)


def report(state):
    for kind, (found, total) in scan(daemon, kinds).items():
        print(f"{state}: {kind}: {found} of {total}")


def run(*arguments):
    subprocess.run([vaultfs, *arguments], check=True, capture_output=True, timeout=60)


def use():
    # Small reads fill the block cache, a big one the buffers.
    for start in range(0, len(content), 4096):
        assert os.pread(direct, 4096, start) == content[start : start + 4096]
    assert os.pread(direct, 1 << 20, 0) == content[: 1 << 20]
    assert pages[:] == content


path = os.path.join(mountpoint, name)
direct, plain = os.open(path, os.O_RDONLY | os.O_DIRECT), os.open(path, os.O_RDONLY)
pages = mmap.mmap(plain, 0, access=mmap.ACCESS_READ)
for state in ("", " again"):
    use()
    report("unlocked" + state)
    run("lock", mountpoint)
    report("locked" + state)
    run("unlock", mountpoint, *unlock)
use()
