"""Random operations of threads on shared files, beside a model in memory that decides what each of them must return.

Threads work on ranges of one file at the same time. Beside them: lock and unlock, `vaultfs sync`, a full disk (the
directory must then be on a small file system that nobody else uses), and kill -9 of the daemon, after which everything
acknowledged must be there. Another program copies encrypted files to names of its own. A mapped write counts as acknowledged after msync or fsync, every other one when it returns: the
mount has no writeback cache. At the end: unmount, `vaultfs verify`, a new mount, and every file again.

model.py --binary VAULTFS --directory DIR [--seconds N] [--seed N] [--threads N] [--chunk-size S] [--log-size S]
         [--policy refuse|forget] [--events lock,sync,full,kill,copy]"""

import argparse
import contextlib
import errno
import faulthandler
import os
import random
import shutil
import signal
import sys
import threading
import time

from locking import Locking, ended, parse_random, until
from model_file import Closed, Difference, File
from model_operations import Operations

EVENTS = ("lock", "sync", "full", "kill", "copy")
# An operation that takes longer hangs. Seconds.
LONGEST_OPERATION = 120
MOST_ORPHANS = 4
NAMES = ["a", "b", "c", "d", "long" * 50, "other" * 45]
SIZES = {"K": 1 << 10, "M": 1 << 20}


class Slot:
    """A name. `lock` is held while an operation uses or changes it."""

    def __init__(self, name):
        self.name, self.file, self.lock = name, None, threading.Lock()


