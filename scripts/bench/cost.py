"""Counts the system calls (strace) and the allocations of memory that the daemon makes for each unit of work, compares
them with budgets, and prints the processor time. Counts need no quiet machine. scripts/bench/run builds and calls this.
Exit code 1: over a budget."""

import argparse
import collections
import json
import mmap
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

from systems import BenchError, PATIENCE, prepare, run, vaultfs, wait_for, workspace

MEBIBYTE = 1 << 20
CHUNK = 4096
OPERATIONS = 500
FILE_MEBIBYTES = 128
DIRECTORIES, FILES_IN_EACH = 12, 25
# Calls by which threads and timers wait, and memory and threads are managed. Their number depends on the scheduler.
NOT_WORK = {"futex", "poll", "ppoll", "epoll_wait", "nanosleep", "clock_nanosleep", "sched_yield", "restart_syscall",
            "rt_sigreturn", "mmap", "munmap", "mprotect", "madvise", "mlock", "munlock", "brk",
            "gettid"}
# A short reply is one write (linux_fuse_reply). The daemon writes little else that way.
REPLIES = ("write", "writev", "splice")
# The beginning of a call: the thread, then the name. `strace -c` would leave out calls that it does not know.
LINE = re.compile(r"(?:\d+ +)?(\w+)\(", re.ASCII)
NAMES = {"syscall_0x1d1": "listxattrat"}


class Tracer:
    """strace attached to those threads of a daemon that work for requests."""

    def __init__(self, system):
        self.output = f"{system.store}.calls"
        threads = [thread for pid in system.daemons for thread in working_threads(pid)]
        self.tracer = subprocess.Popen(
            ["strace", "-s", "0", "-o", self.output, *(f"--attach={thread}" for thread in threads)],
            stderr=subprocess.DEVNULL)
        wait_for(lambda: all(map(traced, threads)), "strace")

    def stop(self):
        """Returns how often each system call was made."""
        # Not SIGINT, which a shell makes its background commands ignore.
        self.tracer.terminate()
        self.tracer.wait(PATIENCE)
        with open(self.output) as file:
            found = filter(None, map(LINE.match, file))
            return collections.Counter(NAMES.get(line[1], line[1]) for line in found)


