"""A thread of the model: system calls that wait for the end of a lock, and choices of files and ranges."""

import ctypes
import errno
import mmap
import os
import random
import threading
import time

from locking import GONE
from model_file import PAGE, Closed, Difference

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
for function in (libc.pread, libc.pwrite):
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
    function.restype = ctypes.c_ssize_t
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
MIB = 1 << 20


class Killed(Exception):
    """The daemon is dead, so the operation may or may not have happened."""


def check(result):
    """Turns the -1 of a C function into the OSError it stands for."""
    if result in (-1, ctypes.c_void_p(-1).value):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def pages(start, end):
    """The range of whole pages around a range."""
    return start // PAGE * PAGE, -(-end // PAGE) * PAGE


class Worker(threading.Thread):
    """Its subclass has the operations, and in WEIGHTS how often each is among those from which one is drawn."""

    def __init__(self, model, number, seed):
        super().__init__(name=f"t{number}", daemon=True)
        self.model, self.rng = model, random.Random(seed)
        self.is_parked, self.since, self.counts, self.failure = False, time.monotonic(), {}, None
        self.doing = self.subject = None
        # Mapped bytes are read and written by system calls: these return EFAULT where an access would raise SIGBUS.
        self.memory = os.memfd_create("mapped")
        self.aligned = mmap.mmap(-1, 2 * MIB)
        self.operations = [
            operation for name, weight in self.WEIGHTS.items() for operation in [getattr(self, name)] * weight]

    def run(self):
        try:
            while not self.model.ends.is_set():
                if self.model.pauses.is_set():
                    self.is_parked = True
                    self.model.resumed.wait()
                    self.is_parked = False
                    continue
                operation = self.rng.choice(self.operations)
                self.since, self.doing = time.monotonic(), operation.__name__
                try:
                    operation()
                except (Killed, Closed):
                    continue
                self.counts[self.doing] = self.counts.get(self.doing, 0) + 1
        except BaseException as failure:
            self.failure = failure
            self.model.ends.set()
        self.is_parked = True

    # Calls

    def call(self, function, *arguments):
        """A system call, repeated while the vault is locked. A refused call has changed nothing."""
        deadline = time.monotonic() + 60
        while True:
            if self.model.is_killing:
                raise Killed
            try:
                return function(*arguments)
            except OSError as error:
                if self.model.is_killing and error.errno in GONE + (errno.EFAULT, errno.ENOKEY):
                    raise Killed from None
                if error.errno != errno.ENOKEY or not self.model.locks or time.monotonic() > deadline:
                    raise
                time.sleep(0.002)

    def full(self, error):
        """Raises an error again, unless it is that of a disk which was full since the operation began."""
        if error.errno != errno.ENOSPC or not self.model.was_full(self.since):
            raise error

    def change(self, file, change, function, *arguments):
        """Does a call that changes a file as `change` says. Returns its result. None if the disk was full: then
        nothing has changed."""
        if self.model.is_killing:
            raise Killed
        file.in_flight.append(change)
        try:
            result = self.call(function, *arguments)
        except Closed:
            file.in_flight.remove(change)
            raise
        except OSError as error:
            file.in_flight.remove(change)
            self.full(error)
            file.note("ENOSPC")
            return None
        if self.model.is_killing and result is not True and 0 <= result < len(change.data):
            # A request of several was acknowledged. The next one may have happened.
            raise Killed
        file.in_flight.remove(change)
        return result

    def expect(self, what, start, expected, found):
        if expected != found:
            raise Difference.between(what, start, expected, found)

    def unit(self, file, at, size):
        """The unit that a kill leaves old or new. The kernel sends an unaligned or long write as several requests."""
        return file.chunk if at % PAGE == 0 and size < MIB else PAGE

    # Choices

    def position(self, file, end):
        """An offset up to `end`, often at a border."""
        chunk = self.rng.choice([file.chunk, file.chunk, PAGE])
        kind, at = self.rng.randrange(8), self.rng.randrange(end + 1)
        if kind < 3:
            at = at // chunk * chunk + (0, -1, 1)[kind]
        elif kind == 3:
            at = len(file.content) - self.rng.choice([0, 1, chunk])
        return max(0, min(end, at))

    def size(self, file, most):
        chunk = file.chunk
        size = self.rng.choice([
            1, 100, 3000, PAGE, PAGE, chunk, chunk - 1, chunk + 1, self.rng.randrange(1, 3 * chunk),
            self.rng.randrange(1, 40_000), self.rng.randrange(1, MIB)])
        return max(1, min(size, most, 2 * MIB - PAGE))

    def span(self, file, most=2 * MIB):
        """A range inside the file. The length may change before the range is used."""
        length = len(file.content)
        at = self.position(file, max(0, length - 1))
        return at, at + self.size(file, min(most, max(1, length - at)))

    def inside(self, file, start, end, writing):
        """Uses a range, of which only the part up to the file's end is there."""
        return file.ranges.use(start, max(end, start + 1), writing)

    def file(self):
        return self.model.choose(self.rng)

    # Parts of operations

    def compare(self, file, what, kind, start, end):
        file.note(what, kind, start, end)
        parts, at = [], start
        while at < end and (part := self.call(os.pread, file.fds[kind], end - at, at)):
            parts.append(part)
            at += len(part)
        self.expect(what, start, bytes(file.content[start:end]), b"".join(parts))

    def same_length(self, file):
        found = self.call(os.fstat, file.fds["plain"]).st_size
        if found != len(file.content):
            raise Difference(f"the length is {found}, not {len(file.content)}")

    def unchanged(self, file, start, end):
        """After a refused operation. The caller has the range."""
        self.same_length(file)
        self.compare(file, "after ENOSPC", "plain", start, end)

    def mapped(self, file, start, end, action):
        """Maps the pages of a range, calls `action` with the address of `start`, and unmaps them."""
        first, last = pages(start, end)
        address = self.call(lambda: check(libc.mmap(None, last - first, 3, mmap.MAP_SHARED, file.fds["plain"], first)))
        try:
            return action(address + start - first, address)
        finally:
            check(libc.munmap(address, last - first))

    def touch(self, file, function, address, start, size):
        """pread(2) or pwrite(2) from or to mapped memory, repeated while the vault is locked."""
        done, deadline = 0, time.monotonic() + 60
        while done < size:
            try:
                done += check(function(self.memory, address + done, size - done, done))
            except OSError as error:
                if error.errno != errno.EFAULT or time.monotonic() > deadline:
                    raise
                # The reason for the fault. A read of the same bytes waits for the end of a lock, and finds damage.
                self.call(os.pread, file.fds["plain"], 1, start + done)

    @staticmethod
    def fallocate(fd, mode, at, size):
        check(libc.fallocate(fd, mode, at, size))
        return True

    def synchronize_file(self, file):
        images = file.unsynced_now()
        try:
            fd = file.fds[self.rng.choice(("plain", "append", "direct"))]
            self.call(self.rng.choice([os.fsync, os.fdatasync]), fd)
            file.synced(images)
        except OSError as error:
            # An fsync reports what went wrong since the last one, also EIO of another descriptor's.
            if error.errno not in (errno.ENOSPC, errno.EIO) or not self.model.was_full(self.since):
                raise
