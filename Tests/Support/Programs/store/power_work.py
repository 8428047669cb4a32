"""The work of scripts/torture/power, and the check of what a power cut left of it.

power_work.py make  --work NAME,… BASE EVENTS
power_work.py run   --work NAME,… BASE EVENTS --seconds N --seed N --store DIR
power_work.py check --work NAME,… BASE EVENTS --cut NS [--plain]

`make` makes what the work begins with. `run` writes to EVENTS when each operation began and when it was acknowledged
(CLOCK_MONOTONIC, ns). `check` prints a JSON list of [part, failure, path]."""

import argparse
import ctypes
import errno
import json
import os
import random
import sqlite3
import threading
import time
import traceback

from power_model import CHUNK, FileModel
from power_postgres import Postgres

SYNC_FILE_RANGE_WRITE = 2


def content(seed, size):
    """`size` bytes of which no two parts are alike."""
    return random.Random(seed).randbytes(size)


class Worker:
    """One thread's work. `events` holds a list for each operation: begin, acknowledgement or None, and its arguments."""

    def __init__(self, base, name):
        self.name, self.path, self.events = name, f"{base}/{name}", []

    def perform(self, action, *arguments):
        event = [time.monotonic_ns(), None, *arguments]
        self.events.append(event)
        action()
        event[1] = time.monotonic_ns()

    def make(self):
        os.mkdir(self.path)

    def before(self, cut):
        """Operations that had begun at the cut, and how many of them were acknowledged."""
        begun = [event for event in self.events if event[0] < cut]
        return begun, sum(event[1] is not None and event[1] < cut for event in begun)


class Database(Worker):
    """SQLite: each transaction replaces three of 60 rows and a counter. Its number determines its contents."""

    ROWS = 60

    def __init__(self, base, mode, synchronous, page_size):
        super().__init__(base, f"sqlite-{mode}-{synchronous}-{page_size}".lower())
        self.mode, self.synchronous, self.page_size = mode, synchronous, page_size

    def open(self):
        database = sqlite3.connect(f"{self.path}/db", isolation_level=None, check_same_thread=False)
        database.execute(f"PRAGMA synchronous = {self.synchronous}")
        # Checkpoints often, so that cuts meet them.
        database.execute("PRAGMA wal_autocheckpoint = 100")
        return database

    def make(self):
        super().make()
        database = self.open()
        database.execute(f"PRAGMA page_size = {self.page_size}")
        database.execute(f"PRAGMA journal_mode = {self.mode}")
        database.execute("CREATE TABLE counter (n INTEGER)")
        database.execute("INSERT INTO counter VALUES (0)")
        database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, n INTEGER, bytes BLOB)")
        database.execute("CREATE INDEX by_n ON rows (n)")
        database.close()

    def rows(self, number):
        rng = random.Random(f"{self.name} {number}")
        return [(rng.randrange(self.ROWS), number, rng.randbytes(rng.choice([10, 300, 3000]))) for _ in range(3)]

    def run(self, rng, ended):
        database = self.open()
        number = 0
        while not ended():
            number += 1
            self.perform(lambda: self.commit(database, number), number)
            time.sleep(rng.random() * 0.01)

    def commit(self, database, number):
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", self.rows(number))
        database.execute("UPDATE counter SET n = ?", (number,))
        database.execute("COMMIT")

    def check(self, cut, plain, fail):
        begun, acknowledged = self.before(cut)
        try:
            database = self.open()
            sound = database.execute("PRAGMA integrity_check").fetchall()
            number, = database.execute("SELECT n FROM counter").fetchone()
            found = {row[0]: row for row in database.execute("SELECT * FROM rows")}
            database.close()
        except sqlite3.Error as error:
            fail(f"cannot be used: {error}")
            return
        if sound != [("ok",)]:
            fail(f"integrity check: {sound[0][0][:200]}")
        # In rollback mode the commit is the removal of the journal, which only EXTRA makes durable (sqlite.org/pragma.html).
        least = {"EXTRA": acknowledged, "NORMAL": 0,
                 "FULL": acknowledged if self.mode == "WAL" else acknowledged - 1}[self.synchronous]
        if not least <= number <= len(begun):
            fail(f"holds {number} commits of {acknowledged} acknowledged and {len(begun)} begun")
        if found != {row[0]: row for each in range(1, number + 1) for row in self.rows(each)}:
            fail(f"the rows are not those after commit {number}")


