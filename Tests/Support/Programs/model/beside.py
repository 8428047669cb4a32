"""The same random system calls on a vault and on a plain directory of the file system below it. The plain directory
decides what each call must return, and how the tree must be after it.

Beside them: lock and unlock, `vaultfs sync`, a new mount, and kill -9 of the daemon. As root, the calls are those of
root and of two other users. DIRECTORY/calls.log has all calls. A seed replays them, and --every 1 then compares after
each call.

beside.py --binary VAULTFS --directory DIR [--seconds N] [--seed N] [--chunk-size S] [--policy refuse|forget]
          [--events lock,sync,remount,kill] [--every CALLS]"""

import argparse
import collections
import contextlib
import faulthandler
import os
import random
import signal
import stat
import sys
import time

from beside_calls import UTIME_OMIT, Calls
from beside_known import DOCUMENTED, NOT_SUPPORTED
from beside_operations import Context, Operations
from beside_tree import Trees, brief
from locking import Locking, ended, fork, parse_random, until, wait

EVENTS = ("lock", "sync", "remount", "kill")
SIZES = {"K": 1 << 10, "M": 1 << 20}
# A call that takes longer hangs. Seconds.
LONGEST_CALL = 60
# Lines of the report of a failure.
LINES = 30
# Calls that the kernel serves without the file system, or that return nothing.
FREE_WHILE_LOCKED = {"close", "lseek", "fsync", "fdatasync", "flock", "lock_range", "remove_tree"}
# Other results of calls on a locked vault: the kernel refuses to map a file for more than it is open for, and it knows
# where the file ends that it copies.
REFUSALS = (("access", False), ("map", "EACCES"), ("copy", 0))
# Errors that the kernel finds in the arguments.
OF_ARGUMENTS = ("EBADF", "EINVAL", "ENAMETOOLONG", "EFAULT", NOT_SUPPORTED, "EPERM", "ERANGE", "E2BIG")


class Difference(Exception):
    pass


