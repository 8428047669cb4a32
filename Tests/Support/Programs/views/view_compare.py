"""Checks that a view shows the files as they were before encryption, in every way to read them.

view_compare.py MOUNT ORIGINALS [--sizes-after-open]

Sizes are exact before anything is opened or, if keys are made at open, after that. Prints differences."""

import mmap
import os
import random
import sys

mountpoint, originals = sys.argv[1:3]
sizes_after_open = "--sizes-after-open" in sys.argv
GRID = 300
RANDOM = 200


def stop(*what):
    sys.exit("FAILED: " + " ".join(map(str, what)))


def places(size, rng):
    """A grid with both sides of each line, then anywhere; (offset, length)."""
    step = max(1, size // GRID)
    for line in range(0, size + step, step):
        for offset in (line - 1, line, line + 1):
            if offset >= 0:
                yield offset, (1, 15, 16, 17, 4096, 5000)[(offset // step) % 6]
    for _ in range(RANDOM):
        yield rng.randrange(size + 2), rng.choice((1, 16, 100, 4096, 70_000, 300_000))


def compare_reads(name, fd, expected, how):
    for offset, length in places(len(expected), random.Random(name + how)):
        found = os.pread(fd, length, offset)
        if found != expected[offset : offset + length]:
            stop(name, how, f"{len(found)} bytes at {offset}, {length} asked for")


def compare(name):
    path = os.path.join(mountpoint, name)
    with open(os.path.join(originals, name), "rb") as file:
        expected = file.read()
    if not sizes_after_open and os.stat(path).st_size != len(expected):
        stop(name, "stat says", os.stat(path).st_size)
    # Past the page cache first, because it is still empty.
    for how, flags in (("O_DIRECT", os.O_DIRECT), ("page cache", 0)):
        fd = os.open(path, os.O_RDONLY | flags)
        if os.fstat(fd).st_size != len(expected):
            stop(name, "fstat says", os.fstat(fd).st_size)
        compare_reads(name, fd, expected, how)
        os.close(fd)
    if os.stat(path).st_size != len(expected):
        stop(name, "stat says", os.stat(path).st_size, "after open")
    with open(path, "rb") as file:
        if file.read() != expected:
            stop(name, "read through")
        if expected:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
                if pages[:] != expected:
                    stop(name, "mapped")
    print(name, len(expected))


names = sorted(os.listdir(originals))
if not names or names != sorted(os.listdir(mountpoint)):
    stop("the mount lists", os.listdir(mountpoint))
for name in names:
    compare(name)
