"""Names, attributes and pages that the kernel keeps across a lock, beside programs in the middle of requests on busy processors.

lock_kernel.py --binary VAULTFS --directory DIR [--policy refuse|forget] [--rounds N] [--seed N]

Listers and lookers of the idle class get their replies long before they run. After a lock, none of the names and
attributes that they have asked for is reachable. A writer is refused in the middle, over and over. After an unlock, every
page of a mapping is that of the file."""

import mmap
import os
import random
import struct
import time

from locking import fork, main, refused, stop, until, wait

NAMES, PAGE, PAGES = 40, mmap.PAGESIZE, 1024


def hog(core):
    os.sched_setaffinity(0, {core})
    while True:
        pass


def ask(mount, core, number):
    """Lists the directory, or looks names up, with the least share of a busy processor."""
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True:
        try:
            fd = os.open(mount.path("directory"), os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            time.sleep(0.001)
            continue
        try:
            while True:
                os.lseek(fd, 0, 0)
                if number % 2:
                    os.listdir(fd)
                else:
                    os.close(os.open(f"name{random.randrange(NAMES)}", os.O_PATH, dir_fd=fd))
        except OSError:
            time.sleep(0.001)
        finally:
            os.close(fd)


def write(path, shared):
    """Writes versions of the whole file. `shared` is: is to pause, has paused, has begun."""
    fd, version = os.open(path, os.O_RDWR), 0
    shared[2] = 1
    while True:
        if shared[0]:
            shared[1] = 1
            time.sleep(0.001)
            continue
        shared[1] = 0
        version += 1
        try:
            os.pwrite(fd, struct.pack("<Q", version) * (PAGE // 8) * PAGES, 0)
        except OSError:
            time.sleep(0.0005)


def reachable(directory):
    """The calls by which a name or an attribute can be had."""
    for number in range(NAMES):
        name = f"name{number}"
        for call in (lambda: os.stat(name, dir_fd=directory), lambda: os.open(name, os.O_PATH, dir_fd=directory)):
            if (found := refused(call)) != "ENOKEY":
                return f"{name}: {found}"
    return None


def peek(memory, address):
    """A page of a mapping, without SIGBUS."""
    try:
        return os.pread(memory, PAGE, address)
    except OSError:
        return None


def address_of(path):
    with open("/proc/self/maps") as maps:
        return next(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(path))


def kernel(mount, options):
    rng = random.Random(options.seed)
    mount.initialise()
    mount.mount()
    os.mkdir(mount.path("directory"))
    for number in range(NAMES):
        open(mount.path("directory", f"name{number}"), "x").close()
    path = mount.path("file")
    with open(path, "wb") as file:
        file.write(bytes(PAGE * PAGES))
    # So that the directory's names come anew.
    mount.lock()
    mount.unlock()
    directory = os.open(mount.path("directory"), os.O_RDONLY | os.O_DIRECTORY)
    fd, direct = os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY | os.O_DIRECT)
    mapping = mmap.mmap(fd, PAGE * PAGES, mmap.MAP_SHARED, mmap.PROT_READ)
    memory, start = os.open("/proc/self/mem", os.O_RDONLY), address_of(path)
    shared = memoryview(mmap.mmap(-1, 24)).cast("Q")
    core = max(os.sched_getaffinity(0))
    programs = [fork(hog, core)] + [fork(ask, mount, core, number) for number in range(4)]
    programs.append(fork(write, path, shared))
    until("the writer", lambda: shared[2])
    faulted = incomplete = 0
    for _ in range(options.rounds):
        time.sleep(rng.uniform(0, 0.03))
        if not mount.ask("lock")["receipt"]["complete"]:
            # On a machine this busy, a program of the idle class may get no processor for longer than a lock waits.
            incomplete += 1
            mount.unlock()
            continue
        end = time.monotonic() + 0.03
        pages = {number for number in rng.sample(range(PAGES), 200) if peek(memory, start + number * PAGE)}
        while time.monotonic() < end:
            if found := reachable(directory):
                stop("locked, and reachable:", found)
            pages |= {number for number in rng.sample(range(PAGES), 50) if peek(memory, start + number * PAGE)}
        faulted += len(pages)
        shared[0] = 1
        until("the writer's pause", lambda: shared[1])
        mount.unlock()
        for number in pages:
            block = mmap.mmap(-1, PAGE)
            os.preadv(direct, [block], number * PAGE)
            if peek(memory, start + number * PAGE) != block[:]:
                stop(f"unlocked, and page {number} of the mapping is not that of the file")
        shared[0] = 0
    for program in programs:
        os.kill(program, 9)
        wait(program, "a program")
    mapping.close()
    for open_file in (fd, direct, directory, memory):
        os.close(open_file)
    print(f"{faulted} pages of refused writes seen by a mapping, {incomplete} locks were not complete")
    if incomplete == options.rounds:
        stop("no lock was complete")
    mount.verify(with_reader=False)


main(kernel)
