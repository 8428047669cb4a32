"""The kernel's size of files that an open for writing cuts back to their sealed length. Each line of the output is a fault.

cut_at_open.py MOUNTPOINT READ=LENGTH... -- APPENDED=LENGTH...    the files are longer on disk; LENGTH is sealed"""

import os
import sys


def check(path, what, found, wanted):
    if found != wanted:
        print(f"{os.path.basename(path)}: {what}: {found!r} where {wanted!r} is right")


def read(fd, at):
    """The bytes at an offset, or the error. Neither zeros nor a record's bytes may come from past the end."""
    try:
        return os.pread(fd, 4096, at)
    except OSError as error:
        return error.errno


def reading(path, length):
    """A reader opened before the cut and one after it, while the kernel may still have the old size."""
    check(path, "it is not longer", os.stat(path).st_size > length, True)
    before = os.open(path, os.O_RDONLY)
    writer = os.open(path, os.O_RDWR)
    after = os.open(path, os.O_RDONLY)
    for name, fd in (("after", after), ("writer", writer), ("before", before)):
        check(path, f"fstat of {name}", os.fstat(fd).st_size, length)
        for at in (length, length + 1, length + 5000):
            check(path, f"{name} at {at}", read(fd, at), b"")
        check(path, f"end of {name}", os.lseek(fd, 0, os.SEEK_END), length)
        os.close(fd)
    check(path, "stat", os.stat(path).st_size, length)


def appending(path, length):
    """An appender that never asks for the size. The kernel takes the offset from its own."""
    check(path, "it is not longer", os.stat(path).st_size > length, True)
    with open(path, "rb", buffering=0) as file:
        content = file.read(length)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"appended")
    os.close(fd)
    check(path, "size after appending", os.stat(path).st_size, length + 8)
    with open(path, "rb") as file:
        check(path, "content after appending", file.read() == content + b"appended", True)


use = reading
for argument in sys.argv[2:]:
    if argument == "--":
        use = appending
        continue
    name, length = argument.rsplit("=", 1)
    use(os.path.join(sys.argv[1], name), int(length))
