"""Source files that change while a view shows them: the next open notices the change, and the page cache contains no
mixture.

view_replaced.py DIRECTORY. The view is cbc-chunks of 4096 under keys/binary (view_files.py)."""

import mmap
import os
import random
import sys

from locking import until
from view_files import VECTOR, chunks

directory = sys.argv[1]
mountpoint, source = os.path.join(directory, "mount"), os.path.join(directory, "source")
with open(os.path.join(directory, "keys", "binary"), "rb") as file:
    KEY = file.read()
SIZE = 64 * 4096 + 100


def version(number, size=SIZE):
    return random.Random(number).randbytes(size)


def stop(*what):
    sys.exit("FAILED: " + " ".join(map(str, what)))


def store(name, plaintext):
    with open(os.path.join(source, name), "wb") as file:
        file.write(chunks(KEY, VECTOR, plaintext, 4096))


def rewrite(name, plaintext):
    """In place: the same inode."""
    with open(os.path.join(source, name), "r+b") as file:
        file.write(chunks(KEY, VECTOR, plaintext, 4096))
        file.truncate()


def replace(name, plaintext):
    """Replaces the file as careful programs do."""
    store(".new", plaintext)
    os.rename(os.path.join(source, ".new"), os.path.join(source, name))


def path(name):
    return os.path.join(mountpoint, name)


def expect(what, found, *wanted):
    if found not in wanted:
        stop(f"{what}: {len(found)} bytes of something else")


def read_now(name):
    with open(path(name), "rb") as file:
        return file.read()


def renamed_over():
    """A descriptor that is open keeps its content, by read(2) and by mappings. A new open gets the current content."""
    store("renamed", version(1))
    old = os.open(path("renamed"), os.O_RDONLY)
    pages = mmap.mmap(old, 0, access=mmap.ACCESS_READ)
    expect("at first", os.pread(old, 8 * 4096, 0), version(1)[: 8 * 4096])
    expect("mapped at first", pages[:4096], version(1)[:4096])
    for number, size in ((2, SIZE), (3, SIZE + 5000), (4, SIZE - 5000), (5, 100)):
        replace("renamed", version(number, size))
        expect(f"version {number}", read_now("renamed"), version(number, size))
        if os.stat(path("renamed")).st_size != size:
            stop("stat of version", number)
        expect("the open file", os.pread(old, SIZE + 1, 0), version(1))
        expect("the mapping", pages[:], version(1))
    pages.close()
    os.close(old)


def written_in_place():
    """All open descriptors share the pages: after the next open, none of them reads an old page."""
    store("rewritten", version(1))
    old = os.open(path("rewritten"), os.O_RDONLY)
    expect("at first", os.pread(old, SIZE, 0), version(1))
    for number, size in ((2, SIZE), (3, SIZE), (4, SIZE + 5000), (5, SIZE - 5000)):
        rewrite("rewritten", version(number, size))
        new = os.open(path("rewritten"), os.O_RDONLY)
        if os.fstat(new).st_size != size:
            stop("fstat of version", number, os.fstat(new).st_size)
        # First through the old descriptor. The pages that it reads are shared with the others.
        expect(f"version {number}, old descriptor", os.pread(old, size, 0), version(number, size))
        expect(f"version {number}, new descriptor", os.pread(new, size, 0), version(number, size))
        os.close(new)
        expect(f"version {number}, opened again", read_now("rewritten"), version(number, size))
    os.close(old)


def looked_at_before():
    """stat(2) notices the change first, then the file is opened: its pages are not the old ones."""
    store("looked", version(1))
    old = os.open(path("looked"), os.O_RDONLY)
    expect("at first", os.pread(old, SIZE, 0), version(1))
    rewrite("looked", version(2))
    os.posix_fadvise(old, 0, 0, os.POSIX_FADV_RANDOM)
    os.listdir(mountpoint)
    fd = os.open(mountpoint, os.O_RDONLY)
    for name in os.listdir(fd):
        os.stat(name, dir_fd=fd)
    os.close(fd)
    expect("after stat", read_now("looked"), version(2))
    expect("the old descriptor", os.pread(old, SIZE, 0), version(2))
    os.close(old)


def gone():
    """A removed file cannot be opened any more, and open descriptors still work."""
    store("removed", version(1))
    old = os.open(path("removed"), os.O_RDONLY)
    os.unlink(os.path.join(source, "removed"))
    expect("the open file", os.pread(old, SIZE, 0), version(1))
    os.close(old)
    try:
        os.close(os.open(path("removed"), os.O_RDONLY))
        stop("a removed file is opened")
    except (FileNotFoundError, OSError) as error:
        print(error)
    # A file of another kind in its place.
    store("kind", version(1))
    expect("a file", read_now("kind"), version(1))
    os.unlink(os.path.join(source, "kind"))
    os.mkdir(os.path.join(source, "kind"))
    store("kind/below", version(2))
    # The kernel may keep the old meaning of a name for a second.
    until("the directory", lambda: os.path.isdir(path("kind")))
    expect("below a directory", read_now("kind/below"), version(2))


renamed_over()
written_in_place()
looked_at_before()
gone()
