"""Operations inside of a file that leave its length. Each is done on the mount and on the model, and what it returns is
compared."""

import errno
import os

from model_file import BYTE, PAGE, Change, Difference
from model_worker import MIB, Killed, Worker, check, libc, pages

KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO_RANGE, INSERT, UNSHARE = 1, 2, 8, 16, 32, 64
MS_SYNC = 4


class Contents(Worker):
    def read(self):
        file = self.file()
        start, end = self.span(file)
        with self.inside(file, start, end, False):
            self.compare(file, "read", "plain", start, end)

    def read_direct(self):
        file = self.file()
        start, end = pages(*self.span(file, MIB))
        with self.inside(file, start, end, False):
            file.note("read direct", start, end)
            with memoryview(self.aligned) as buffer, buffer[:end - start] as part:
                expected = bytes(file.content[start:end])
                n = more = self.call(os.preadv, file.fds["direct"], [part], start)
                # A read of more than 1 MiB is several requests. A lock or a kill may come after the first.
                while 0 < more and n < len(expected) and n % MIB == 0 and self.model.locks:
                    more = self.call(os.preadv, file.fds["direct"], [part[n:]], start + n)
                    n += more
                if self.model.is_killing and n < len(expected):
                    raise Killed
                self.expect("direct read", start, expected, bytes(part[:n]))

    def read_in_order(self):
        """So much that the daemon decrypts ahead of the reads."""
        file = self.file()
        start = pages(*self.span(file))[0]
        size = self.rng.choice([PAGE, 65536, 131072])
        with self.inside(file, start, start + MIB, False):
            expected = bytes(file.content[start:start + MIB])
            file.note("read in order", start, size)
            for at in range(0, len(expected), size):
                with memoryview(self.aligned) as buffer, buffer[:size] as part:
                    n = self.call(os.preadv, file.fds["direct"], [part], start + at)
                    self.expect("read in order", start + at, expected[at:at + size], bytes(part[:n]))

    def read_mapped(self):
        file = self.file()
        start, end = self.span(file)
        with self.inside(file, start, end, False):
            end = min(end, len(file.content))
            if start >= end or not file.is_mappable:
                return
            file.note("read mapped", start, end)
            os.ftruncate(self.memory, 0)
            self.mapped(file, start, end, lambda address, _: self.touch(file, libc.pwrite, address, start, end - start))
            self.expect("mapped read", start, bytes(file.content[start:end]), os.pread(self.memory, end - start, 0))

    def write(self):
        file = self.file()
        start, end = self.span(file)
        with self.inside(file, start, end, True):
            end = min(end, len(file.content))
            if start < end:
                self.put(file, "plain", start, self.rng.randbytes(end - start))

    def put(self, file, kind, at, data, length=None):
        """pwrite(2) by one of the descriptors, and its effect on the model."""
        change = Change(at, data, length or len(file.content), self.unit(file, at, len(data)))
        if (gap := at - len(file.content)) > 0:
            change = Change(len(file.content), bytes(gap) + data, length, PAGE)
        file.note("write", kind, at, len(data))
        n = self.change(file, change, os.pwrite, file.fds[kind], data, at)
        if n is None:
            # All of it is as before.
            return self.unchanged(file, at, at + len(data))
        if n < len(data):
            file.note("wrote", n)
            if not self.model.locks and not self.model.was_full(self.since):
                raise Difference(f"a write of {len(data)} bytes at {at} wrote {n}")
        if at + n > len(file.content):
            file.resize(at + n)
        file.overwrite(at, data[:n])
        return None

    def write_direct(self):
        file = self.file()
        start, end = pages(*self.span(file, MIB))
        with self.inside(file, start, end, True):
            end = min(end, len(file.content) // PAGE * PAGE)
            if start >= end:
                return
            data = self.rng.randbytes(end - start)
            file.note("write direct", start, end)
            self.aligned[:len(data)] = data
            with memoryview(self.aligned) as buffer, buffer[:len(data)] as part:
                n = self.change(
                    file, Change(start, data, len(file.content), self.unit(file, start, len(data))), os.pwritev,
                    file.fds["direct"], [part], start)
            if n is None:
                return self.unchanged(file, start, end)
            file.overwrite(start, data[:n])

    def write_mapped(self):
        file = self.file()
        start, end = self.span(file, 200_000)
        first, last = pages(start, end)
        with self.inside(file, first, last, True):
            end = min(end, len(file.content))
            last = pages(start, end)[1]
            # A page that the kernel cannot write back is lost, with an error for the next msync or fsync.
            if start >= end or not file.is_mappable or self.model.fills:
                return
            data, syncs = self.rng.randbytes(end - start), self.rng.random() < 0.7
            file.note("write mapped", start, end, "msync" if syncs else "")
            os.pwrite(self.memory, data, 0)

            def store(address, mapping):
                with file.store_mapped(start, data):
                    self.touch(file, libc.pread, address, start, len(data))
                if syncs:
                    images = file.unsynced_now()
                    self.call(lambda: check(libc.msync(mapping, last - first, MS_SYNC)))
                    file.synced(images, first, last)

            self.mapped(file, start, end, store)

    def punch(self):
        self.make_zeros(PUNCH_HOLE | KEEP_SIZE)

    def make_zeros(self, mode):
        file = self.file()
        start, end = self.span(file)
        beyond = end + (self.rng.choice([0, 0, 1, 5000, file.chunk]) if mode & KEEP_SIZE else 0)
        first, last = pages(start, beyond)
        with self.inside(file, first, last, True):
            end = min(beyond, len(file.content))
            if start >= end:
                return
            if not mode & KEEP_SIZE:
                beyond = end
            file.note("fallocate", mode, start, beyond - start)
            zeros = bytes(end - start)
            # The zeros of a part of a large chunk are written in pieces.
            change = Change(start, zeros, len(file.content), BYTE)
            if self.change(file, change, self.fallocate, file.fds["plain"], mode, start, beyond - start) is None:
                return self.partly_zero(file, start, end)
            file.overwrite(start, zeros)

    def partly_zero(self, file, start, end):
        """fallocate(2) may have made a part of the zeros before the disk was full."""
        self.same_length(file)
        # The kernel keeps its pages of before a fallocate(2) that fails (Manual/Limits.md).
        os.posix_fadvise(file.fds["plain"], 0, 0, os.POSIX_FADV_DONTNEED)
        found = self.call(os.pread, file.fds["plain"], end - start, start)
        for at in range(start, end):
            if found[at - start] not in (0, file.content[at]):
                raise Difference(
                    "after ENOSPC of fallocate: neither old nor zero", at, file.content[at:at + 32],
                    found[at - start:][:32])
        file.overwrite(start, found)

    def zero(self):
        if self.rng.random() < 0.7:
            return self.make_zeros(ZERO_RANGE | (KEEP_SIZE if self.rng.random() < 0.5 else 0))
        return self.allocate(ZERO_RANGE)

    def refused_mode(self):
        file = self.file()
        start, end = self.span(file)
        with self.inside(file, start, end, False):
            if start >= len(file.content):
                return
            mode = self.rng.choice([COLLAPSE, INSERT, UNSHARE, PUNCH_HOLE, PUNCH_HOLE | ZERO_RANGE | KEEP_SIZE])
            file.note("fallocate", mode, start, end - start)
            try:
                self.call(self.fallocate, file.fds["plain"], mode, start, end - start)
            except OSError as error:
                if error.errno == errno.EOPNOTSUPP:
                    return
                raise
            raise Difference(f"fallocate with the mode {mode} succeeded")

    def copy(self):
        source, target = self.file(), self.file()
        start, end = self.span(source, MIB)
        at = self.position(target, len(target.content))
        to, after = pages(at, at + end - start)
        if source is target and start < after and to < end:
            return
        # All threads use the ranges of several files in the same order.
        uses = sorted([(id(source), (start, end, False)), (id(target), (to, max(after, to + 1), True))])
        names = {id(source): source, id(target): target}
        with names[uses[0][0]].ranges.use(*uses[0][1]), names[uses[1][0]].ranges.use(*uses[1][1]):
            end = min(end, len(source.content), start + len(target.content) - at)
            if start >= end:
                return
            data = bytes(source.content[start:end])
            for file in source, target:
                file.note("copy from", start, end, "to", at, source.name, target.name)
            # Linux 6.18 copies through a pipe, in pieces of any size, once two first calls of a mount were answered
            # with ENOSYS at the same time (COPY_FILE_RANGE_64 in fs/fuse/file.c).
            n = self.change(
                target, Change(at, data, len(target.content), BYTE), os.copy_file_range,
                source.fds["plain"], target.fds["plain"], end - start, start, at)
            if n is None:
                return self.unchanged(target, at, at + len(data))
            target.overwrite(at, data[:n])

    def seek(self):
        """SEEK_HOLE and SEEK_DATA: holes are zeros, and the file ends with one."""
        file = self.file()
        with file.exclusive():
            file.note("seek")
            fd, length, at = file.fds["plain"], len(file.content), 0
            self.synchronize_file(file)
            while at < length:
                try:
                    start = self.seek_data(fd, at, length)
                    if not at <= start <= length:
                        raise Difference(f"SEEK_DATA from {at} returned {start}, the length is {length}")
                    if any(file.content[at:start]):
                        raise Difference.between(
                            f"SEEK_DATA from {at} returned {start}", at, file.content[at:start], bytes(start - at))
                    if start == length:
                        break
                    at = self.call(os.lseek, fd, start, os.SEEK_HOLE)
                    if not start < at <= length:
                        raise Difference(f"SEEK_HOLE from {start} returned {at}, the length is {length}")
                except OSError as error:
                    # The store cannot say where its holes are before a checkpoint, which needs space.
                    return self.full(error)

    def seek_data(self, fd, at, length):
        try:
            return self.call(os.lseek, fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return length
