"""Kills the daemon while it is locking, locked or unlocking, with running writers, and checks that acknowledged data
exists.

lock_crash.py --binary VAULTFS --directory DIR [--policy refuse|forget] [--rounds N] [--seed N]"""

import errno
import os
import random
import signal
import time

from lock_records import RECORD, Board, Writer, content
from locking import GONE, SECRET, ended, finish, fork, main, mounted, stop, until

WAYS = ("pwrite", "append", "truncate")
MOMENTS = ("locking", "locked", "unlocking")


def writer(mount, number, board, seed):
    """Works until the daemon is dead."""
    try:
        Writer(mount.path(f"file{number}"), number, board, WAYS[number], seed).run(lambda: False)
    except OSError as error:
        if error.errno not in GONE:
            raise


def names(mount, log, seed):
    """Makes and moves directories, and logs the results: `+` before each, `.` after it."""
    rng, base = random.Random(seed), mount.path("names")
    with open(log, "w", buffering=1) as lines:
        for count in range(1 << 30):
            name = f"{seed}-{count}" + "x" * rng.choice([0, 200])
            try:
                lines.write(f"+{name}\n")
                os.mkdir(f"{base}/{name}")
                os.rename(f"{base}/{name}", f"{base}/{name[:50]}.moved")
                lines.write(f".{name[:50]}.moved\n")
            except OSError as error:
                if error.errno in GONE:
                    return
                if error.errno != errno.ENOKEY:
                    raise
                time.sleep(0.0005)


def kill(mount, rng, moment):
    """Locks, unlocks, and kills the daemon at a random moment of the chosen phase."""
    for _ in range(rng.randrange(3)):
        mount.lock()
        mount.unlock()
    if moment != "locking":
        mount.lock()
    request = None
    if moment == "locking":
        if rng.random() < 0.5:
            request = mount.send("lock")
        else:
            os.kill(mount.daemon, signal.SIGUSR1)
    elif moment == "unlocking":
        request = mount.send("unlock", **({"secret": SECRET} if mount.policy == "forget" else {}))
    time.sleep(rng.choice([0, rng.uniform(0, 0.003), rng.uniform(0, 0.03)]))
    os.kill(mount.daemon, signal.SIGKILL)
    until("the daemon's end", lambda: ended(mount.daemon))
    if request:
        mount.receive(request)


def check_file(mount, number, words):
    """Expects the acknowledged records. The one in flight may be old, new, a mixture, or missing."""
    in_flight, count = words[0] % 2 == 1, words[1]
    path = mount.path(f"file{number}")
    # An open for writing cuts off a torn tail.
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    # The record that was being cut off may exist or not. No record before it is changed.
    surely = min(count, words[2]) if in_flight and WAYS[number] != "pwrite" else count
    for record in range(surely):
        if in_flight and WAYS[number] == "pwrite" and record == words[2]:
            continue
        found = os.pread(fd, RECORD, record * RECORD)
        if found != content(number, record, words[3 + record]):
            stop(f"{WAYS[number]}: record {record} of {count} is not what was acknowledged; in flight: {in_flight}, "
                 f"record {words[2]}, {len(found)} bytes at {record * RECORD} of {size}")
    if not in_flight and size != count * RECORD:
        stop(f"{WAYS[number]}: {size} bytes, acknowledged {count * RECORD}")
    os.ftruncate(fd, 0)
    os.close(fd)
    for index in range(len(words)):
        words[index] = 0
    return in_flight


def check_names(mount, log):
    there = set(os.listdir(mount.path("names")))
    with open(log) as lines:
        told = lines.read().split("\n")
    missing = {line[1:] for line in told if line.startswith(".")} - there
    if missing:
        stop(f"directories that were acknowledged are not there: {sorted(missing)[:5]}")
    for name in there:
        os.rmdir(mount.path("names", name))


def crash(mount, options):
    rng, board = random.Random(options.seed), Board(len(WAYS))
    mount.initialise()
    mount.mount()
    os.mkdir(mount.path("names"))
    # On a busy machine a writer may be killed before it has made its file.
    for number in range(len(WAYS)):
        open(mount.path(f"file{number}"), "x").close()
    log, flying = os.path.join(mount.directory, "names.log"), 0
    for number in range(options.rounds):
        moment, seed = rng.choice(MOMENTS), rng.randrange(1 << 30)
        kids = [fork(writer, mount, n, board, seed + n) for n in range(len(WAYS))]
        kids.append(fork(names, mount, log, seed))
        time.sleep(rng.uniform(0.02, 0.1))
        kill(mount, rng, moment)
        finish(kids, "a writer")
        if mounted(mount):
            mount.detach()
        mount.mount()
        flying += sum(check_file(mount, n, board.file(n)) for n in range(len(WAYS)))
        check_names(mount, log)
        if number % 10 == 9 or number == options.rounds - 1:
            mount.verify()
            mount.mount()
    mount.unmount()
    print(f"{options.rounds} kills, {flying} writes in flight")


main(crash)
