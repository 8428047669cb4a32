"""A store that fails under a mount, and comes back. During the outage writes and fsyncs fail and status names the problem. After
it the mount works on by itself, and nothing acknowledged is missing. If the outage lasts until the unmount, the next mount has
everything. A preloaded library (outage.c) makes the daemon's calls fail.

outage.py --binary VAULTFS --directory DIR"""

import argparse
import json
import os
import random
import subprocess
import sys

from locking import until
from mounting import Mount

CHUNK = 4096
NOT_DURABLE = 15


class File:
    """A file on the mount, and the versions that each of its chunks may have."""

    def __init__(self, mount, name, size, rng):
        self.path, self.rng = os.path.join(mount.mountpoint, name), rng
        self.versions = [[rng.randbytes(CHUNK)] for _ in range(size)]
        with open(self.path, "wb") as file:
            file.write(b"".join(v[0] for v in self.versions))
            file.flush()
            os.fsync(file.fileno())
        self.open()

    def open(self):
        self.fd = os.open(self.path, os.O_RDWR)

    def close(self):
        # close(2) reports what fsync(2) has reported already.
        try:
            os.close(self.fd)
        except OSError:
            pass

    def write(self, chunk):
        """Overwrites a chunk, or appends one. Returns true if it was acknowledged."""
        data = self.rng.randbytes(CHUNK)
        try:
            os.pwrite(self.fd, data, chunk * CHUNK)
        except OSError:
            if chunk < len(self.versions):
                self.versions[chunk].append(data)
            return False
        if chunk == len(self.versions):
            self.versions.append([])
        self.versions[chunk] = [data]
        return True

    def sync(self):
        try:
            os.fsync(self.fd)
        except OSError:
            return False
        return True

    def check(self, when):
        for chunk, versions in enumerate(self.versions):
            try:
                found = os.pread(self.fd, CHUNK, chunk * CHUNK)
            except OSError as error:
                sys.exit(f"LOST: {self.path} {when}: chunk {chunk}: {error}")
            if found not in versions:
                sys.exit(f"LOST: {self.path} {when}: chunk {chunk} has other bytes")


class Outage:
    def __init__(self, directory):
        self.control, self.library = os.path.join(directory, "outage"), os.path.join(directory, "outage.so")
        subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", self.library, __file__.replace(".py", ".c"), "-ldl"], check=True)

    def mount(self, mount):
        os.environ.update(LD_PRELOAD=self.library, VAULTFS_OUTAGE=self.control, VAULTFS_OUTAGE_STORE=os.path.realpath(mount.vault))
        mount.mount()
        del os.environ["LD_PRELOAD"]

    def begin(self):
        open(self.control, "w").close()

    def end(self):
        os.unlink(self.control)


def expect(condition, what):
    if not condition:
        sys.exit(what)


def code(mount, command):
    return subprocess.run([mount.binary, command, mount.mountpoint], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60)


def problems(mount):
    command = [mount.binary, "status", mount.mountpoint, "--json"]
    status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60)
    return json.loads(status.stdout).get("problems", [])


def lock_file(mount):
    with open(os.path.join(mount.vault, "vaultfs.lock"), "rb") as file:
        return file.read()


def work(files, rng):
    """Changes that are acknowledged: some are fsynced, some are in the log or in place only."""
    for file in files:
        for _ in range(20):
            size = len(file.versions)
            expect(file.write(rng.choice([rng.randrange(size), size])), f"{file.path} cannot be written")
        expect(file.sync(), f"{file.path} cannot be synced")
        expect(file.write(0) and file.write(len(file.versions)), f"{file.path} cannot be written")


def fail(mount, files, rng):
    """Works during an outage, until the daemon has noticed it."""
    expect(not any([file.sync() for file in files]), "an fsync succeeded without a store")
    for file in files:
        expect(not file.write(rng.randrange(len(file.versions))), "a write succeeded without a store")
        expect(not file.sync(), "an fsync succeeded without a store")
    found = problems(mount)
    expect(found, "status names no problem")
    result = code(mount, "sync")
    expect(result.returncode == NOT_DURABLE, f"sync: exit {result.returncode}: {result.stderr}")
    return found


def heal(mount, files):
    """Waits until the mount works again by itself."""
    until("a mount that works again", lambda: not problems(mount) and all([file.sync() for file in files]))


def comes_back(mount, outage, rng):
    outage.mount(mount)
    files = [File(mount, name, 8, rng) for name in ("a", "b", "c")]
    work(files, rng)
    outage.begin()
    found = fail(mount, files, rng)
    outage.end()
    heal(mount, files)
    for file in files:
        file.check("after the outage")
    work(files, rng)
    mount.run(mount.binary, "sync", mount.mountpoint)
    for file in files:
        file.close()
    mount.unmount()
    expect(lock_file(mount) == b"\n", f"not a clean end: {lock_file(mount)}")
    mount.read("--require-sealed")
    return files, found


def lasts(mount, outage, files, rng):
    outage.mount(mount)
    for file in files:
        file.open()
        file.check("after mounting again")
    work(files, rng)
    record = lock_file(mount)
    outage.begin()
    fail(mount, files, rng)
    for file in files:
        file.close()
    result = code(mount, "unmount")
    expect(result.returncode == NOT_DURABLE, f"unmount: exit {result.returncode}: {result.stderr}")
    mount.daemon = None
    outage.end()
    expect(record != b"\n" and lock_file(mount) == record, f"the lock file has {lock_file(mount)}")
    expect(os.path.getsize(os.path.join(mount.vault, "vaultfs.log")) > 4096, "the log is empty")
    mount.mount()
    for file in files:
        file.open()
        file.check("in the next mount")
        file.close()
    expect(not problems(mount), f"the next mount has problems: {problems(mount)}")
    mount.unmount()
    expect(lock_file(mount) == b"\n", f"not a clean end: {lock_file(mount)}")
    mount.read()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--directory", required=True)
    options = parser.parse_args()
    rng = random.Random(7)
    mount, outage = Mount(options.binary, options.directory), Outage(options.directory)
    mount.initialise()
    try:
        files, found = comes_back(mount, outage, rng)
        lasts(mount, outage, files, rng)
    finally:
        mount.abandon()
    print(f"nothing acknowledged was lost; meanwhile: {'; '.join(found)}")


if __name__ == "__main__":
    main()