class Model:
    def __init__(self, mount, options):
        self.mount, self.options, self.rng = mount, options, random.Random(options.seed)
        self.chunk = int(options.chunk_size[:-1]) * SIZES[options.chunk_size[-1]]
        self.largest = max(3 << 20, 6 * self.chunk)
        self.slots, self.orphans, self.orphan_lock = [Slot(name) for name in NAMES], [], threading.Lock()
        self.ends, self.pauses, self.resumed = threading.Event(), threading.Event(), threading.Event()
        self.is_killing, self.locks, self.fills, self.full_end = False, "lock" in options.events, False, 0
        self.names_in_flight, self.workers = {}, []
        self.counts = dict.fromkeys(EVENTS, 0)

    # For the threads

    def path(self, name):
        return os.path.join(self.mount.mountpoint, name)

    def slot(self, rng):
        return rng.choice(self.slots)

    def choose(self, rng):
        """A file, sometimes one without a name."""
        while not self.ends.is_set() and not self.pauses.is_set():
            with self.orphan_lock:
                files = list(self.orphans) if rng.random() < 0.15 else []
            if files := files or [slot.file for slot in self.slots if slot.file is not None]:
                return rng.choice(files)
            time.sleep(0.001)
            next(worker for worker in self.workers if worker is threading.current_thread()).create()
        raise Closed

    def in_order(self, *slots):
        """Takes the locks of several names. All threads take them in the same order."""
        stack = contextlib.ExitStack()
        for slot in sorted(slots, key=lambda slot: slot.name):
            stack.enter_context(slot.lock)
        return stack

    def was_full(self, since):
        return self.fills or since <= self.full_end

    def orphan(self, file):
        with self.orphan_lock:
            self.orphans.append(file)

    def oldest_orphan(self):
        with self.orphan_lock:
            return self.orphans.pop(0) if len(self.orphans) > MOST_ORPHANS else None

    def files(self):
        return [slot.file for slot in self.slots if slot.file is not None] + self.orphans

    # The run

    def run(self):
        self.mount.mount()
        self.start()
        try:
            self.events()
        finally:
            self.ends.set()
            self.resumed.set()
            for worker in self.workers:
                worker.join(LONGEST_OPERATION)
        self.check_workers()
        self.at_the_end()

    def start(self):
        self.workers = [Operations(self, n, f"{self.options.seed} {n}") for n in range(self.options.threads)]
        for worker in self.workers:
            worker.start()

    def check_workers(self):
        for worker in self.workers:
            if worker.failure is not None:
                threading.current_thread().subject = worker.subject
                raise worker.failure
            if not worker.is_parked and time.monotonic() - worker.since > LONGEST_OPERATION:
                faulthandler.dump_traceback(all_threads=True)
                raise Difference(f"{worker.name}: {worker.doing} takes more than {LONGEST_OPERATION} s")

    def events(self):
        deadline = time.monotonic() + self.options.seconds
        while time.monotonic() < deadline and not self.ends.wait(self.rng.uniform(0.1, 0.8)):
            self.check_workers()
            if self.options.events:
                event = self.rng.choice(self.options.events)
                self.counts[event] += 1
                getattr(self, event)()
                self.check_status(event)

    def check_status(self, after):
        if problems := self.mount.ask("status").get("problems"):
            raise Difference(f"after {after}, status has the problems {problems}")

    def at_the_end(self):
        for file in self.files():
            self.workers[0].finish(file)
        self.check_status("the run")
        self.mount.verify(with_reader=self.options.reader)
        self.mount.mount()
        self.look(is_after_kill=False)
        self.check_status("the new mount")
        self.mount.unmount()

    # Events

    def lock(self):
        trigger = self.rng.choice(("file", "command", "signal"))
        self.mount.lock_by(trigger)
        self.ends.wait(self.rng.choice([0, 0.05, 0.3]))
        self.mount.unlock_from(trigger)

    def sync(self):
        self.mount.run(self.mount.binary, "sync", self.mount.mountpoint)

    def copy(self):
        """Copies an encrypted file, with its id, as a sync client does that keeps versions."""
        entries = [entry.path for entry in os.scandir(self.mount.vault)
                   if len(entry.name) >= 43 and "." not in entry.name and entry.is_file()]
        copy = os.path.join(self.mount.vault, self.rng.choice([".sync.tmp", ".stversions/1", ".stversions/2"]))
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        # The file may go meanwhile, and the disk may be full.
        with contextlib.suppress(OSError):
            shutil.copyfile(self.rng.choice(entries or [copy]), copy)

    def full(self):
        """Fills the store for a while. Pages that cannot be written back would be lost, so none are dirty then."""
        self.fills = True
        for file in self.files():
            with file.exclusive():
                if file.fds:
                    images = file.unsynced_now()
                    os.fsync(file.fds["plain"])
                    file.synced(images)
        filler = os.path.join(self.mount.directory, "filler")
        fd = os.open(filler, os.O_CREAT | os.O_WRONLY, 0o600)
        leave, end = self.rng.choice([0, 8192, 200_000, 1 << 20]), time.monotonic() + self.rng.uniform(0.2, 1.5)
        while not self.ends.wait(0.05) and time.monotonic() < end:
            self.fill(fd, leave)
        os.close(fd)
        os.unlink(filler)
        self.full_end, self.fills = time.monotonic(), False
        until("a sync after the disk was full", lambda: not self.try_sync())
        for file in self.files():
            with file.exclusive():
                # An fsync reports the failure of an earlier one, once for each descriptor.
                for fd in file.fds.values():
                    with contextlib.suppress(OSError):
                        os.fsync(fd)
        self.full_end = time.monotonic()

    @staticmethod
    def fill(fd, leave):
        """Takes the free space but `leave` bytes. Root also has what a file system keeps for it."""
        status = os.fstatvfs(fd)
        free = (status.f_bfree if os.geteuid() == 0 else status.f_bavail) * status.f_frsize - leave
        while free > 4096:
            try:
                os.posix_fallocate(fd, os.fstat(fd).st_size, free)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            free //= 2

    def try_sync(self):
        """The error of a sync, or None."""
        return self.mount.ask("sync").get("error")

    def kill(self):
        """Kills the daemon while the threads are running, sometimes in a lock. Mounts again and compares everything."""
        if self.locks and self.rng.random() < 0.2:
            self.mount.send("lock").close()
        self.is_killing = True
        os.kill(self.mount.daemon, signal.SIGKILL)
        self.pauses.set()
        until("the daemon's end", lambda: ended(self.mount.daemon))
        until("all threads to notice it", lambda: all(worker.is_parked for worker in self.workers))
        self.check_workers()
        for file in self.files():
            # A close writes mapped pages back.
            with contextlib.suppress(OSError):
                file.close()
        # Files without a name end with the mount.
        self.orphans.clear()
        self.mount.detach()
        self.mount.mount()
        self.settle_names()
        self.is_killing = False
        self.look(is_after_kill=True)
        for slot in self.slots:
            if slot.file is not None:
                self.workers[0].open_all(slot.file)
        self.resume()

    def resume(self):
        self.pauses.clear()
        self.resumed.set()
        until("all threads to go on", lambda: (
            self.ends.is_set() or not any(worker.is_parked for worker in self.workers)))
        self.resumed.clear()

    def settle_names(self):
        """Takes each operation on names that was in flight as done or not, as the names that are there show."""
        found = set(os.listdir(self.mount.mountpoint))
        for names in self.names_in_flight.values():
            if all((slot.name in found) == (file is not None) for slot, file in names.items()):
                for slot, file in names.items():
                    slot.file = file
                    if file is not None:
                        file.name = slot.name
        self.names_in_flight.clear()
        wanted = {slot.name for slot in self.slots if slot.file is not None}
        if found != wanted:
            raise Difference(f"after a kill the names are {sorted(found)}, not {sorted(wanted)}")

    def look(self, is_after_kill):
        """Compares every file that has a name with the model."""
        for slot in self.slots:
            if (file := slot.file) is None:
                continue
            file.note("compare", "after a kill" if is_after_kill else "")
            path = self.path(slot.name)
            found = self.read_found(file, path, is_after_kill)
            attributes = {name: os.getxattr(path, name) for name in os.listxattr(path) if name != "user.vaultfs.class"}
            if is_after_kill:
                file.settle(found)
                file.settle_attributes(attributes)
            elif found != file.content:
                raise Difference.between("after the new mount", 0, file.content, found)
            elif attributes != file.attributes:
                raise Difference(f"after the new mount the attributes are {attributes}, not {file.attributes}")

    def read_found(self, file, path, is_after_kill):
        """The content of a file. A kill may have left the last chunk of a file that was growing in parts: it is cut
        off, as the format allows."""
        with open(path, "r+b", buffering=0) as opened:
            size, parts, at = os.fstat(opened.fileno()).st_size, [], 0
            while at < size:
                try:
                    part = os.pread(opened.fileno(), self.chunk, at)
                except OSError as error:
                    is_tail = at >= len(file.content) and at + self.chunk >= size
                    if error.errno != errno.EIO or not is_after_kill or not is_tail:
                        raise Difference(f"{error}; the length is {size}", at) from None
                    opened.truncate(at)
                    break
                if len(part) != min(self.chunk, size - at):
                    raise Difference(f"{len(part)} bytes of {min(self.chunk, size - at)}", at)
                parts.append(part)
                at += len(part)
        return b"".join(parts)


