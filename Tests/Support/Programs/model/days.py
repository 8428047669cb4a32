"""Days of use, in minutes: checkpoints of one open file, locks and unlocks, opens, and random operations
on one file. The daemon's memory, stacks, descriptors, threads, and the time of each use must stay the same.

days.py --binary VAULTFS --directory DIR [--checkpoints N] [--locks N] [--opens N] [--operations N --exercise PROGRAM]
        [--policy refuse|forget] [--seed N]

PROGRAM is file_exercise.c, compiled. 0 leaves a part out."""

import argparse
import collections
import json
import os
import signal
import subprocess
import time

from locking import SECRET, Locking, stop, until
from probe import fallocate

PARTS = 10
# The growth that is allowed between the end of the second tenth, when caches and the pools of allocators are full, and the
# last one. One leaked allocation of 48 bytes for each of 100,000 uses is 4.6 MiB.
MOST_MEMORY = 4096
# KiB of all stacks. A frame that stays for each use is 16 bytes at least: 1.5 MiB after 100,000 uses.
MOST_STACK = 256
# Requests in flight at the moment of the measurement use some.
MOST_DESCRIPTORS = 8
MOST_THREADS = 2
# The processor time that a use takes at the end, by what it takes in the second to fourth tenth. The time of a use that
# goes through what earlier ones have left grows with their number: twice or more. Other programs on the processor make 1.3.
MOST_TIME = 1.6
ZERO_RANGE = 16
# A small block cache, which is full before the first measurement that counts.
MOUNTING = ["--cache-size", "8M"]

Use = collections.namedtuple("Use", "memory stack descriptors threads processor wall")
TICKS = os.sysconf("SC_CLK_TCK")


def stack_pointers(pid):
    """Those of the threads that are blocked, which is when the kernel shows them."""
    pointers = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/syscall") as file:
                words = file.read().split()
        except (FileNotFoundError, ProcessLookupError):
            # A thread that only one lock needed has ended, before the open or before the read.
            continue
        if len(words) > 2:
            pointers.append(int(words[-2], 16))
    return pointers


def stacks(mount):
    """KiB of the daemon's stacks that are in memory: those of the mappings that its threads' stack pointers are in. 0
    unless run by root."""
    if os.geteuid() != 0:
        return 0
    pointers = until("all threads to wait", lambda: (
        found if len(found := stack_pointers(mount.daemon)) == mount.memory("Threads") else None))
    total, inside = 0, False
    with open(f"/proc/{mount.daemon}/smaps") as smaps:
        for line in smaps:
            word = line.split(maxsplit=1)[0]
            if not word.endswith(":"):
                start, end = (int(part, 16) for part in word.split("-"))
                inside = any(start <= pointer < end for pointer in pointers)
            elif inside and word == "Rss:":
                total += int(line.split()[1])
    return total


