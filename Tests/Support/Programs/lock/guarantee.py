"""Tests the guarantee. A vault is locked with a big file in the page cache, a touched mapping, listed directories, four
readers and a writer at full speed. From then on every system call returns ENOKEY, and no page of the file is left.
After the unlock every descriptor, mapping and working directory works again. Prints violations.

guarantee.py --binary VAULTFS --mountpoint DIR [--mebibytes N] [--tries N] [--passfile FILE] [--no-kernel-cache]"""

import argparse
import collections
import ctypes
import errno
import json
import mmap
import os
import random
import select
import signal
import subprocess
import sys
import time

import cached_pages
import guarantee_probes as probes

options = None
problems = collections.Counter()


def complain(what):
    problems[what] += 1


class Shared:
    """Numbers that all processes share."""

    def __init__(self):
        self.numbers = (ctypes.c_uint64 * 64).from_buffer(mmap.mmap(-1, 4096))

    def __getitem__(self, index):
        return self.numbers[index]

    def __setitem__(self, index, value):
        self.numbers[index] = value


LOCKED, STOP, LEAKED, MIXED, ODD, WRITTEN = range(6)
READ, REFUSED = 8, 16


def load(shared, body):
    """Starts a process that does `body` at full speed, and retries soon after a refusal. Returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    while not shared[STOP]:
        locked = shared[LOCKED]
        try:
            body()
            # Odd numbers are locks, so the call began and ended within one lock.
            if locked % 2 and shared[LOCKED] == locked:
                shared[LEAKED] += 1
        except OSError as error:
            if error.errno != errno.ENOKEY:
                shared[ODD] = error.errno
            time.sleep(0.002)
    os._exit(0)


def reader(shared, index):
    fd = os.open("big", os.O_RDONLY)
    size = os.fstat(fd).st_size
    random.seed(index)

    def body():
        first = random.randrange(size // 4096 - 32)
        data = os.pread(fd, 32 * 4096, first * 4096)
        for i in (0, 13, 31):
            # The lock may cut it short.
            part = data[i * 4096 : i * 4096 + 4096]
            if part != probes.block(first + i)[: len(part)]:
                shared[MIXED] += 1
        shared[READ + index] += 1

    return load(shared, body)


def writer(shared):
    """Writes numbers into a ring. The last acknowledged number is reported, so that none may be lost."""
    fd = os.open("written", os.O_RDWR | os.O_TRUNC)

    def body():
        number = shared[WRITTEN] + 1
        os.pwrite(fd, number.to_bytes(8, "little") * 1024, number % 512 * 8192)
        shared[WRITTEN] = number

    return load(shared, body)


def dirty_pages():
    """A mapping that is written just before the lock."""
    fd = os.open("dir/mapped", os.O_RDWR)
    os.ftruncate(fd, 64 * 4096)
    return cached_pages.Mapping(fd, 64 * 4096, writable=True)


class Dweller:
    """A process that works in a directory of the mount, and has the big file open. It checks them on request."""

    def __init__(self, path, size):
        self.path = os.path.join(options.mountpoint, path)
        self.asking, self.answering = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            fd = os.open("big", os.O_RDONLY)
            mapping = cached_pages.Mapping(fd, size, private=options.no_kernel_cache)
            os.chdir(path)
            while True:
                question = os.read(self.asking[0], 1)
                os.write(self.answering[1], (json.dumps(self.look(question, fd, size, mapping)) + "\n").encode())

    def look(self, question, fd, size, mapping):
        if question == b"p":
            return [mapping.resident(), cached_pages.resident(fd, size)]
        results = {"getcwd": probes.outcome(os.getcwd)}
        for name in (".", "..", "../file"):
            results[name] = probes.outcome(lambda: os.stat(name) and "stat")
        results["list"] = probes.outcome(lambda: len(os.listdir(".")))
        if question == b"w":
            results["chdir"] = probes.outcome(lambda: os.chdir("..") or os.getcwd())
            os.chdir(os.path.basename(self.path))
        return results

    def ask(self, question):
        os.write(self.asking[1], question)
        answer = b""
        while not answer.endswith(b"\n"):
            if not select.select([self.answering[0]], [], [], 60)[0]:
                sys.exit(f"no answer from the process in {self.path}")
            answer += os.read(self.answering[0], 4096)
        return json.loads(answer)


def vaultfs(*arguments):
    done = subprocess.run([options.binary, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    if done.returncode:
        complain(f"vaultfs {arguments[0]}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def expect_locked(held, dwellers, shared):
    """Expects that all is refused, and that no page is cached, both before the tries and after them."""
    table = probes.all_probes(held)
    order = list(table)
    for dweller in dwellers:
        for pages in dweller.ask(b"p"):
            if pages:
                complain(f"{pages} pages are in the page cache")
    for _ in range(options.tries):
        random.shuffle(order)
        for name in order:
            found = probes.outcome(table[name])
            if found != "ENOKEY":
                complain(f"{name}: {found} while locked")
    for dweller in dwellers:
        if pages := max(dweller.ask(b"p")):
            complain(f"{pages} pages have come into the page cache")
    quiet = dwellers[0].ask(b"s")
    for name in (".", "..", "../file", "list"):
        if quiet[name] != "ENOKEY":
            complain(f"{name} from a working directory: {quiet[name]} while locked")
    for what, action in {"root": lambda: os.stat(options.mountpoint), "statfs": lambda: os.statvfs(options.mountpoint),
                         "fstatfs": lambda: os.statvfs(held.big)}.items():
        if probes.outcome(action) == "ENOKEY":
            complain(f"{what} does not answer while locked")


def expect_unlocked(held, dwellers, dirty, number, small):
    """Expects that every descriptor, mapping and working directory works again."""
    for dweller in dwellers:
        found = dweller.ask(b"w")
        wanted = {"getcwd": repr(dweller.path), ".": "'stat'", "..": "'stat'", "chdir": repr(os.path.dirname(dweller.path))}
        for name in wanted:
            if found[name] != wanted[name]:
                complain(f"{name} in {dweller.path}: {found[name]} after the unlock")
    for _ in range(50):
        index = random.randrange(held.size // 4096)
        if not os.pread(held.big, 4096, index * 4096) == held.mapping.read(index * 4096, 4096) == probes.block(index):
            complain("the big file reads otherwise")
    if dirty and dirty.read(0, 8) != number or dirty and os.pread(os.open("dir/mapped", os.O_RDONLY), 8, 0) != number:
        complain("a dirty mapped page is lost")
    if (os.pread(held.file, 9999, 0), os.pread(held.gone, 9999, 0)) != small:
        complain("the small files read otherwise")
    for name, probe in (probes.reads(held) | probes.attributes(held)).items():
        found = probes.outcome(probe)
        if found in ("ENOKEY", "EIO", "ESTALE", "EFAULT", "EBADF", "ENOENT"):
            complain(f"{name}: {found} after the unlock")
    for name in ("none", "dir/none"):
        if probes.outcome(lambda: os.stat(name)) != "ENOENT":
            complain(f"{name} is not missing after the unlock")
    if len(os.listdir(held.directory)) != 300 + 7 or not held.begun:
        complain(f"the listing is another: {len(os.listdir(held.directory))}")


def expect_progress(shared, before, what):
    deadline = time.monotonic() + 20
    while any(shared[i] <= before[i] for i in (READ, READ + 1, READ + 2, READ + 3, WRITTEN)):
        if time.monotonic() > deadline:
            return complain(f"no progress {what}")
        time.sleep(0.01)


def numbers(shared):
    return [shared[i] for i in range(64)]


def expect_written(shared):
    """Expects each acknowledged number at its position, whole."""
    fd = os.open("written", os.O_RDONLY)
    for number in range(max(1, shared[WRITTEN] - 511), shared[WRITTEN] + 1):
        data = os.pread(fd, 8192, number % 512 * 8192)
        found = int.from_bytes(data[:8], "little")
        # A refused write must have left nothing. A write without a reply yet may have left all of its data.
        if found not in (number, number + 512) or data != data[:8] * 1024:
            complain("an acknowledged write is lost or torn")


def work(shared):
    probes.make(options.mountpoint, options.mebibytes)
    held = probes.Held(options.mountpoint, shared=not options.no_kernel_cache)
    table = probes.all_probes(held)
    silent = [name for name in table if name not in probes.changes(held) and probes.outcome(table[name]) == "ENOKEY"]
    if silent:
        sys.exit(f"refused before the lock: {silent}")
    dwellers = [Dweller(path, held.size) for path in ("dir/sub/quiet", "dir/asked", "dir")]
    children = [dweller.pid for dweller in dwellers]
    children += [reader(shared, i) for i in range(4)] + [writer(shared)]
    dirty = dirty_pages() if not options.no_kernel_cache else None
    try:
        for turn in range(options.rounds):
            expect_progress(shared, numbers(shared), "before the lock")
            for offset in range(0, held.size, 4096):
                held.mapping.read(offset, 1)
            if not options.no_kernel_cache and dwellers[0].ask(b"p")[0] < held.size // 4096 * 9 // 10:
                complain("the page cache does not hold the file before the lock")
            number, small = os.urandom(8), (os.pread(held.file, 9999, 0), os.pread(held.gone, 9999, 0))
            if dirty:
                dirty.write(0, number)
            vaultfs("lock", options.mountpoint)
            shared[LOCKED] += 1
            os.chdir(options.mountpoint)
            expect_locked(held, dwellers, shared)
            shared[LOCKED] += 1
            vaultfs("unlock", options.mountpoint, *(["--passfile", options.passfile] if options.passfile else []))
            expect_unlocked(held, dwellers, dirty, number, small)
            expect_progress(shared, numbers(shared), "after the unlock")
        shared[STOP] = 1
        for pid in children[len(dwellers) :]:
            os.waitpid(pid, 0)
        expect_written(shared)
    finally:
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    for what, index in {"results while locked": LEAKED, "mixed results": MIXED, "an odd error": ODD}.items():
        if shared[index]:
            complain(f"readers and writer: {what}: {shared[index]}")
    return len(table)


def main():
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--mountpoint", required=True)
    parser.add_argument("--mebibytes", type=int, default=300)
    parser.add_argument("--tries", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--passfile")
    parser.add_argument("--no-kernel-cache", action="store_true")
    options = parser.parse_args()
    count = work(Shared())
    for what, times in problems.items():
        print(f"{what} ({times} times)")
    print(f"{count} probes, {options.tries} tries, {options.mebibytes} MiB, {len(problems)} problems")
    sys.exit(1 if problems else 0)


main()
