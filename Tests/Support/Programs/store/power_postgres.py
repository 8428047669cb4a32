"""PostgreSQL's part of scripts/torture/power: pgbench, and a table with a row for each acknowledged commit."""

import glob
import os
import re
import shutil
import signal
import subprocess
import time

CLIENTS = 2
PORT = "54399"
# pgbench's own transaction, and one row that numbers it.
SCRIPT = """\\set aid random(1, 100000)
\\set bid 1
\\set tid random(1, 10)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
INSERT INTO commits SELECT :client_id, count(*) + 1 FROM commits WHERE client = :client_id;
END;
"""
SUMS = """SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
    (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)"""
COMMITS = "SELECT client, count(*), max(n) FROM commits GROUP BY client"
TIMEOUT = 120


def program(name):
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    if not found:
        raise SystemExit("PostgreSQL is not installed")
    return found[-1]


def as_postgres(*command):
    """The command as user postgres; it ends with us."""
    return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--pdeathsig", "KILL", *command]


def run(*command, check=True):
    return subprocess.run(as_postgres(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=check, timeout=TIMEOUT, cwd="/")


class Server:
    """A server that runs in the foreground, below us. Its socket is beside the data, in the directory of `directory`."""

    def __init__(self, data, sockets, settings=()):
        words = [word for setting in settings for word in ("-c", setting)]
        self.sockets = sockets
        self.log = open(f"{sockets}/log", "a+")
        self.process = subprocess.Popen(
            as_postgres(program("postgres"), "-D", data, "-k", sockets, "-p", PORT, "-c", "listen_addresses=", *words),
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd="/")
        end = time.monotonic() + TIMEOUT
        while run(program("pg_isready"), "-q", "-h", sockets, "-p", PORT, check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                self.log.seek(0)
                lines = [line for line in self.log if re.search("FATAL|PANIC", line)]
                raise OSError(f"the server does not start: {(lines or ['timeout'])[-1].strip()}")
            time.sleep(0.05)

    def stop(self, by=signal.SIGINT):
        """A fast shutdown; an immediate one by SIGQUIT."""
        if self.process.poll() is None:
            self.process.send_signal(by)
            try:
                self.process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def query(self, text):
        done = run(program("psql"), "-h", self.sockets, "-p", PORT, "-AtX", "-F", " ", "-v", "ON_ERROR_STOP=1", "-c", text,
                   "postgres")
        return [line.split() for line in done.stdout.splitlines()]

    def bench(self, *words):
        return run(program("pgbench"), "-h", self.sockets, "-p", PORT, *words, "postgres").stdout


class Postgres:
    name = "postgres"

    def __init__(self, base, outside):
        self.path, self.events = f"{base}/postgres", []
        # Sockets and pgbench's logs are not on the mount.
        self.outside = f"{outside}/postgres"

    def make(self):
        for path in (self.path, self.outside):
            os.mkdir(path, 0o700)
            shutil.chown(path, "postgres", "postgres")
        run(program("initdb"), "-D", self.path, "--wal-segsize=4", "--no-sync", "-A", "trust")
        server = Server(self.path, self.outside)
        server.bench("-i", "-q", "-s", "1")
        server.query("CREATE TABLE commits (client int, n int, PRIMARY KEY (client, n)); CREATE EXTENSION amcheck")
        server.stop()

    def run(self, rng, ended):
        with open(f"{self.outside}/script", "w") as file:
            file.write(SCRIPT)
        server = Server(self.path, self.outside, ["checkpoint_timeout=30s", "max_wal_size=16MB"])
        # pgbench's log has the real-time clock, in microseconds.
        shift = time.time_ns() - time.monotonic_ns()
        number = 0
        while not ended():
            number += 1
            server.bench("-n", "-f", f"{self.outside}/script", "-c", str(CLIENTS), "-T", "2", "-l",
                         "--log-prefix", f"{self.outside}/acknowledged{number}")
            for path in glob.glob(f"{self.outside}/acknowledged{number}.*"):
                with open(path) as file:
                    for line in file:
                        words = line.split()
                        self.events.append([int(words[0]), int(words[4]) * 10**9 + int(words[5]) * 1000 + 999 - shift])
            server.query("CHECKPOINT")
        server.stop(signal.SIGQUIT)

    def check(self, cut, plain, fail):
        try:
            server = Server(self.path, self.outside)
        except OSError as error:
            fail(str(error))
            return
        try:
            self._examine(server, cut, fail)
        except (subprocess.SubprocessError, ValueError) as error:
            fail(f"cannot be used: {(getattr(error, 'stdout', None) or str(error)).strip()[:300]}")
        finally:
            server.stop()

    def _examine(self, server, cut, fail):
        found = {int(client): (int(count), int(last)) for client, count, last in server.query(COMMITS)}
        for client in range(CLIENTS):
            acknowledged = sum(each == client and ack < cut for each, ack in self.events)
            count, last = found.get(client, (0, 0))
            if count < acknowledged or count != last:
                fail(f"holds {count} commits up to {last} of {acknowledged} acknowledged")
        sums = server.query(SUMS)[0]
        if len(set(sums)) != 1:
            fail(f"the sums of pgbench's tables differ: {sums}")
        done = run(program("pg_amcheck"), "-h", server.sockets, "-p", PORT, "--heapallindexed", "postgres", check=False)
        if done.returncode:
            fail(f"amcheck: {done.stdout.strip()[:300]}")
