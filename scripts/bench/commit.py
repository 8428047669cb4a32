"""Commits per second of SQLite and PostgreSQL, and random 4 KiB overwrites, on the plain directory, bindfs, gocryptfs, securefs and
vaultfs: interleaved, in many short rounds, because fsync's time on a disk that others use varies by the second. The rates
are medians over the rounds, the ratios medians of each round's ratio. scripts/bench/run calls this.

The goals: at least the best encrypted peer. Of commits also at least 0.6 of the plain directory, and of overwrites at least
1.4 times those of the vaultfs given with --before."""

import argparse
import concurrent.futures
import contextlib
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import time

import machine
import table
from goals import best_peer
from systems import BenchError, median, prepare, run, say, systems, vaultfs, workspace
from work import FOR_A_TIME, MEBIBYTE, Work

sys.path.append(f"{os.path.dirname(os.path.abspath(__file__))}/../../Tests/Support/Programs/store")
from power_postgres import Server, program, run as run_as_postgres  # noqa: E402

OF_PLAIN = 0.6
OF_BEFORE = 1.4
LOOP_BYTES = 8 << 30
ROWS = 10_000
# Branches of pgbench: more than clients, or these wait for one another's rows.
SCALE = 5
# bindfs encrypts nothing: its rate is what FUSE leaves of the plain directory's.
OTHERS = ("plain", "bindfs", "gocryptfs", "securefs")
# How PostgreSQL, which runs as a user of its own, may use a mount.
ALLOW_OTHER = {"gocryptfs": ["-allow_other"]}
TESTS = {
    "sqlite_wal": ("SQLite, WAL, FULL", "commits/s"),
    "sqlite_delete": ("SQLite, rollback, FULL", "commits/s"),
    "sqlite_wal_4": ("SQLite, WAL, 4 processes", "commits/s"),
    "sqlite_delete_4": ("SQLite, rollback, 4 processes", "commits/s"),
    "pgbench_1": ("pgbench -c 1", "commits/s"),
    "pgbench_4": ("pgbench -c 4", "commits/s"),
    "overwrite4k": ("random 4 KiB overwrite", "IOPS"),
}


class Commits(Work):
    """Its methods run one test on one system."""

    def __init__(self, directory, mebibytes, seconds, postgres_seconds):
        # Not the file and the tree of `Work`.
        self.directory, self.source = directory, f"{directory}/source"
        self.mebibytes, self.seconds, self.postgres_seconds = mebibytes, seconds, postgres_seconds
        with open(self.source, "wb") as file:
            for _ in range(mebibytes):
                file.write(os.urandom(MEBIBYTE))

    def sqlite(self, system, mode, processes=1):
        """Each process has a database of its own."""
        paths = [f"{system.mountpoint}/{mode}{number}.db" for number in range(processes)]
        for path in paths:
            if not os.path.exists(path):
                make_database(path, mode)
        subprocess.run(["sync", "--file-system", self.directory], check=True)
        with concurrent.futures.ProcessPoolExecutor(processes) as pool:
            return sum(pool.map(commits_per_second, paths, [mode] * processes, [self.seconds] * processes))

    def sqlite_wal(self, system):
        return self.sqlite(system, "WAL")

    def sqlite_delete(self, system):
        return self.sqlite(system, "DELETE")

    def sqlite_wal_4(self, system):
        return self.sqlite(system, "WAL", 4)

    def sqlite_delete_4(self, system):
        return self.sqlite(system, "DELETE", 4)

    def pgbench(self, system, clients):
        data, sockets = f"{system.mountpoint}/postgres", f"{self.directory}/{system.name}.postgres"
        new = not os.path.exists(data)
        if new:
            for path in (data, sockets):
                os.makedirs(path, 0o700, exist_ok=True)
                shutil.chown(path, "postgres", "postgres")
            run_as_postgres(program("initdb"), "-D", data, "--no-sync", "-A", "trust")
        server = Server(data, sockets, ["max_wal_size=128MB"])
        try:
            if new:
                server.bench("-i", "-q", "-s", str(SCALE))
            server.query("CHECKPOINT")
            said = server.bench("-n", "-c", str(clients), "-j", "2" if clients > 1 else "1", "-T", str(self.postgres_seconds))
        finally:
            server.stop()
        return float(re.search(r"tps = ([0-9.]+)", said)[1])

    def pgbench_1(self, system):
        return self.pgbench(system, 1)

    def pgbench_4(self, system):
        return self.pgbench(system, 4)

    def overwrite4k(self, system):
        self.need_file(system)
        return self.fio(system, "randwrite", "--overwrite=1", *FOR_A_TIME)


def opened(path, mode):
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"PRAGMA journal_mode = {mode}")
    database.execute("PRAGMA synchronous = FULL")
    return database


def make_database(path, mode):
    with contextlib.closing(opened(path, mode)) as database:
        database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, n INTEGER, bytes BLOB)")
        database.execute("BEGIN")
        database.executemany("INSERT INTO rows VALUES (?, 0, ?)", ((id, os.urandom(100)) for id in range(ROWS)))
        database.execute("COMMIT")


