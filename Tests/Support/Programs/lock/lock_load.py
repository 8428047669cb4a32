"""Locks and unlocks a mount again and again while programs use it in every way, and checks their results and the files
afterwards.

lock_load.py --binary VAULTFS --directory DIR [--policy refuse|forget] [--rounds N] [--seed N]"""

import contextlib
import errno
import mmap
import os
import random
import signal
import sqlite3
import time

from lock_records import Board, Reader, Writer
from locking import finish, fork, main, stop, until

TRIGGERS = ("file", "command", "signal")
FILES = len(Writer.WAYS)


def writer(mount, number, board, flags, seed):
    work = Writer(mount.path(f"file{number}"), number, board, Writer.WAYS[number], seed)
    flags[1 + number] = 1
    work.run(lambda: flags[0])
    print(f"{work.way}: {work.written} written, {work.refusals} refused, {work.short} short", flush=True)
    return int(work.written == 0)


def reader(mount, number, board, flags, seed):
    work = Reader([mount.path(f"file{n}") for n in range(FILES)], board, number == FILES, seed)
    flags[1 + number] = 1
    work.run(lambda: flags[0])
    print(f"reader: {work.read_records} read, {work.refusals} refused, {work.short} short", flush=True)
    return int(work.read_records == 0)


def churner(mount, number, flags, seed):
    """Makes, moves, lists and removes names. An acknowledged operation has happened, a refused one has not."""
    rng, there, done, refused, last = random.Random(seed), {}, 0, 0, None
    base = mount.path("churn")
    os.mkdir(base)
    flags[1 + number] = 1

    def name():
        return "%d" % rng.randrange(8) + "x" * rng.choice([0, 200])

    def shown(names):
        return sorted(f"{n[:4]}…" if len(n) > 4 else n for n in names)

    def step():
        nonlocal last
        old, new = name(), name()
        kind = rng.randrange(6)
        if kind < 4:
            last = kind, *shown([old, new])
        if kind == 0 and old not in there:
            os.mkdir(f"{base}/{old}")
            there[old] = "dir"
        elif kind == 1 and old not in there:
            os.close(os.open(f"{base}/{old}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            there[old] = "file"
        elif kind == 2 and old in there and new not in there:
            os.rename(f"{base}/{old}", f"{base}/{new}")
            there[new] = there.pop(old)
        elif kind == 3 and old in there:
            (os.rmdir if there[old] == "dir" else os.unlink)(f"{base}/{old}")
            del there[old]
        elif kind == 4 and (found := set(os.listdir(base))) != set(there):
            return f"names missing: {shown(set(there) - found)}, too many: {shown(found - set(there))}; {last}"
        elif kind == 5 and old in there:
            os.stat(f"{base}/{old}")
        return None

    while not flags[0]:
        try:
            wrong = step()
            if wrong:
                print(wrong)
                return 1
            done += 1
        except OSError as error:
            if error.errno != errno.ENOKEY:
                raise
            refused += 1
            time.sleep(0.0005)
    print(f"names: {done} done, {refused} refused", flush=True)
    return int(done == 0)


def database(mount, number, flags):
    """Commits until the end, and reopens a database that was refused. Everything committed must be there."""
    committed, failed = 0, 0
    flags[1 + number] = 1
    while not flags[0] or committed == 0:
        try:
            with contextlib.closing(sqlite3.connect(mount.path("data.sqlite"), timeout=0, isolation_level=None)) as connection:
                connection.execute("create table if not exists t (n integer)")
                while not flags[0] or committed == 0:
                    connection.execute("insert into t values (?)", (committed,))
                    committed += 1
        except sqlite3.DatabaseError as error:
            # If a lock refuses stat(2) for the journal, SQLite takes it for absent. If the vault is unlocked right then, it
            # reads pages of the unfinished transaction. The next one to open the database rolls it back.
            if not isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
                raise
            failed += 1
            time.sleep(0.001)
    connection = sqlite3.connect(mount.path("data.sqlite"))
    if connection.execute("pragma integrity_check").fetchone() != ("ok",):
        return 2
    found = connection.execute("select count(distinct n), count(*) from t").fetchone()
    print(f"database: {committed} committed, {found} there, {failed} times refused", flush=True)
    # A commit that was refused at its end may have happened.
    return 0 if found[0] == committed or found[0] == committed + 1 else 3


def lock_rounds(mount, rng, rounds, begin):
    """Returns the daemon's resource use after the first `begin` rounds and after all."""
    use = []
    for number in range(rounds):
        trigger = rng.choice(TRIGGERS)
        mount.lock_by(trigger)
        time.sleep(rng.choice([0, 0, 0.005]))
        if number in (begin, rounds - 1):
            use.append((mount.memory(), mount.descriptors(), mount.memory("Threads")))
        mount.unlock_from(trigger)
        time.sleep(rng.uniform(0, 0.03))
    return use


def load(mount, options):
    rng = random.Random(options.seed)
    mount.initialise()
    # A small block cache, so that it is full before the first measurement.
    mount.mount("--cache-size", "8M")
    board, flags = Board(FILES), memoryview(mmap.mmap(-1, 4096))
    kids = [fork(writer, mount, n, board, flags, options.seed + n) for n in range(FILES)]
    until("the writers' files", lambda: all(flags[1:1 + FILES]))
    kids += [fork(reader, mount, n, board, flags, options.seed + n) for n in (FILES, FILES + 1)]
    kids += [fork(churner, mount, FILES + 2, flags, options.seed), fork(database, mount, FILES + 3, flags)]
    until("all running", lambda: all(flags[1:1 + len(kids)]))
    first, last = lock_rounds(mount, rng, options.rounds, options.rounds // 4)
    flags[0] = 1
    finish(kids, "a process of the load")
    locks = mount.ask("status")["lock"]["locks"]
    print(f"{locks} locks; KiB, descriptors, threads: {first} then {last}")
    if locks != options.rounds:
        stop(f"{options.rounds} rounds were {locks} locks")
    # The numbers of descriptors and threads vary with the requests in flight, and memory with the log's entries, up to 16,384
    # of them twice during a checkpoint.
    if last[0] > first[0] + 16384 or last[1] > first[1] + 16 or last[2] > first[2] + 4:
        stop(f"the daemon has grown: {first} then {last}")
    mount.verify()


main(load)