class Beside:
    def __init__(self, mount, options):
        self.mount, self.options, self.rng = mount, options, random.Random(options.seed)
        # Another source of random numbers, so that --every does not change the calls.
        self.pace = random.Random(options.seed)
        self.log = open(os.path.join(options.directory, "calls.log"), "w", buffering=1, errors="backslashreplace")
        self.counts, self.trees = collections.Counter(), Trees()

    def run(self):
        plain = os.path.join(self.options.directory, "plain")
        os.mkdir(plain)
        self.mount_again()
        for path in plain, self.mount.mountpoint:
            os.chmod(path, 0o777)
        self.plain, self.vault = Calls(plain), Calls(self.mount.mountpoint)
        self.plain.begin()
        self.vault.begin()
        chunk_size = self.options.chunk_size
        self.operations = Operations(self.rng, self.plain, int(chunk_size[:-1]) * SIZES[chunk_size[-1]])
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end:
            for _ in range(self.rng.randrange(10, 200)):
                self.step()
            if self.options.events:
                self.event(self.rng.choice(self.options.events))
        self.compare("the end")
        self.remount()
        self.compare("the new mount")
        self.plain.end()
        self.vault.end()
        self.mount.verify(with_reader=False)
        # Files may be unsealed: the search after a kill has had no time to seal all of them.
        self.mount.read()

    def mount_again(self):
        self.mount.mount(*(["-o", "allow_other,dev,suid"] if os.geteuid() == 0 else []))

    # Calls

    def step(self):
        context, name, arguments = self.operations.draw()
        self.write_line(f"{name} {self.operations.shown(arguments)} {context}")
        faulthandler.dump_traceback_later(LONGEST_CALL, exit=True)
        expected = self.plain.do(context, name, arguments)
        found = self.vault.do(context, name, arguments)
        self.write_line(f"    {brief(expected)}")
        self.counts[name if not isinstance(expected, str) else "refused"] += 1
        if expected != found and not self.is_documented(context, name, arguments, expected, found):
            raise Difference(f"{name} returns {brief(found)}, not {brief(expected)}")
        if name == "map" and arguments[3] is not None and not isinstance(expected, str):
            self.trees.unknown_times.add(os.fstat(self.plain.handles[arguments[0]]).st_ino)
        if self.pace.randrange(self.options.every) == 0:
            self.compare("the calls")

    def is_documented(self, *call):
        for difference in DOCUMENTED:
            if difference(self, *call):
                self.write_line(f"    documented: {difference.__name__}")
                self.counts[difference.__name__] += 1
                return True
        return False

    def write_line(self, line):
        self.log.write(line + "\n")

    def compare(self, after, **options):
        """Compares the whole of both trees."""
        faulthandler.dump_traceback_later(LONGEST_CALL, exit=True)
        found = list(self.trees.differences(self.plain.base, self.vault.base, **options))
        if found:
            raise Difference(f"after {after}, plain and vault:\n" + "\n".join(map(self.operations.shown, found[:6])))
        self.write_line("--- both trees are equal")
        self.counts["trees"] += 1

    # Events

    def event(self, name):
        self.counts[name] += 1
        self.write_line(f"=== {name}")
        faulthandler.dump_traceback_later(4 * LONGEST_CALL, exit=True)
        getattr(self, name)()
        self.compare(name, is_after_kill=name == "kill")

    def lock(self):
        trigger = self.rng.choice(("file", "command", "signal"))
        self.mount.lock_by(trigger)
        for _ in range(self.rng.randrange(12)):
            self.step_while_locked()
        self.mount.unlock_from(trigger)

    def step_while_locked(self):
        """A call of root, or of the owner, on the locked vault only."""
        _, name, arguments = self.operations.draw()
        # Neither does the kernel ask for the root directory, or for no bytes.
        if name in FREE_WHILE_LOCKED or any(a in ("", ".", 0) or isinstance(a, list) and not any(a) for a in arguments):
            return
        if name in ("utimens", "futimens") and set(arguments[1][1::2]) == {UTIME_OMIT}:
            # Nothing to do.
            return
        slots = self.operations.handles_of(name, arguments)
        if any(not stat.S_ISREG(os.fstat(self.plain.handles[slot]).st_mode) for slot in slots):
            return
        self.write_line(f"locked: {name} {self.operations.shown(arguments)}")
        found = self.vault.do(Context(None, [], 0o022, None), name, arguments)
        if found != "ENOKEY" and found not in OF_ARGUMENTS and (name, found) not in REFUSALS:
            raise Difference(f"while the vault is locked, {name} returns {brief(found)}, not ENOKEY")

    def sync(self):
        self.mount.run(self.mount.binary, "sync", self.mount.mountpoint)

    def remount(self):
        self.plain.end()
        self.vault.end()
        os.chdir(self.options.directory)
        self.mount.unmount()
        self.mount_again()
        self.plain.begin()
        self.vault.begin()

    def kill(self):
        """Everything acknowledged must be there. A mapped store is acknowledged after a sync."""
        for fd in self.vault.handles.values():
            with contextlib.suppress(OSError):
                os.fsync(fd)
        if self.rng.random() < 0.2:
            self.mount.send("lock").close()
        os.kill(self.mount.daemon, signal.SIGKILL)
        until("the daemon's end", lambda: ended(self.mount.daemon))
        os.chdir(self.options.directory)
        self.plain.end()
        self.vault.end()
        self.mount.detach()
        self.mount_again()
        self.plain.begin()
        self.vault.begin()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=15, help="calls between comparisons of the trees, about")
    return parse_random(parser, EVENTS, usual=EVENTS)


def work(mount, options):
    beside = Beside(mount, options)
    try:
        beside.run()
    except Difference as difference:
        print(f"FAILED: {difference}", file=sys.stderr, flush=True)
        return 1
    faulthandler.cancel_dump_traceback_later()
    print(f"{sum(beside.counts.values())} calls, comparisons and events, all equal: {dict(beside.counts)}")


def report(options):
    """Prints the calls since both trees were last equal."""
    with open(os.path.join(options.directory, "calls.log"), errors="replace") as file:
        lines = file.read().splitlines()
    equal = max((n for n, line in enumerate(lines) if line.startswith("---")), default=0)
    print("\n".join(lines[max(equal, len(lines) - LINES):]), file=sys.stderr)
    print(f"seed {options.seed}, chunk size {options.chunk_size}; kept: {options.directory}", file=sys.stderr)


def main():
    options = parse()
    print(f"seed {options.seed}", flush=True)
    mount = Locking(options.binary, options.directory, options.policy)
    mount.initialise("--chunk-size", options.chunk_size)
    # A child makes the calls. If it hangs in one, this process ends the daemon and reports.
    code = wait(fork(work, mount, options), "the calls", options.seconds + 10 * LONGEST_CALL)
    if code:
        with contextlib.suppress(SystemExit):
            mount.daemon = mount.find_daemon()
        mount.abandon()
        report(options)
        sys.exit(1)


main()