def commits_per_second(path, mode, seconds):
    """Changes a row in each commit. The body of a process."""
    with contextlib.closing(opened(path, mode)) as database:
        rng, commits, start = random.Random(os.path.basename(path)), 0, time.perf_counter()
        while (now := time.perf_counter()) < start + seconds:
            database.execute("BEGIN IMMEDIATE")
            database.execute("UPDATE rows SET n = n + 1, bytes = ? WHERE id = ?", (rng.randbytes(100), rng.randrange(ROWS)))
            database.execute("COMMIT")
            commits += 1
        return commits / (now - start)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", required=True, help="the directory of vaultfs")
    parser.add_argument("--before", metavar="BINARIES", help="that of another one, to compare")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2, help="of SQLite and fio")
    parser.add_argument("--postgres-seconds", type=int, default=4)
    parser.add_argument("--size", type=int, default=256, metavar="MIB", help="the file that is overwritten")
    parser.add_argument("--work", default=os.environ.get("TMPDIR", "/var/tmp"), help="a directory on a disk")
    parser.add_argument("--loop", action="store_true", help="on a new ext4 on a loop device, whose file is in --work; in "
                        "/dev/shm no other program delays it, and a flush takes no time")
    parser.add_argument("--tests", default=",".join(TESTS), help="some of: %(default)s")
    given = parser.parse_args()
    given.tests = given.tests.split(",")
    if unknown := set(given.tests) - set(TESTS):
        parser.error(f"no test {', '.join(unknown)}")
    if given.loop and os.getuid():
        parser.error("--loop needs root")
    if os.getuid():
        given.tests = [test for test in given.tests if not test.startswith("pgbench")]
    return given


def compared(given, directory):
    found = [system for system in systems(directory, directory)[0] if system.name in OTHERS]
    if given.before:
        found.append(vaultfs(directory, os.path.abspath(given.before), "before"))
    found.append(vaultfs(directory, given.binaries))
    if not os.getuid():
        for system in found:
            if system._mount:
                # The mountpoint is the last word.
                system._mount[-2:-2] = ALLOW_OTHER.get(system.name, ["-o", "allow_other"])
    return found


def measure(given, directory):
    work = Commits(directory, given.size, given.seconds, given.postgres_seconds)
    found = compared(given, directory)
    rates = {system.name: {test: [] for test in given.tests} for system in found}
    try:
        for system in found:
            system.make()
            system.mount()
            os.chmod(system.mountpoint, 0o711)
        for number in range(1, given.rounds + 1):
            for test in given.tests:
                for system in found if number % 2 else reversed(found):
                    try:
                        rate = getattr(work, test)(system)
                    except (BenchError, OSError, sqlite3.Error, subprocess.SubprocessError) as error:
                        rate = None
                        say(f"{system.name}, {test}: {getattr(error, 'stdout', None) or error}")
                    rates[system.name][test].append(rate)
                    say(f"round {number} of {given.rounds}  {test:14s} {system.name:10s} {table.rate(rate):>10s}")
        for system in found:
            system.unmount()
    finally:
        for system in found:
            system.abandon()
    return rates, {system.name: system.version for system in found if system.version}


def ratio(rates, test, name):
    """Ours to another's, round by round."""
    return median([ours / other for ours, other in zip(rates["vaultfs"][test], rates[name][test]) if ours and other])


def compared_rates(rates, tests):
    rows = [["test", "unit", *rates, "least…most", "/plain", "/bindfs", "/best peer", "goals"]]
    for test in tests:
        medians = {name: median(values[test]) for name, values in rates.items()}
        spread = [value for value in rates["vaultfs"][test] if value is not None]
        peer = best_peer(medians)
        goals = [(peer, 1), ("before", OF_BEFORE) if test == "overwrite4k" else ("plain", OF_PLAIN)]
        found = {name: ratio(rates, test, name) for name in medians if name != "vaultfs"}
        missed = [f"below {'' if factor == 1 else f'{factor} of '}{name}" for name, factor in goals
                  if found.get(name) is not None and found[name] < factor]
        rows.append([*TESTS[test], *map(table.rate, medians.values()),
                     f"{table.rate(min(spread))}…{table.rate(max(spread))}" if spread else "–",
                     share(found.get("plain")), share(found.get("bindfs")), share(found.get(peer)),
                     ", ".join(missed) or ("reached" if spread else "–")])
    return "\n".join(table.aligned(rows))


def share(value):
    return "–" if value is None else f"{value:.2f}"


def mount_loop(directory):
    """Mounts a new ext4 in the directory, which then holds nothing else. The mount namespace is ours, so the device is
    detached at our end at the latest."""
    image = f"{directory}/image"
    with open(image, "wb") as file:
        file.truncate(LOOP_BYTES)
    run("mkfs.ext4", "-q", "-F", image)
    run("mount", "-o", "loop,nodiscard", image, directory)
    os.chmod(directory, 0o711)


def main():
    given = arguments()
    with workspace(given.work) as directory:
        os.chmod(directory, 0o711)
        try:
            if given.loop:
                mount_loop(directory)
            prepare(directory)
            about = machine.description(directory)
            store = machine.filesystem(given.work)
            disk = run("findmnt", "-no", "SOURCE", "-T", directory).strip()
            rates, versions = measure(given, directory)
        finally:
            if given.loop:
                run("umount", "--lazy", directory, check=False)
    print(compared_rates(rates, given.tests))
    loop = f" (a file on {store})" if given.loop else ""
    print(f"\n{about['cpu']}, {about['cores']} cores, load {about['load']}; {about['system']}, kernel {about['kernel']}; stores "
          f"on {about['filesystem']} on {disk}{loop}; {about['date']}.")
    print(f"{', '.join(f'{name} {version}' for name, version in versions.items())}; medians of {given.rounds} interleaved rounds.")


if __name__ == "__main__":
    main()
