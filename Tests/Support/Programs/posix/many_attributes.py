"""Sets and reads a hundred small extended attributes of a file and a directory in DIRECTORY, by path, bytes and
descriptor. Prints a line for each step. The lines are the same on any file system that has room for the attributes."""

import errno
import os
import sys

COUNT = 100
base = sys.argv[1]


def outcome(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def flags(target):
    steps = [
        (os.setxattr, b"", os.XATTR_REPLACE), (os.setxattr, b"", 0), (os.setxattr, b"", os.XATTR_CREATE),
        (os.setxattr, b"x" * 30, os.XATTR_REPLACE), (os.setxattr, b"y", 0),
    ]
    for call, value, flag in steps:
        print(outcome(call, target, "user.flags", value, flag), end=" ")
    print(os.getxattr(target, "user.flags"))


def names(target):
    return sorted(name for name in os.listxattr(target) if name.startswith("user."))


def many(label, target, spell):
    flags(target)
    wanted = ["user.flags"] + [f"user.test{number}" for number in range(COUNT)]
    for number in range(COUNT):
        os.setxattr(target, spell(f"user.test{number}"), b"x" * (number % 4))
    print(label, names(target) == sorted(wanted))
    flags(target)
    print(label, all(os.getxattr(target, spell(f"user.test{n}")) == b"x" * (n % 4) for n in range(COUNT)))
    for number in range(COUNT):
        os.setxattr(target, spell(f"user.test{number}"), b"%d" % number, os.XATTR_REPLACE)
    print(label, outcome(os.setxattr, target, spell("user.test50"), b"", os.XATTR_CREATE))
    print(label, outcome(os.getxattr, target, spell("user.none")), outcome(os.removexattr, target, "user.none"))
    for number in range(0, COUNT, 2):
        os.removexattr(target, spell(f"user.test{number}"))
    print(label, [os.getxattr(target, spell(f"user.test{n}")) == b"%d" % n for n in range(1, COUNT, 2)].count(True))
    print(label, len(names(target)))


def clear(label, target):
    for name in os.listxattr(target):
        if name.startswith("user."):
            os.removexattr(target, name)
    print(label, names(target))


file, directory, kept = (os.path.join(base, name) for name in ("file", "directory", "kept"))
for path in (file, kept):
    open(path, "x").close()
os.mkdir(directory)
many("path", file, str)
clear("path", file)
many("bytes", os.fsencode(file), os.fsencode)
clear("bytes", os.fsencode(file))
with open(file, "r+b") as opened:
    many("descriptor", opened.fileno(), str)
    clear("descriptor", opened.fileno())
many("directory", directory, str)
for number in range(COUNT):
    os.setxattr(kept, f"user.test{number}", b"%d" % number)
