"""Files of records. One process writes each file, each record whole and in one version after another. A lock may
interrupt it: a refused write changed nothing, and a shortened write changed only the bytes that it reports."""

import errno
import mmap
import os
import random
import struct
import time

RECORD = 3 * 4096 + 1000
RECORDS = 60
PAGE = 4096
# For each file: a sequence number, odd during a change. The number of records. The index from which records change, or
# of the one that changes. The version of each record.
WORDS = 3 + RECORDS


class Board:
    """The writers' progress, in memory that all processes share."""

    def __init__(self, files):
        self.memory = memoryview(mmap.mmap(-1, files * WORDS * 8)).cast("Q")

    def file(self, number):
        return self.memory[number * WORDS:(number + 1) * WORDS]


def content(file, record, version):
    """A record; version 0 is a hole."""
    if version == 0:
        return bytes(RECORD)
    unit = struct.pack("<HHIQ", file, record, 0xC0FFEE, version)
    return (unit * (RECORD // len(unit) + 1))[:RECORD]


class Cut(Exception):
    """The content found is neither the old nor the written one."""


class Writer:
    """Writes one file in one of four ways until `stopping`. If the vault refuses, it waits and continues."""

    WAYS = ("pwrite", "append", "mapped", "truncate")

    def __init__(self, path, number, board, way, seed):
        self.number, self.way, self.words = number, way, board.file(number)
        self.rng = random.Random(seed)
        flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if way == "append" else 0)
        self.refusals = self.short = self.written = 0
        # On a busy machine the first lock may come before this process has begun.
        self.fd = self.insist(lambda: os.open(path, flags, 0o644))
        if way in Reader.MAPPED:
            self.begin(0)
            self.insist(lambda: os.ftruncate(self.fd, RECORDS * RECORD))
            self.words[1] = RECORDS
            self.words[0] += 1
        if way == "mapped":
            self.map = memoryview(mmap.mmap(self.fd, RECORDS * RECORD))
            self.source = os.memfd_create("record")

    def run(self, stopping):
        while not stopping():
            self.step()
            self.words[0] += 1
            self.written += 1
        os.close(self.fd)

    def step(self):
        count = self.words[1]
        if self.way in ("append", "truncate") and (count == RECORDS or self.way == "truncate" and self.rng.random() < 0.3):
            keep = 0 if self.way == "append" else self.rng.randrange(count + 1)
            self.begin(keep)
            self.insist(lambda: os.ftruncate(self.fd, keep * RECORD))
            self.words[1] = keep
            return
        if self.way == "truncate" and self.rng.random() < 0.3:
            # A hole.
            self.begin(count)
            self.insist(lambda: os.ftruncate(self.fd, (count + 1) * RECORD))
            self.words[1], self.words[3 + count] = count + 1, 0
            return
        grows = self.way in ("append", "truncate")
        record = count if grows else self.rng.randrange(count)
        old = None if grows else content(self.number, record, self.words[3 + record])
        version = self.rng.randrange(1, 1 << 60)
        self.begin(record)
        self.put(record, content(self.number, record, version), old)
        self.words[3 + record] = version
        if grows:
            self.words[1] = count + 1

    def begin(self, record):
        self.words[2] = record
        self.words[0] += 1

    def put(self, record, new, old):
        done = 0
        while done < len(new):
            try:
                count = self.write(record * RECORD + done, new[done:])
            except OSError as error:
                if error.errno not in (errno.ENOKEY, errno.EFAULT):
                    raise
                self.refusals += 1
                self.insist(lambda: self.check(record, new, old, done))
                continue
            done += count
            if done < len(new):
                self.short += 1
                self.insist(lambda: self.check(record, new, old, done))

    def write(self, at, data):
        if self.way == "mapped":
            # A copy by the kernel: a page that cannot be read gives EFAULT, but our own store would get SIGBUS.
            os.pwrite(self.source, data, 0)
            return os.preadv(self.source, [self.map[at:at + len(data)]], 0)
        return os.write(self.fd, data) if self.way == "append" else os.pwrite(self.fd, data, at)

    def check(self, record, new, old, done):
        """The result of an incomplete write: new bytes up to the reported length, then the old ones, or the end."""
        found = b""
        while part := os.pread(self.fd, RECORD - len(found), record * RECORD + len(found)):
            found += part
        if old is None:
            if found != new[:done]:
                raise Cut(f"{self.way} of record {record}: {len(found)} bytes after {done} were written")
            return
        # The page in which a copy to a mapping ended may have received more bytes than reported.
        unsure = done - (record * RECORD + done) % PAGE + PAGE if self.way == "mapped" and done else done
        for end, expected in ((done, new), (RECORD, old)):
            start = 0 if expected is new else unsure
            if found[start:end] != expected[start:end]:
                runs = [f"{i}: {'new' if found[i] == new[i] else 'old' if found[i] == old[i] else found[i]}"
                        for i in range(0, RECORD, 512)]
                raise Cut(f"{self.way} of record {record}, {done} written, {len(found)} found: {', '.join(runs)}")

    def insist(self, action):
        """Repeats an operation that the vault may refuse until it succeeds."""
        while True:
            try:
                return action()
            except OSError as error:
                if error.errno != errno.ENOKEY:
                    raise
                self.refusals += 1
                time.sleep(0.0005)


class Reader:
    """Reads records, several at once, or one through a mapping. The result must be the written data, or ENOKEY."""

    # Files that always have all their records.
    MAPPED = ("pwrite", "mapped")

    def __init__(self, paths, board, mapped, seed):
        """`paths`: in the order of Writer.WAYS."""
        self.files = [
            (number, os.open(path, os.O_RDONLY), board.file(number))
            for number, path in enumerate(paths) if not mapped or Writer.WAYS[number] in self.MAPPED]
        self.rng, self.mapped = random.Random(seed), mapped
        self.read_records = self.refusals = self.short = 0
        if mapped:
            self.maps = {
                number: memoryview(mmap.mmap(fd, RECORDS * RECORD, prot=mmap.PROT_READ)) for number, fd, _ in self.files}
            self.pipe = os.pipe()

    def run(self, stopping):
        while not stopping():
            try:
                self.step(*self.rng.choice(self.files))
            except OSError as error:
                if error.errno not in (errno.ENOKEY, errno.EFAULT):
                    raise
                self.refusals += 1
                time.sleep(0.0005)

    def step(self, number, fd, words):
        before, count = words[0], words[1]
        if before % 2 or count == 0:
            return
        first = self.rng.randrange(count)
        wanted = min(1 if self.mapped else self.rng.randrange(1, 20), count - first)
        versions = list(words[3 + first:3 + first + wanted])
        found = self.read(number, fd, first * RECORD, wanted * RECORD)
        if words[0] != before:
            return
        expected = b"".join(content(number, first + i, v) for i, v in enumerate(versions))
        if found != expected[:len(found)] or not found:
            wrong = next((i for i in range(len(found)) if found[i] != expected[i]), 0)
            raise Cut(f"file {number}, record {first} and {wanted}: byte {wrong} of {len(found)}")
        self.short += len(found) < len(expected)
        self.read_records += len(found) // RECORD

    def read(self, number, fd, at, size):
        if not self.mapped:
            return os.pread(fd, size, at)
        count = os.write(self.pipe[1], self.maps[number][at:at + size])
        return os.read(self.pipe[0], count)