def processor(pid):
    """Seconds."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(mount):
    return Use(mount.memory(), stacks(mount), mount.descriptors(), mount.memory("Threads"), processor(mount.daemon),
               time.monotonic())


def judge(what, count, uses):
    """Prints the table and compares. `uses`: before the first tenth, and after each."""
    print(f"{what}: {count}\n   %   RSS KiB  stacks  descriptors  threads  processor µs  µs", flush=True)
    each, wall = [], []
    for number, (before, after) in enumerate(zip(uses, uses[1:]), 1):
        each.append((after.processor - before.processor) / count * PARTS * 1e6)
        wall.append((after.wall - before.wall) / count * PARTS * 1e6)
        print(f"{number * 100 // PARTS:4} {after.memory:9} {after.stack:7} {after.descriptors:12} {after.threads:8} "
              f"{each[-1]:13.1f} {wall[-1]:.1f}", flush=True)
    # The allocator and the threads reach their size in the first half.
    early, late = uses[PARTS // 2], uses[-1]
    time_before, time_after = sum(each[1:4]) / 3, sum(each[-3:]) / 3
    limits = [
        ("memory, KiB", early.memory + MOST_MEMORY, late.memory), ("stacks, KiB", early.stack + MOST_STACK, late.stack),
        ("descriptors", early.descriptors + MOST_DESCRIPTORS, late.descriptors),
        ("threads", early.threads + MOST_THREADS, late.threads),
        # A tick of the clock more or less must not count in a short run.
        ("processor time of one, µs", MOST_TIME * time_before + 2e6 / TICKS / count * PARTS, time_after)]
    if grown := [f"{name}: {found:.0f}, at most {most:.0f}" for name, most, found in limits if found > most]:
        stop(f"{what}: the daemon has grown: {'; '.join(grown)}")


def repeat(mount, what, count, action):
    """Does `action` `count` times, and measures after each tenth."""
    uses = [measure(mount)]
    for part in range(PARTS):
        for number in range(part * count // PARTS, (part + 1) * count // PARTS):
            try:
                action(number)
            except (OSError, ValueError) as error:
                stop(f"{what}: after {number}: {error}")
        uses.append(measure(mount))
    judge(what, count, uses)


class Asking:
    """Requests on one connection."""

    def __init__(self, mount):
        self.connection = mount.connect()
        self.lines = self.connection.makefile("rb")

    def ask(self, **request):
        self.connection.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self.lines.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer


def checkpoints(mount, count):
    """An overwrite and a ZERO_RANGE, which makes a checkpoint: the quickest way to one (1 ms). Every fiftieth is made by a
    sync request, which also seals (5 ms)."""
    fd, asking = os.open(mount.path("checkpoints"), os.O_CREAT | os.O_RDWR), Asking(mount)
    os.pwrite(fd, b"?" * 100_000, 0)

    def checkpoint(number):
        os.pwrite(fd, b"%08d" % number, 5000)
        if number % 50 == 0:
            asking.ask(request="sync")
        else:
            fallocate(fd, ZERO_RANGE, 20_000, 8192)

    repeat(mount, "checkpoints of an open file", count, checkpoint)
    expected = bytearray(b"?" * 100_000)
    expected[5000:5008], expected[20_000:28_192] = b"%08d" % (count - 1), bytes(8192)
    if os.pread(fd, 200_000, 0) != expected:
        stop("the file of the checkpoints has other bytes")
    os.close(fd)
    if (used := asking.ask(request="status")["statistics"]["log"]["used"]) != 0:
        stop(f"after the last checkpoint, {used} bytes are in the log")


def locks(mount, count):
    asking, before = Asking(mount), mount.ask("status")["lock"]["locks"]
    fields = {"secret": SECRET} if mount.policy == "forget" else {}
    fd = os.open(mount.path("locked"), os.O_CREAT | os.O_RDWR)

    def lock(number):
        os.pwrite(fd, b"%08d" % number, 0)
        if not asking.ask(request="lock")["receipt"]["complete"]:
            raise ValueError("a lock that is not complete")
        asking.ask(request="unlock", **fields)
        if os.pread(fd, 8, 0) != b"%08d" % number:
            raise ValueError("other bytes")

    repeat(mount, f"locks ({mount.policy})", count, lock)
    os.close(fd)
    if (made := mount.ask("status")["lock"]["locks"] - before) != count:
        stop(f"{count} locks were {made}")


def opens(mount, count):
    """Opens of 100 files. Every tenth is for writing, and writes nothing: the daemon keeps a written file open until it is
    sealed, and opens that one more quickly."""
    names = [mount.path(f"opened{number}") for number in range(100)]
    for name in names:
        with open(name, "wb") as file:
            file.write(b"x" * 5000)
    mount.unmount()
    mount.mount(*MOUNTING)
    before = mount.ask("status")["requests"]["served"]

    def open_one(number):
        os.close(os.open(names[number % 100], os.O_RDWR if number % 10 == 0 else os.O_RDONLY))

    repeat(mount, "opens", count, open_one)
    if (made := mount.ask("status")["requests"]["served"] - before) < count:
        stop(f"{count} opens were {made} requests")


def operations(mount, count, program, seed):
    """file_exercise.c, which compares by itself."""
    uses = [measure(mount)]
    with subprocess.Popen([program, mount.path("exercised"), str(count), str(seed)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE) as process:
        for _ in process.stdout:
            # At rest, as in the other parts.
            process.send_signal(signal.SIGSTOP)
            uses.append(measure(mount))
            process.send_signal(signal.SIGCONT)
    if process.returncode:
        stop(f"{program}: ended with {process.returncode}, seed {seed}")
    judge("operations on a file", count, uses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--directory", required=True)
    for part in "checkpoints", "locks", "opens", "operations":
        parser.add_argument(f"--{part}", type=int, default=0)
    parser.add_argument("--exercise")
    parser.add_argument("--policy", choices=("refuse", "forget"), default="refuse")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    mount = Locking(options.binary, options.directory, options.policy)
    mount.initialise()
    try:
        for part, *arguments in (
                (checkpoints, options.checkpoints), (locks, options.locks), (opens, options.opens),
                (operations, options.operations, options.exercise, options.seed)):
            if arguments[0]:
                mount.mount(*MOUNTING)
                part(mount, *arguments)
                if problems := mount.ask("status").get("problems"):
                    stop(f"status has the problems {problems}")
                mount.verify(with_reader=False)
    finally:
        mount.abandon()


main()
