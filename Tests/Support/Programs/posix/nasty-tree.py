#!/usr/bin/env python3
"""Makes a tree of objects that are hard to copy, in a directory that does not exist: nasty-tree.py DIRECTORY [FILES]

FILES more small files are spread over directories. As root also owners, devices and trusted attributes."""
import os
import random
import socket
import stat
import sys

root = os.fsencode(sys.argv[1])
count = int(sys.argv[2]) if len(sys.argv) > 2 else 0
is_root = os.geteuid() == 0
dice = random.Random(6)


def path(*names):
    return os.path.join(root, *names)


def write(name, data=b"x", mode=0o644):
    with open(path(name), "wb") as file:
        file.write(data)
    os.chmod(path(name), mode)


os.mkdir(root)
os.mkdir(path(b"names"))
for name in [b"n" * 255, "ä".encode() * 127, b"\xff\xfe not UTF-8", b"new\nline", b" ", b"-rf", b"a:b", b"vaultfs.json",
             b"\x1b[31m", b"..."]:
    write(b"names/" + name, name)
os.mkdir(path(b"d" * 255))
write(b"d" * 255 + b"/file")

for size in [0, 1, 15, 16, 4095, 4096, 4097, 8192, 65536, (1 << 20) + 3]:
    write(b"size %d" % size, dice.randbytes(size))

with open(path(b"holes"), "wb") as file:
    file.write(b"begin")
    file.seek(5 << 20)
    file.write(b"middle" * 1000)
    file.truncate(64 << 20)
with open(path(b"only a hole"), "wb") as file:
    file.truncate((8 << 20) + 1)
with open(path(b"small hole"), "wb") as file:
    file.seek(100000)
    file.write(b"end")

os.mkdir(path(b"links"))
os.symlink(b"../size 4096", path(b"links", b"good"))
os.symlink(b"/nonexistent/\xff", path(b"links", b"dangling"))
os.symlink(b"..", path(b"links", b"directory"))
os.symlink(b"t" * 3000, path(b"links", b"long"))
write(b"links/first", b"three names")
os.link(path(b"links", b"first"), path(b"links", b"second"))
os.link(path(b"links", b"first"), path(b"names", b"third"))
os.link(path(b"links", b"dangling"), path(b"links", b"dangling too"), follow_symlinks=False)

os.mkdir(path(b"special"))
os.mkfifo(path(b"special", b"fifo"), 0o640)
with socket.socket(socket.AF_UNIX) as server:
    here = os.open(path(b"special"), os.O_PATH)
    server.bind(b"/proc/self/fd/%d/socket" % here)
    os.close(here)
if is_root:
    os.mknod(path(b"special", b"device"), stat.S_IFCHR | 0o600, os.makedev(1, 3))

os.mkdir(path(b"attributes"))
for name in [b"attributes/file", b"attributes"]:
    if name != b"attributes":
        write(name)
    os.setxattr(path(name), b"user.note", b"some\0bytes")
    os.setxattr(path(name), b"user.empty", b"")
    if is_root:
        os.setxattr(path(name), b"trusted.mark", b"1")
if is_root:
    os.mkdir(path(b"owners"))
    for number in (1, 1000, 65533):
        write(b"owners/%d" % number, mode=0o4755)
        os.chown(path(b"owners", b"%d" % number), number, number + 1)
        os.chmod(path(b"owners", b"%d" % number), 0o6755)
    os.symlink(b"x", path(b"owners", b"link"))
    os.chown(path(b"owners", b"link"), 7, 8, follow_symlinks=False)

os.mkdir(path(b"empty"))
os.makedirs(path(*[b"deep"] * 40))
for number in range(count):
    if number % 100 == 0:
        os.mkdir(path(b"many %d" % (number // 100)))
    write(b"many %d/%d" % (number // 100, number), dice.randbytes(dice.randrange(6000)))

os.mkdir(path(b"modes"))
for mode in (0o400, 0o444, 0o600, 0o755, 0o1777, 0o2755):
    write(b"modes/%o" % mode, b"mode", mode)
# Only root can examine the entries of a directory without x.
directory_modes = (0o000, 0o400, 0o444, 0o555, 0o755, 0o1777, 0o2755) if is_root else (0o500, 0o555, 0o1777, 0o2755)
for mode in directory_modes:
    os.mkdir(path(b"modes", b"d%o" % mode))
    write(b"modes/d%o/inside" % mode)
if is_root:
    write(b"modes/0", b"mode", 0)

for directory, directories, files in os.walk(root, topdown=False):
    for name in files:
        nanoseconds = dice.randrange(10 ** 18, 2 * 10 ** 18)
        os.utime(os.path.join(directory, name), ns=(nanoseconds, nanoseconds + 1), follow_symlinks=False)
    nanoseconds = dice.randrange(10 ** 18, 2 * 10 ** 18)
    os.utime(directory, ns=(nanoseconds, nanoseconds + 7))
for mode in directory_modes:
    os.chmod(path(b"modes", b"d%o" % mode), mode)
