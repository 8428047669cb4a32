"""mount_options.py CHECK MOUNT BACKING: prints the effect of a mount option. The same effect gives the same words."""

import errno
import fcntl
import os
import shutil
import stat
import struct
import subprocess
import sys

check, mount, backing = sys.argv[1:4]


def here(name):
    return os.path.join(mount, name)


def outcome(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


def entries(path):
    """Backing files, directories and links that have a plaintext name."""
    return [os.path.join(path, name) for name in os.listdir(path) if not name.startswith("vaultfs.")]


def prepare():
    """Makes a script, a set-user-ID program, a null device, and a file and a directory whose access times would move."""
    with open(here("script"), "w") as file:
        file.write("#!/bin/sh\necho ran\n")
    os.chmod(here("script"), 0o755)
    os.mkdir(here("times"))
    with open(here("times/file"), "w") as file:
        file.write("x" * 10000)
    if os.geteuid() == 0:
        os.mknod(here("null"), 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        shutil.copy("/usr/bin/id", here("id"))
        os.chmod(here("id"), 0o4755)
    old()


def old():
    """Makes the last write later than the last read, so that relatime moves the access time."""
    for name in ("times/file", "times"):
        os.utime(here(name), (1_000_000_000, 1_100_000_000))


def times():
    """Reads the file, lists the directory, and checks which backing access times have moved."""
    directory = next(p for p in entries(backing) if stat.S_ISDIR(os.lstat(p).st_mode))
    before = os.stat(directory).st_atime
    with open(here("times/file")) as opened:
        opened.read()
    os.listdir(here("times"))
    moved = ["directory"] if os.stat(directory).st_atime != before else []
    # Not earlier, because the search for the file lists the backing directory.
    file = entries(directory)[0]
    moved += ["file"] if os.stat(file).st_atime != 1_000_000_000 else []
    print("moved:", *sorted(moved))


def delayed(path):
    """True if the backing file has data that the store has not written yet (FIEMAP_EXTENT_DELALLOC, linux/fiemap.h)."""
    request = bytearray(struct.pack("=QQLLLL", 0, 2 ** 63, 0, 0, 8, 0) + bytes(8 * 56))
    with open(path, "rb") as file:
        fcntl.ioctl(file, 0xC020660B, request)
    count = struct.unpack_from("=L", request, 20)[0]
    return any(struct.unpack_from("=L", request, 32 + 56 * i + 40)[0] & 4 for i in range(count))


def sync():
    known = set(entries(backing))
    with open(here("synced"), "wb", buffering=0) as file:
        file.write(b"x" * 100_000)
        print("durable" if not delayed(next(p for p in entries(backing) if p not in known)) else "delayed")
    os.unlink(here("synced"))


def run(name):
    return subprocess.run([here(name)], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if check == "prepare":
    prepare()
elif check == "old":
    old()
elif check == "exec":
    print(outcome(lambda: run("script")))
elif check == "suid":
    print("root" if "euid=0(" in outcome(lambda: run("id")) else "user")
elif check == "dev":
    print(outcome(lambda: open(here("null"), "wb").write(b"x")))
elif check == "times":
    times()
elif check == "sync":
    sync()
elif check == "list":
    print(outcome(lambda: len(os.listdir(mount)) > 0))
