"""Random operations on one file by several descriptors and a mapping, beside a model of its content, as fsx does.

exercise.py FILE [--operations N] [--seed N]"""

import argparse
import mmap
import os
import random
import sys
import time

LARGEST = 300_000


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--operations", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    return parser.parse_args()


class Exercise:
    def __init__(self, path, seed):
        self.path, self.rng, self.model, self.log = path, random.Random(seed), bytearray(), []
        self.fds = []
        self.open(os.O_CREAT | os.O_TRUNC)
        self.open(0)

    def open(self, flags):
        self.fds.append(os.open(self.path, os.O_RDWR | flags, 0o600))

    def span(self):
        start = self.rng.randrange(LARGEST)
        if self.rng.random() < 0.3:
            start -= start % 4096
        size = self.rng.choice([1, 17, 512, 4096, 8192, 40_000])
        return start, self.rng.randint(1, min(size, LARGEST - start))

    def grow(self, end):
        self.model.extend(bytes(max(0, end - len(self.model))))

    def write(self, fd):
        start, size = self.span()
        data = self.rng.randbytes(size)
        os.pwrite(fd, data, start)
        self.grow(start)
        self.model[start:start + size] = data

    def append(self, _):
        if len(self.model) > LARGEST - 5000:
            return
        data = self.rng.randbytes(self.rng.randint(1, 5000))
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.write(fd, data)
        os.close(fd)
        self.model += data

    def read(self, fd):
        start, size = self.span()
        self.expect("read", os.pread(fd, size, start), self.model[start:start + size])

    def mapped(self, fd):
        start, size = self.span()
        size = min(size, len(self.model) - start)
        if size <= 0:
            return
        with mmap.mmap(fd, len(self.model)) as mapping:
            self.expect("mapping", mapping[start:start + size], self.model[start:start + size])
            if self.rng.random() < 0.5:
                data = self.rng.randbytes(size)
                mapping[start:start + size] = data
                self.model[start:start + size] = data

    def truncate(self, fd):
        size = self.rng.randrange(LARGEST)
        os.ftruncate(fd, size)
        self.grow(size)
        del self.model[size:]

    def allocate(self, fd):
        start, size = self.span()
        os.posix_fallocate(fd, start, size)
        self.grow(start + size)

    def synchronize(self, fd):
        self.rng.choice([os.fsync, os.fdatasync])(fd)

    def reopen(self, _):
        os.close(self.fds.pop(self.rng.randrange(len(self.fds))))
        self.open(0)

    def look(self, fd):
        """The size, and what a program that copies only data would copy."""
        self.expect("size", os.fstat(fd).st_size, len(self.model))
        found, offset = bytearray(len(self.model)), 0
        while offset < len(self.model):
            try:
                start = os.lseek(fd, offset, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(fd, start, os.SEEK_HOLE)
            found[start:end] = os.pread(fd, end - start, start)
            offset = end
        self.expect("data by lseek", found, self.model)

    def copy(self, fd):
        if len(self.model) < 2:
            return
        start, size = self.rng.randrange(len(self.model)), self.rng.randint(1, 20_000)
        target = self.rng.randrange(LARGEST - 20_000)
        size = min(size, len(self.model) - start)
        if start < target + size and target < start + size:
            return
        done = os.copy_file_range(fd, self.fds[0], size, start, target)
        data = self.model[start:start + done]
        self.grow(target)
        self.model[target:target + done] = data

    def expect(self, what, found, wanted):
        if found != wanted:
            where = next((i for i, (a, b) in enumerate(zip(found, wanted)) if a != b), None) if what != "size" else found
            sys.exit(f"{what}: differs from the model at {where}, after: {' '.join(self.log[-12:])}")

    def run(self, count):
        kinds = [self.write] * 6 + [self.read] * 4 + [
            self.append, self.mapped, self.mapped, self.truncate, self.allocate, self.synchronize, self.reopen, self.look,
            self.copy]
        for _ in range(count):
            kind = self.rng.choice(kinds)
            self.log.append(kind.__name__)
            kind(self.rng.choice(self.fds))
        for fd in self.fds:
            os.close(fd)
        with open(self.path, "rb") as file:
            self.expect("the end", file.read(), bytes(self.model))


given = parse()
print(f"seed {given.seed}", flush=True)
Exercise(given.file, given.seed).run(given.operations)