class Files(Worker):
    """Files that are created, appended, overwritten, truncated and removed, with and without fsync, some in new
    directories."""

    LIVE = 6

    def __init__(self, base, number):
        super().__init__(base, f"files{number}")

    def run(self, rng, ended):
        live, sizes, made = {}, {}, 0
        while not ended():
            if len(live) < self.LIVE:
                made += 1
                path = f"f{made}"
                if made % 4 == 0:
                    path = f"d{made}/{path}"
                    os.mkdir(f"{self.path}/d{made}")
                self.perform(lambda: live.update({path: os.open(f"{self.path}/{path}", os.O_CREAT | os.O_EXCL | os.O_RDWR)}),
                             "create", path)
                sizes[path] = 0
            path = rng.choice(list(live))
            size, kind = sizes[path], rng.randrange(40)
            if kind < 30:
                # Half overwrites, half appends.
                offset = rng.randrange(size) if size and kind < 15 else size
                length = rng.choice([1, 100, CHUNK, 5000, 20000])
                seed = f"{path} {len(self.events)}"
                self.perform(lambda: os.pwrite(live[path], content(seed, length), offset), "write", path, offset, length, seed)
                sizes[path] = max(size, offset + length)
            elif kind < 37:
                self.perform(lambda: rng.choice([os.fsync, os.fdatasync])(live[path]), "fsync", path)
            elif kind == 37 or size > 400_000:
                self.perform(lambda: os.unlink(f"{self.path}/{path}"), "unlink", path)
                os.close(live.pop(path))
            else:
                to = rng.randrange(size + 1)
                self.perform(lambda: os.ftruncate(live[path], to), "truncate", path, to)
                sizes[path] = to
            time.sleep(rng.random() * 0.004)

    def check(self, cut, plain, fail):
        begun, acknowledged = self.before(cut)
        models = {}
        for number, (_, _, kind, path, *arguments) in enumerate(begun):
            model = models.setdefault(path, FileModel())
            if kind == "write":
                offset, length, seed = arguments
                model.write(offset, content(seed, length))
            elif kind == "truncate":
                model.truncate(*arguments)
            elif kind == "fsync" and number < acknowledged:
                model.fsync()
            elif kind == "unlink":
                model.removed = True
        for path, model in models.items():
            try:
                file = os.open(f"{self.path}/{path}", os.O_RDONLY)
            except FileNotFoundError:
                if model.durable and not model.removed:
                    fail("a fsynced file is absent", path)
            except OSError as error:
                fail(f"a {'fsynced' if model.durable else 'new'} file does not open: {errno.errorcode[error.errno]}", path)
            else:
                for failure in model.differences(os.fstat(file).st_size, lambda number: read_chunk(file, number), plain):
                    fail(failure, path)
                os.close(file)


def read_chunk(file, number):
    try:
        return os.pread(file, CHUNK, number * CHUNK)
    except OSError:
        return None


class Names(Worker):
    """Write to a temporary file, fsync, rename over the old file, and sometimes fsync the directory."""

    COUNT = 4

    def content(self, name, version):
        size = random.Random(f"{name} {version}").choice([0, 100, 5000, 60000])
        return f"{name} {version}\n".encode() + content(f"{name} {version}", size)

    def replace(self, name, version):
        with open(f"{self.path}/{name}.tmp", "wb") as file:
            file.write(self.content(name, version))
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{self.path}/{name}.tmp", f"{self.path}/{name}")

    def sync(self):
        directory = os.open(self.path, os.O_DIRECTORY)
        os.fsync(directory)
        os.close(directory)

    def make(self):
        super().make()
        for number in range(self.COUNT):
            self.replace(f"n{number}", 0)

    def run(self, rng, ended):
        version = 0
        while not ended():
            name, version = f"n{rng.randrange(self.COUNT)}", version + 1
            self.perform(lambda: self.replace(name, version), "replace", name, version)
            if rng.randrange(3) == 0:
                self.perform(self.sync, "sync", None, None)
            time.sleep(rng.random() * 0.02)

    def check(self, cut, plain, fail):
        begun, acknowledged = self.before(cut)
        allowed = {f"n{number}": [0] for number in range(self.COUNT)}
        for number, (_, _, kind, name, version) in enumerate(begun):
            if kind == "replace":
                allowed[name].append(version)
            elif number < acknowledged:
                allowed = {each: versions[-1:] for each, versions in allowed.items()}
        for name, versions in allowed.items():
            try:
                with open(f"{self.path}/{name}", "rb") as file:
                    found = file.read()
            except OSError as error:
                fail(f"renamed file: {errno.errorcode[error.errno]}", name)
                continue
            if found not in (self.content(name, version) for version in versions):
                fail("a renamed file is neither the old one nor the new one", name)