def report(model, failure):
    """Prints what is needed to find the reason."""
    file = getattr(threading.current_thread(), "subject", None)
    print(f"FAILED: {type(failure).__name__}: {failure}", file=sys.stderr)
    if isinstance(failure, Difference) and failure.at is not None:
        print(f"at {failure.at}, chunk {failure.at // model.chunk}\nexpected {failure.expected.hex()}\n"
              f"found    {failure.found.hex()}", file=sys.stderr)
    if isinstance(file, File):
        print(f"file {file.name}, {len(file.content)} bytes; its last operations:", file=sys.stderr)
        print("\n".join(file.history), file=sys.stderr)
        for change in file.in_flight:
            print(f"in flight: {len(change.data)} bytes at {change.at}, length {change.length}", file=sys.stderr)
    options = model.options
    print(f"seed {options.seed}, chunk size {options.chunk_size}, log size {options.log_size}; the vault is kept: "
          f"{model.mount.directory}", file=sys.stderr)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=6)
    parser.add_argument("--log-size", default="64M")
    parser.add_argument("--reader", action="store_true", help="the independent reader, too, at the end")
    options = parse_random(parser, EVENTS, ("lock", "sync", "kill"))
    status = os.statvfs(options.directory)
    if "full" in options.events and status.f_blocks * status.f_frsize > 2 << 30:
        parser.error("the event full needs a --directory on a file system of its own, of at most 2 GiB")
    return options


def main():
    options = parse()
    print(f"seed {options.seed}", flush=True)
    mount = Locking(options.binary, options.directory, options.policy)
    mount.initialise("--chunk-size", options.chunk_size, "--log-size", options.log_size)
    model = Model(mount, options)
    try:
        model.run()
    except (Exception, SystemExit) as failure:
        if not isinstance(failure, (Difference, SystemExit)):
            import traceback
            traceback.print_exception(failure)
        report(model, failure)
        # Threads that hang would keep the program alive.
        mount.abandon()
        os._exit(1)
    counts = {}
    for worker in model.workers:
        for name, count in worker.counts.items():
            counts[name] = counts.get(name, 0) + count
    print(f"{sum(counts.values())} operations: {counts}; {model.counts}: everything as the model says")


main()
