"""Measures the kernel's page cache of a file: mincore(2) over a mapping, cachestat(2) over a descriptor."""

import ctypes
import mmap
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
libc.syscall.restype = ctypes.c_long
PAGE = mmap.PAGESIZE
CACHESTAT = 451


def check(result):
    """Turns the -1 of a C function into the OSError it stands for."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def syscall(*arguments):
    """syscall(2) with C's `long` arguments. An int on the stack would leave half of its slot unset."""
    return check(libc.syscall(*(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)))


class Mapping:
    """A mapping of a descriptor by its bare address. Its pages can be touched, or examined without touching them."""

    def __init__(self, fd, size, private=False, writable=False):
        self.size = size
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.address = libc.mmap(None, size, protection, mmap.MAP_PRIVATE if private else mmap.MAP_SHARED, fd, 0)
        if self.address == ctypes.c_void_p(-1).value:
            check(-1)

    def read(self, offset, count):
        """Touches the pages. SIGBUS ends the process if they cannot be read."""
        return ctypes.string_at(self.address + offset, count)

    def write(self, offset, data):
        ctypes.memmove(self.address + offset, data, len(data))

    def resident(self):
        """Pages that are in the page cache with their content."""
        pages = (self.size + PAGE - 1) // PAGE
        vector = ctypes.create_string_buffer(pages)
        check(libc.mincore(self.address, self.size, vector))
        return pages - vector.raw.count(b"\0")

    def close(self):
        libc.munmap(self.address, self.size)


def resident(fd, size):
    """Counts the file's pages in the page cache, with a new mapping that is never touched."""
    mapping = Mapping(fd, size, private=True)
    try:
        return mapping.resident()
    finally:
        mapping.close()


def cachestat(fd):
    """Pages in the page cache: (all, dirty, under write-back). Pages that are still being read count too."""
    everything = struct.pack("<QQ", 0, 0)
    result = ctypes.create_string_buffer(5 * 8)
    syscall(CACHESTAT, fd, everything, result, 0)
    return struct.unpack("<5Q", result.raw)[:3]
