"""Locks a view while its files are open, mapped and being read: nothing is readable, and everything works again after
the unlock.

view_lock.py VAULTFS MOUNTPOINT ORIGINALS LOCK_FILE POLICY UNLOCK_ARGUMENT..."""

import errno
import mmap
import os
import random
import signal
import subprocess
import sys

import cached_pages
from locking import children, fork, refused, stop, until, wait

vaultfs, mountpoint, originals, lock_file, policy, *unlock = sys.argv[1:]
READERS = 3
# Shared with the readers: a flag that ends them, a flag for a complete lock, reads of each, leaks, mixtures.
numbers = memoryview(mmap.mmap(-1, 4096)).cast("Q")
STOP, LOCKED, LEAKED, MIXED, READ = range(5)
name = max(os.listdir(originals))
path = os.path.join(mountpoint, name)
with open(os.path.join(originals, name), "rb") as file:
    expected = file.read()


def run(*arguments, code=0):
    result = subprocess.run([vaultfs, *arguments], capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    if result.returncode != code:
        stop(arguments, "ends with", result.returncode, result.stderr.decode())
    return result.stdout.decode()


def reader(index):
    rng = random.Random(index)
    fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if index % 2 else 0))
    while not numbers[STOP]:
        offset, locked = rng.randrange(len(expected)), numbers[LOCKED]
        try:
            if os.pread(fd, 5000, offset) not in (expected[offset : offset + 5000], b""):
                numbers[MIXED] += 1
            numbers[READ + index] += 1
            # An odd number is a lock. The read began and ended within it.
            if locked % 2 and numbers[LOCKED] == locked:
                numbers[LEAKED] += 1
        except OSError as error:
            if error.errno != errno.ENOKEY:
                numbers[MIXED] += 1


def touch(mapping):
    mapping.read(len(expected) // 2, 1)


def expect_key(what, function, *arguments, **keywords):
    found = refused(lambda: function(*arguments, **keywords))
    if found != "ENOKEY":
        stop("locked, and", what, "gives", found if isinstance(found, str) else type(found))


def look_while_locked(files, directory, mapping):
    for fd in files:
        expect_key("pread", os.pread, fd, 100, 5000)
        expect_key("fstat", os.fstat, fd)
        expect_key("lseek", os.lseek, fd, 0, os.SEEK_DATA)
        if found := cached_pages.resident(fd, len(expected)):
            stop(found, "pages are in the page cache")
    expect_key("open", os.open, path, os.O_RDONLY)
    expect_key("stat", os.stat, path)
    expect_key("a name that is not there", os.stat, os.path.join(mountpoint, "nothing"))
    expect_key("a listing", os.listdir, mountpoint)
    expect_key("a listing that was opened", os.listdir, directory)
    # The kernel sends SIGBUS for a mapping.
    child = fork(touch, mapping)
    if (code := wait(child, "who touches a mapping")) != -signal.SIGBUS:
        stop("a touched mapping ends with", code)


def look_while_unlocked(files, directory, mapping):
    for fd in files:
        if os.pread(fd, len(expected), 0) != expected or os.fstat(fd).st_size != len(expected):
            stop("a descriptor does not go on")
    if mapping.read(0, len(expected)) != expected:
        stop("a mapping does not go on")
    if name not in os.listdir(directory) or os.stat(path).st_size != len(expected):
        stop("a listing")
    with open(path, "rb") as file:
        if file.read() != expected:
            stop("what is opened")


def lock(by_file):
    if by_file:
        open(lock_file, "x").close()
        until("the lock", lambda: '"locked"' in run("status", mountpoint, "--json"))
    else:
        run("lock", mountpoint)


def release(by_file):
    if by_file:
        os.unlink(lock_file)
    if not by_file or policy == "forget":
        run("unlock", mountpoint, *unlock)
    until("the unlock", lambda: '"unlocked"' in run("status", mountpoint, "--json"))


def lock_and_unlock():
    readers = [fork(reader, index) for index in range(READERS)]
    files = [os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY | os.O_DIRECT)]
    directory = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY)
    mapping = cached_pages.Mapping(files[0], len(expected))
    for by_file in (False, True, False):
        look_while_unlocked(files, directory, mapping)
        before = list(numbers[READ : READ + READERS])
        until("the readers", lambda: all(numbers[READ + index] > before[index] for index in range(READERS)))
        if not cached_pages.resident(files[0], len(expected)):
            stop("nothing was in the page cache")
        lock(by_file)
        numbers[LOCKED] += 1
        look_while_locked(files, directory, mapping)
        numbers[LOCKED] += 1
        release(by_file)
    look_while_unlocked(files, directory, mapping)
    numbers[STOP] = 1
    for pid in readers:
        wait(pid, "a reader")


try:
    lock_and_unlock()
finally:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
if numbers[LEAKED] or numbers[MIXED]:
    stop(numbers[LEAKED], "reads while it was locked,", numbers[MIXED], "that gave something else")
print("reads", list(numbers[READ : READ + READERS]))
