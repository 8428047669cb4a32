"""Operations that change a file's length or name, and those on attributes."""

import errno
import mmap
import os

from model_contents import KEEP_SIZE, ZERO_RANGE, Contents
from model_file import BYTE, END, PAGE, Change, Descriptors, Difference, File
from model_worker import MIB, Killed, check, libc


class Operations(Contents):
    # The number of times that an operation is among those from which one is drawn.
    WEIGHTS = {
        "read": 12, "write": 12, "read_direct": 2, "read_in_order": 2, "write_direct": 3, "read_mapped": 4, "write_mapped": 5,
        "write_beyond": 3, "append": 4, "cut": 3, "grow": 3, "cut_and_grow": 1, "allocate": 3, "punch": 3, "zero": 2, "refused_mode": 1,
        "seek": 2, "synchronize": 3, "copy": 3, "length": 3, "attribute": 3, "create": 3, "rename": 1, "unlink": 1,
        "reopen": 1, "open_truncating": 1}

    # Changing the length

    def write_beyond(self):
        file = self.file()
        with file.exclusive():
            length = len(file.content)
            gap = self.rng.choice([0, -1, -100, -file.chunk, 1, 5000, file.chunk, file.chunk + 1, MIB + 1])
            at = max(0, length + gap)
            data = self.rng.randbytes(self.size(file, MIB))
            if at + len(data) <= self.model.largest and at + len(data) > length:
                self.put(file, "plain", at, data, length=at + len(data))
                self.same_length(file)

    def append(self):
        file = self.file()
        with file.exclusive():
            length, data = len(file.content), self.rng.randbytes(self.size(file, MIB))
            if length + len(data) > self.model.largest:
                return
            file.note("append", length, len(data))
            n = self.change(
                file, Change(length, data, length + len(data), PAGE), os.write, file.fds["append"], data)
            if n is None:
                return self.unchanged(file, max(0, length - file.chunk), length + 1)
            file.resize(length + n)
            file.overwrite(length, data[:n])

    def truncate(self, file, length):
        """ftruncate(2). The caller has the file alone."""
        old = len(file.content)
        change = Change(min(old, length), bytes(max(0, length - old)), length, PAGE)
        file.note("truncate", old, length)
        if self.change(file, change, lambda: os.ftruncate(file.fds["plain"], length) or True) is None:
            return self.unchanged(file, max(0, old - file.chunk), old + 1)
        file.resize(length)
        self.same_length(file)

    def cut(self):
        file = self.file()
        with file.exclusive():
            old = len(file.content)
            some = self.position(file, old)
            self.truncate(file, self.rng.choice([0, some, some, max(0, old - 1)]))

    def grow(self):
        file = self.file()
        with file.exclusive():
            self.lengthen(file)

    def lengthen(self, file):
        old, chunk = len(file.content), file.chunk
        by = self.rng.choice([
            1, 100, 5000, chunk, self.rng.randrange(1, 2 * chunk), MIB, MIB + 5000, self.rng.randrange(MIB, 2 * MIB)])
        end = self.rng.choice([old + by, (old + by) // chunk * chunk, (old + by) // chunk * chunk + 1])
        if old < end <= self.model.largest:
            self.truncate(file, end)

    def cut_and_grow(self):
        file = self.file()
        with file.exclusive():
            self.truncate(file, self.position(file, len(file.content)))
            self.lengthen(file)
            end = len(file.content)
            self.compare(file, "after cut and growth", "plain", max(0, end - 3 * MIB), end + 1)

    def allocate(self, mode=None):
        """Modes that may make the file longer."""
        file = self.file()
        if mode is None:
            mode = self.rng.choice([0, KEEP_SIZE])
        with file.exclusive():
            old = len(file.content)
            at = self.position(file, old)
            end = min(self.model.largest, at + self.size(file, MIB) + self.rng.choice([0, 0, MIB]))
            if at >= end:
                return
            length = old if mode & KEEP_SIZE else max(old, end)
            zeros = bytes((end if length > old else min(old, end)) - at) if mode & ZERO_RANGE else bytes(length - old)
            file.note("fallocate", mode, at, end - at)
            change = Change(at if mode & ZERO_RANGE else old, zeros, length, BYTE)
            if self.change(file, change, self.fallocate, file.fds["plain"], mode, at, end - at) is None:
                if mode & ZERO_RANGE:
                    return self.partly_zero(file, at, min(old, end))
                return self.unchanged(file, at, min(old, end))
            file.apply(change)
            self.same_length(file)

    def open_truncating(self):
        slot = self.model.slot(self.rng)
        with slot.lock:
            file = slot.file
            if file is None:
                return
            with file.exclusive():
                file.note("open with O_TRUNC")
                change = Change(0, b"", 0, PAGE)
                fd = self.change(file, change, os.open, self.model.path(file.name), os.O_RDWR | os.O_TRUNC)
                if fd is None:
                    return self.unchanged(file, 0, len(file.content))
                os.close(fd)
                file.resize(0)
                self.same_length(file)

    # The rest

    def length(self):
        file = self.file()
        with file.ranges.use(END - 1, END, False):
            file.note("stat")
            self.same_length(file)

    def synchronize(self):
        file = self.file()
        with file.ranges.use(END - 1, END, False):
            file.note("fsync")
            self.synchronize_file(file)

    def attribute(self):
        file = self.file()
        with file.attribute_lock, file.ranges.use(END - 1, END, False):
            fd, name = file.fds["plain"], "user." + self.rng.choice(["a", "b", "c", "long" * 20])
            kind, old = self.rng.randrange(3), file.attributes.get(name)
            if kind == 0 or (kind == 1 and old is None):
                try:
                    found = self.call(os.getxattr, fd, name)
                except OSError as error:
                    if error.errno != errno.ENODATA:
                        raise
                    found = None
                if found != old:
                    raise Difference(f"the attribute {name} is {found}, not {old}")
                return
            after = {key: value for key, value in file.attributes.items() if key != name}
            if kind == 2:
                after[name] = self.rng.randbytes(self.rng.choice([0, 1, 50, 300]))
            file.note("setxattr" if kind == 2 else "removexattr", name)
            if self.model.is_killing:
                raise Killed
            file.attribute_in_flight = after
            try:
                if kind == 2:
                    self.call(os.setxattr, fd, name, after[name])
                else:
                    self.call(os.removexattr, fd, name)
                file.attributes = after
            except OSError as error:
                # ext4 has room for few attributes, also on an empty disk.
                if error.errno != errno.ENOSPC or kind != 2:
                    self.full(error)
            file.attribute_in_flight = None

    def change_names(self, names, function, *arguments):
        """A call that changes names. Returns false if the disk was full."""
        if self.model.is_killing:
            raise Killed
        self.model.names_in_flight[self] = names
        try:
            self.call(function, *arguments)
        except OSError as error:
            del self.model.names_in_flight[self]
            self.full(error)
            return False
        del self.model.names_in_flight[self]
        return True

    def create(self):
        slot = self.model.slot(self.rng)
        with slot.lock:
            if slot.file is not None:
                return
            file, path = File(slot.name, self.model.chunk), self.model.path(slot.name)
            file.note("create", slot.name)
            if self.change_names(
                    {slot: file}, lambda: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))):
                slot.file = file
                self.open_all(file)

    def open_all(self, file):
        """Opens the descriptors of a file. The kernel's caching must be the same for all of them: a direct one beside a
        cached one leaves stale pages if both are used at the same moment (fs/fuse/file.c invalidates only before a
        direct write)."""
        path = self.model.path(file.name)
        flags = {"plain": os.O_RDWR, "append": os.O_WRONLY | os.O_APPEND, "direct": os.O_RDWR | os.O_DIRECT}
        for _ in range(20):
            fds = {kind: self.call(os.open, path, flag) for kind, flag in flags.items()}
            probe = self.call(os.open, path, os.O_RDWR)
            mappable = {self.can_map(fd) for fd in (fds["plain"], fds["direct"], probe)}
            os.close(probe)
            if len(mappable) == 1:
                file.fds, file.is_mappable = Descriptors(fds), mappable.pop()
                return
            for fd in fds.values():
                os.close(fd)
        raise Difference(f"{file.name}: some descriptors can be mapped, others not")

    def can_map(self, fd):
        try:
            check(libc.munmap(self.call(lambda: check(libc.mmap(None, PAGE, 3, mmap.MAP_SHARED, fd, 0))), PAGE))
            return True
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return False

    def reopen(self):
        slot = self.model.slot(self.rng)
        with slot.lock:
            if slot.file is None:
                return
            with slot.file.exclusive():
                slot.file.note("reopen")
                self.call(slot.file.close)
                self.open_all(slot.file)

    def rename(self):
        first, second = self.model.slot(self.rng), self.model.slot(self.rng)
        if first is second:
            return
        with self.model.in_order(first, second):
            if first.file is None:
                return
            file, replaced = first.file, second.file
            file.note("rename", first.name, second.name, "over a file" if replaced else "")
            paths = self.model.path(first.name), self.model.path(second.name)
            if self.change_names({first: None, second: file}, os.rename, *paths):
                first.file, second.file, file.name = None, file, second.name
                if replaced:
                    self.model.orphan(replaced)

    def unlink(self):
        slot = self.model.slot(self.rng)
        with slot.lock:
            file = slot.file
            if file is None:
                return
            file.note("unlink", slot.name)
            if self.change_names({slot: None}, os.unlink, self.model.path(slot.name)):
                slot.file = None
                self.model.orphan(file)
        if (oldest := self.model.oldest_orphan()) is not None:
            self.finish(oldest)

    def finish(self, file):
        """Compares a file as a whole, for the last time, and closes it."""
        with file.exclusive():
            self.same_length(file)
            self.compare(file, "at its end", "plain", 0, len(file.content) + 1)
            self.call(file.close)
