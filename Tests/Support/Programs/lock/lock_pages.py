"""Pages of shared mappings that identify the last store into them."""

import itertools
import mmap
import os
import struct

from locking import stop

PAGE = 4096


def touch(pages, at):
    """Reads a mapping with a copy by the kernel: it returns EFAULT in cases where a program would get SIGBUS."""
    fds = os.pipe()
    try:
        return os.write(fds[1], memoryview(pages)[at:at + 1])
    finally:
        for fd in fds:
            os.close(fd)


def page(number, version):
    return struct.pack("<QQ", number, version) * (PAGE // 16)


def dirty_for_ever(path, pages, progress):
    """Stores pages one after the other, in ever newer versions. Ends with SIGBUS."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), pages * PAGE) as mapping:
        for count in itertools.count():
            number, version = count % pages, count // pages + 1
            mapping[number * PAGE:(number + 1) * PAGE] = page(number, version)
            progress[0] = count + 1


def stored(number, pages, stores):
    """The last version of a page that was stored completely, 0 for none, after `stores` stores into `pages` pages."""
    return (stores - number + pages - 1) // pages


def check_stored(path, pages, stores):
    """Ends the program unless each page has the content that the first `stores` stores left, or a later one."""
    with open(path, "rb") as file:
        for number in range(pages):
            version = stored(number, pages, stores)
            units = list(struct.iter_unpack("<QQ", file.read(PAGE)))
            if version and (len(units) != PAGE // 16 or any(n != number or v < version for n, v in units)):
                stop(f"page {number} of version {version} after {stores} stores: {units[:1]}")
