"""Counts the system calls that the daemon makes for each unit of work (strace), and compares them with a budget. A
count needs no quiet machine. scripts/bench/run builds and calls this. Exit code 1: over the budget."""

import argparse
import collections
import json
import os
import random
import re
import signal
import subprocess
import sys

from systems import PATIENCE, prepare, run, vaultfs, wait_for, workspace

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


def working_threads(pid):
    """All but those that wait in poll(2), which serve other programs: the lock files' watch has work whenever anything
    is mounted anywhere."""
    def place(thread):
        with open(f"/proc/{pid}/task/{thread}/wchan") as file:
            return file.read()
    return [thread for thread in os.listdir(f"/proc/{pid}/task") if "poll" not in place(thread)]


def is_idle(pid):
    """True if all threads sleep (proc_pid_stat(5)). A lock files' watch that has just been set, and waits for a busy core,
    does not serve requests yet, which then look twice."""
    def state(thread):
        with open(f"/proc/{pid}/task/{thread}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    return all(state(thread) == "S" for thread in os.listdir(f"/proc/{pid}/task"))


def traced(thread):
    """True if a thread has a tracer (proc_pid_status(5))."""
    with open(f"/proc/{thread}/status") as status:
        return "TracerPid:\t0\n" not in status.read()


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


# The work, in the order in which it runs: (function, what a unit is, budget of calls). A request costs three calls: read,
# the check of the lock file, and the reply by one of REPLIES.
WORK = [
    (random_read, "random 4 KiB read", 4),
    (random_write, "random 4 KiB write", 4),
    (sequential_write, "1 MiB sequential write", 14),
    (untar, "file of untar", 57),
    (list_tree, "entry of ls -lR", 8.0),
    (read_tree, "file of a tree that is read", 21.5),
    (remove_tree, "file of rm -rf", 15.5),
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


def count(system, function):
    """Calls for a unit: (all that count, requests, {name: calls})."""
    system.remount()
    os.stat(system.mountpoint)
    wait_for(lambda: all(map(is_idle, system.daemons)), "the daemon to be idle", 60)
    tracer = Tracer(system)
    try:
        units = function(system.mountpoint)
    finally:
        calls = tracer.stop()
    worked = {name: number / units for name, number in calls.most_common() if name not in NOT_WORK}
    return sum(worked.values()), sum(worked.get(name, 0) for name in REPLIES), worked


def text(found):
    names = ", ".join(f"{name} {number:.1f}" for name, number in found["names"].items() if number >= 0.05)
    verdict = "over it" if found["isOver"] else "ok"
    return (f"{found['unit']:28s} {found['requests']:8.1f} {found['calls']:8.1f} {found['budget']:8.1f}  {verdict:8s} "
            f"{names}")


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
            if not given.json:
                print(f"{'for each':28s} requests    calls   budget")
            for function, unit, budget in WORK:
                calls, requests, names = count(system, function)
                found.append({"unit": unit, "requests": requests, "calls": calls, "budget": budget,
                              "isOver": calls > budget * TOLERANCE, "names": names})
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
