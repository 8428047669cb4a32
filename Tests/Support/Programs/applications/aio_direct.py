"""Makes asynchronous O_DIRECT writes (io_submit(2)) beside buffered readers. Once a write has returned, a buffered read
must return the new data, and never the old. Modelled on xfstests' generic/451.

aio_direct.py DIRECTORY [ROUNDS]"""

import ctypes
import mmap
import os
import platform
import signal
import struct
import sys

BLOCK, BLOCKS = 65536, 16
IO_SETUP, IO_GETEVENTS, IO_SUBMIT = (206, 208, 209) if platform.machine() == "x86_64" else (0, 4, 2)
PWRITE = 1
libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


class Writer:
    """Writes all blocks of one file at once."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.buffer = mmap.mmap(-1, BLOCK * BLOCKS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))
        self.context = ctypes.c_ulong(0)
        call(IO_SETUP, BLOCKS, ctypes.byref(self.context))

    def write(self, byte):
        self.buffer[:] = bytes([byte]) * len(self.buffer)
        # struct iocb of linux/aio_abi.h
        blocks = [
            ctypes.create_string_buffer(
                struct.pack("=QIiHhIQQqQII", n, 0, 0, PWRITE, 0, self.fd, self.address + n * BLOCK, BLOCK, n * BLOCK, 0, 0, 0))
            for n in range(BLOCKS)
        ]
        pointers = (ctypes.c_void_p * BLOCKS)(*map(ctypes.addressof, blocks))
        done = 0
        while done < BLOCKS:
            done += call(IO_SUBMIT, self.context, ctypes.c_long(BLOCKS - done), ctypes.byref(pointers, done * 8))
        events = ctypes.create_string_buffer(32 * BLOCKS)
        call(IO_GETEVENTS, self.context, ctypes.c_long(BLOCKS), ctypes.c_long(BLOCKS), events, None)
        for n in range(BLOCKS):
            result = struct.unpack_from("=q", events, 32 * n + 16)[0]
            if result != BLOCK:
                sys.exit(f"a write returned {result}")


def read_for_ever(path):
    """A buffered reader, which keeps pages of the file in the page cache."""
    fd = os.open(path, os.O_RDONLY)
    while True:
        os.pread(fd, BLOCK * BLOCKS, 0)


def main(directory, rounds=400):
    path = os.path.join(directory, "aio")
    with open(path, "wb") as file:
        file.write(bytes(BLOCK * BLOCKS))
    readers = []
    try:
        for _ in range(2):
            pid = os.fork()
            if pid == 0:
                read_for_ever(path)
            readers.append(pid)
        writer = Writer(path)
        buffered = os.open(path, os.O_RDONLY)
        for number in range(rounds):
            byte = number % 255 + 1
            writer.write(byte)
            data = os.pread(buffered, BLOCK * BLOCKS, 0)
            if data != bytes([byte]) * (BLOCK * BLOCKS):
                wrong = next(n for n, found in enumerate(data) if found != byte)
                sys.exit(f"round {number}: byte {wrong} is {data[wrong]}, but {byte} was written")
    finally:
        for pid in readers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    os.unlink(path)


main(sys.argv[1], *map(int, sys.argv[2:]))