def workers(base, work, outside):
    found = []
    if "sqlite" in work:
        for page_size in (1024, 4096):
            found += [Database(base, "DELETE", synchronous, page_size) for synchronous in ("EXTRA", "FULL", "NORMAL")]
            found += [Database(base, "WAL", synchronous, page_size) for synchronous in ("FULL", "NORMAL")]
    if "files" in work:
        found += [Files(base, 0), Files(base, 1), Names(base, "names")]
    if "postgres" in work:
        found.append(Postgres(base, outside))
    return found


def write_back(store, rng, ended):
    """Has the kernel write dirty pages of backing files back at random times, without a barrier, as it does by itself if
    memory is short or after half a minute."""
    libc = ctypes.CDLL(None, use_errno=True)
    while not ended():
        paths = [os.path.join(directory, name) for directory, _, names in os.walk(store) for name in names]
        for path in rng.sample(paths, min(len(paths), 8)):
            try:
                file = os.open(path, os.O_RDONLY)
            except OSError:
                continue
            libc.sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), SYNC_FILE_RANGE_WRITE)
            os.close(file)
            time.sleep(rng.random() * 0.02)


def run(found, given):
    end = time.monotonic() + given.seconds
    ended = lambda: time.monotonic() > end or bool(broken)
    broken = []

    def guarded(action, name):
        try:
            action(random.Random(f"{given.seed} {name}"), ended)
        except Exception:
            broken.append(f"{name}: {traceback.format_exc()}")

    threads = [threading.Thread(target=guarded, args=(worker.run, worker.name)) for worker in found]
    threads.append(threading.Thread(target=guarded, args=(lambda *rest: write_back(given.store, *rest), "write-back")))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise SystemExit("\n".join(broken))
    with open(given.events, "w", encoding="utf-8") as file:
        json.dump({worker.name: worker.events for worker in found}, file)


def check(found, given):
    failures = []
    with open(given.events, encoding="utf-8") as file:
        events = json.load(file)
    for worker in found:
        worker.events = events[worker.name]
        worker.check(given.cut, given.plain, lambda text, path="": failures.append([worker.name, text, path]))
    seen = {path for _, _, path in failures}
    # Whatever else there is: files whose removal was undone, temporary files.
    for directory, _, names in os.walk(given.base, onerror=lambda error: failures.append(
            ["tree", f"a directory: {errno.errorcode[error.errno]}", error.filename])):
        for name in names:
            try:
                with open(f"{directory}/{name}", "rb") as file:
                    while file.read(1 << 20):
                        pass
            except OSError as error:
                path = os.path.relpath(f"{directory}/{name}", given.base)
                if path.partition("/")[2] not in seen:
                    failures.append(["tree", f"a file: {errno.errorcode[error.errno]}", path])
    print(json.dumps(failures))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["make", "run", "check"])
    parser.add_argument("base")
    parser.add_argument("events")
    parser.add_argument("--work", required=True)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed")
    parser.add_argument("--store")
    parser.add_argument("--cut", type=int)
    parser.add_argument("--plain", action="store_true")
    given = parser.parse_args()
    found = workers(given.base, given.work.split(","), os.path.dirname(given.events))
    if given.action == "make":
        for worker in found:
            worker.make()
    elif given.action == "run":
        run(found, given)
    else:
        check(found, given)


if __name__ == "__main__":
    main()