# Counts allocations in a file that is shared with this script. glibc's own names, because vaultfs replaces free(3).
ALLOCATIONS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_memalign(size_t, size_t);
static atomic_ulong own, *count = &own;
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("BENCH_ALLOCATIONS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) count = page;
}
void *malloc(size_t size) { return atomic_fetch_add(count, 1), __libc_malloc(size); }
void *calloc(size_t number, size_t size) { return atomic_fetch_add(count, 1), __libc_calloc(number, size); }
void *aligned_alloc(size_t unit, size_t size) { return atomic_fetch_add(count, 1), __libc_memalign(unit, size); }
int posix_memalign(void **memory, size_t unit, size_t size) {
    *memory = aligned_alloc(unit, size);
    return *memory ? 0 : ENOMEM;
}
"""


class AllocationCounter:
    """Counts the allocations of the daemons that are started while it is there. A realloc(3) does not count."""

    def __init__(self, directory):
        library, self.path = f"{directory}/allocations.so", f"{directory}/allocations"
        compiler = shutil.which("cc") or shutil.which("clang")
        if not compiler:
            raise BenchError("no C compiler (Debian: apt install gcc)")
        run(compiler, "-O1", "-fno-builtin", "-shared", "-fPIC", "-x", "c", "-", "-o", library, input=ALLOCATIONS)
        with open(self.path, "wb") as file:
            file.truncate(mmap.PAGESIZE)
        with open(self.path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        os.environ["LD_PRELOAD"], os.environ["BENCH_ALLOCATIONS"] = library, self.path

    @property
    def count(self):
        return struct.unpack_from("Q", self.page)[0]

    def stop(self):
        del os.environ["LD_PRELOAD"], os.environ["BENCH_ALLOCATIONS"]


def processor_time(pids):
    """Nanoseconds that the threads of processes have run (schedstat, Documentation/scheduler/sched-stats.rst)."""
    total = 0
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            total += int((contents(f"/proc/{pid}/task/{thread}/schedstat") or "0").split()[0])
    return total


def contents(path):
    """A file of /proc. Empty if its thread has ended."""
    try:
        with open(path) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def working_threads(pid):
    """All but those that wait in poll(2), which serve other programs: the lock files' watch has work whenever anything
    is mounted anywhere."""
    return [thread for thread in os.listdir(f"/proc/{pid}/task")
            if "poll" not in contents(f"/proc/{pid}/task/{thread}/wchan")]


def is_idle(pid):
    """True if all threads sleep (proc_pid_stat(5)). A lock files' watch that has just been set, and waits for a busy core,
    does not serve requests yet, which then look twice."""
    def sleeps(thread):
        stat = contents(f"/proc/{pid}/task/{thread}/stat")
        return not stat or stat.rpartition(")")[2].split()[0] == "S"
    return all(map(sleeps, os.listdir(f"/proc/{pid}/task")))


def traced(thread):
    """True if a thread has a tracer (proc_pid_status(5))."""
    return "TracerPid:\t0\n" not in contents(f"/proc/{thread}/status")


def offsets():
    blocks = list(range(FILE_MEBIBYTES * MEBIBYTE // CHUNK))
    random.Random(1).shuffle(blocks)
    return [block * CHUNK for block in blocks[:OPERATIONS]]


def random_read(mount):
    """Each read is a request, because the kernel keeps no pages of it."""
    fd = os.open(f"{mount}/big", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for offset in offsets():
        os.pread(fd, CHUNK, offset)
    os.close(fd)
    return OPERATIONS


def random_write(mount):
    fd = os.open(f"{mount}/big", os.O_WRONLY)
    page = os.urandom(CHUNK)
    for offset in offsets():
        os.pwrite(fd, page, offset)
    os.close(fd)
    return OPERATIONS


def sequential_write(mount):
    mebibyte = os.urandom(MEBIBYTE)
    with open(f"{mount}/long", "wb", buffering=0) as file:
        for _ in range(FILE_MEBIBYTES):
            file.write(mebibyte)
    return FILE_MEBIBYTES


def untar(mount):
    run("tar", "-xf", f"{os.path.dirname(mount)}/small.tar", "-C", mount)
    return DIRECTORIES * FILES_IN_EACH


def list_tree(mount):
    run("ls", "-lR", f"{mount}/small")
    return DIRECTORIES * (FILES_IN_EACH + 1)


def read_tree(mount):
    run("bash", "-c", 'tar -cf - -C "$1" small | cat >/dev/null', "-", mount)
    return DIRECTORIES * FILES_IN_EACH


def remove_tree(mount):
    run("rm", "-rf", f"{mount}/small")
    return DIRECTORIES * FILES_IN_EACH


def make_directories(mount):
    for number in range(OPERATIONS):
        os.mkdir(f"{mount}/directory{number}")
    return OPERATIONS


def remove_directories(mount):
    for number in range(OPERATIONS):
        os.rmdir(f"{mount}/directory{number}")
    return OPERATIONS


# The work, in the order in which it runs: (function, what a unit is, budgets of calls and of allocations). A request costs
# three calls: read, the check of the lock file, and the reply by one of REPLIES.
WORK = [
    (random_read, "random 4 KiB read", 4.2, 2.5),
    (random_write, "random 4 KiB write", 4.2, 3),
    (sequential_write, "1 MiB sequential write", 14, 17),
    (untar, "file of untar", 57, 105),
    (list_tree, "entry of ls -lR", 8.0, 14),
    (read_tree, "file of a tree that is read", 22, 78),
    (remove_tree, "file of rm -rf", 16, 24),
    (make_directories, "mkdir", 28, 66),
    (remove_directories, "rmdir", 40, 84),
]
# For what belongs to no unit, such as requests for the mount's root, and files that are sealed meanwhile.
TOLERANCE = 1.1


def make_archive(directory):
    source = f"{directory}/small"
    numbers = random.Random(1)
    for parent in range(DIRECTORIES):
        os.makedirs(f"{source}/directory{parent}")
        for index in range(FILES_IN_EACH):
            with open(f"{source}/directory{parent}/file{index}.c", "wb") as file:
                file.write(numbers.randbytes(min(MEBIBYTE, int(numbers.lognormvariate(8, 1.5)))))
    run("tar", "-cf", f"{directory}/small.tar", "-C", directory, "small")


def begin(system):
    """Mounts anew, and returns when the daemon is idle."""
    system.remount()
    os.stat(system.mountpoint)
    wait_for(lambda: all(map(is_idle, system.daemons)), "the daemon to be idle", 60)


def count_calls(system, function):
    """Calls for a unit: (all that count, requests, {name: calls})."""
    begin(system)
    tracer = Tracer(system)
    try:
        units = function(system.mountpoint)
    finally:
        calls = tracer.stop()
    worked = {name: number / units for name, number in calls.most_common() if name not in NOT_WORK}
    return sum(worked.values()), sum(worked.get(name, 0) for name in REPLIES), worked


def measure(system, function, allocations):
    """For a unit: allocations, and microseconds of the daemon's and of the program's processor time."""
    begin(system)
    daemons = system.daemons
    before, start, own = allocations.count, processor_time(daemons), sum(os.times()[:4])
    units = function(system.mountpoint)
    # Until what was written is in place.
    run("sync", "-f", system.mountpoint)
    spent = processor_time(daemons) - start
    return (allocations.count - before) / units, spent / units / 1000, (sum(os.times()[:4]) - own) / units * 1e6


def text(found):
    names = ", ".join(f"{name} {number:.1f}" for name, number in found["names"].items() if number >= 0.05)
    return (f"{found['unit']:28s} {found['requests']:8.1f} {found['calls']:8.1f} {found['callBudget']:8.1f} "
            f"{found['allocations']:11.1f} {found['allocationBudget']:8.1f} {found['microseconds']:9.1f} "
            f"{found['programMicroseconds']:8.1f}  {'over it' if found['isOver'] else 'ok':8s} {names}")


def wake_up():
    """Microseconds of a wake-up: a byte goes to and fro between two processes on two cores, if there are two."""
    (here, there), rounds = (os.pipe(), os.pipe()), 20_000
    cores = sorted(os.sched_getaffinity(0))
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {cores[-1]})
        for _ in range(rounds):
            os.write(there[1], os.read(here[0], 1))
        os._exit(0)
    os.sched_setaffinity(0, {cores[0]})
    start = time.perf_counter()
    for _ in range(rounds):
        os.write(here[1], b"x")
        os.read(there[0], 1)
    spent = time.perf_counter() - start
    os.waitpid(child, 0)
    os.sched_setaffinity(0, cores)
    for fd in (*here, *there):
        os.close(fd)
    return spent / rounds / 2 * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", required=True, help="the directory of vaultfs")
    parser.add_argument("--work", default="/dev/shm", help="where the vault is made")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    # strace would inherit the mask, and not end.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    found = []
    with workspace(given.work) as directory:
        prepare(directory)
        system = vaultfs(directory, given.binaries)
        make_archive(directory)
        system.make()
        system.mount()
        try:
            with open(f"{system.mountpoint}/big", "wb") as file:
                file.write(os.urandom(FILE_MEBIBYTES * MEBIBYTE))
            calls = [count_calls(system, function) for function, *_ in WORK]
            counter = AllocationCounter(directory)
            measured = [measure(system, function, counter) for function, *_ in WORK]
            counter.stop()
            if not given.json:
                print(f"a wake-up takes {wake_up():.1f} us; microseconds are of processor time, the daemon's and the program's")
                print(f"{'for each':28s} requests    calls   budget allocations   budget    daemon  program")
            for (_, unit, most, most_allocations), counted, (allocations, daemon, program) in zip(WORK, calls, measured):
                number, requests, names = counted
                isOver = number > most * TOLERANCE or allocations > most_allocations * TOLERANCE
                found.append({"unit": unit, "requests": requests, "calls": number, "callBudget": most,
                              "allocations": allocations, "allocationBudget": most_allocations, "microseconds": daemon,
                              "programMicroseconds": program, "isOver": isOver, "names": names})
                if not given.json:
                    print(text(found[-1]), flush=True)
            system.unmount()
        finally:
            system.abandon()
    if given.json:
        print(json.dumps(found, indent=1))
    sys.exit(any(line["isOver"] for line in found))


if __name__ == "__main__":
    main()
