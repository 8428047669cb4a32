"""A store that dies under a mount, or fills up, in each way that it can end. From the first error that a program gets, status
names a problem. Every end says 15 and why, unless everything that was acknowledged is in place: then it says 0, and the next mount
has it. Root only, in a mount namespace of its own.

store_dies.py --binary VAULTFS --directory DIR KIND"""

import argparse
import errno
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys

from locking import until
from mounting import Mount

NOT_DURABLE = 15
EXT4_IOC_SHUTDOWN = 0x8004587D


def run(*arguments):
    subprocess.run(arguments, check=True, stdin=subprocess.DEVNULL, timeout=60)


def expect(condition, what):
    if not condition:
        sys.exit(what)


class Store:
    """An ext4 on a loop device, which holds the vault."""

    # The kernel's own words for what a program gets.
    errors = (errno.EIO, errno.EROFS)
    size = "32M"

    def __init__(self, directory):
        self.image, self.path = os.path.join(directory, "image"), os.path.join(directory, "store")
        self.vault = os.path.join(self.path, "vault")
        os.mkdir(self.path)
        run("truncate", "-s", self.size, self.image)
        run("mkfs.ext4", "-q", "-F", self.image)
        self.attach()

    def attach(self):
        run("mount", "-o", "loop,errors=remount-ro", self.image, self.path)

    def revive(self):
        run("umount", self.path)
        self.attach()

    def close(self):
        subprocess.run(["umount", "-l", self.path], stderr=subprocess.DEVNULL)


class ShutDown(Store):
    """A disk that is pulled."""

    def die(self):
        store = os.open(self.path, os.O_RDONLY)
        fcntl.ioctl(store, EXT4_IOC_SHUTDOWN, struct.pack("I", 2))
        os.close(store)


class ReadOnly(Store):
    """The file system has found an error, and takes no more changes."""

    def die(self):
        device = os.path.basename(subprocess.check_output(["findmnt", "-no", "SOURCE", self.path], text=True).strip())
        with open(f"/sys/fs/ext4/{device}/trigger_fs_error", "w") as trigger:
            trigger.write("1")


class Served(Store):
    """A FUSE file system whose server is killed."""

    errors = (errno.ENOTCONN, errno.ECONNABORTED)

    def __init__(self, directory):
        self.path, self.below = os.path.join(directory, "store"), os.path.join(directory, "below")
        self.vault = os.path.join(self.path, "vault")
        os.mkdir(self.path)
        os.mkdir(self.below)
        self.attach()

    def attach(self):
        self.server = subprocess.Popen(["bindfs", "-f", self.below, self.path])
        until("bindfs", lambda: os.path.ismount(self.path))

    def die(self):
        self.server.kill()
        self.server.wait()

    def revive(self):
        run("umount", "-l", self.path)
        self.attach()

    def close(self):
        self.die()
        super().close()


class Unmounted(Served):
    """The same, and it is taken from the tree."""

    def die(self):
        run("umount", "-l", self.path)
        super().die()

    def revive(self):
        self.attach()


class Removed(Store):
    """The vault's directory is removed. There is nothing to come back to."""

    def die(self):
        shutil.rmtree(self.vault)


class Daemon(Mount):
    """A mount in the foreground, whose exit code and messages are known."""

    def __init__(self, binary, directory, vault):
        super().__init__(binary, directory, vault)
        self.log = os.path.join(directory, "log")

    def start(self, *arguments):
        with open(self.log, "w") as log:
            lock = os.path.join(self.directory, "device.lock")
            self.process = subprocess.Popen(
                [self.binary, "mount", "-f", self.vault, self.mountpoint, "--passfile", self.passfile, "--lock-file", lock, *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.daemon = self.process.pid
        until("the mount", lambda: self.command("status").returncode in (0, 16) or self.process.poll() is not None)
        expect(self.process.poll() is None, f"no mount: {self.messages()}")

    def messages(self):
        with open(self.log) as log:
            return log.read()

    def command(self, *arguments):
        return subprocess.run([self.binary, *arguments, self.mountpoint], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def problems(self):
        return json.loads(self.command("status", "--json").stdout).get("problems", [])

    def expect_told(self, *arguments):
        result = self.command(*arguments)
        expect(result.returncode == NOT_DURABLE and result.stderr.startswith("vaultfs: "), f"{arguments}: {result}")

    def expect_end(self, code=NOT_DURABLE):
        found = self.process.wait(timeout=20)
        expect(found == code, f"the daemon ends with {found}: {self.messages()}")
        told = "not everything that was written is known to be in place: " in self.messages()
        expect(told == (code != 0), f"it logs: {self.messages()}")
        self.daemon = None

    def follow(self):
        events = subprocess.Popen([self.binary, "events", "--json", self.mountpoint], stdout=subprocess.PIPE, text=True)
        expect('"state"' in events.stdout.readline(), "no events")
        return events


def put(path, text):
    with open(path, "w") as file:
        file.write(text)


def work(mount):
    """Changes that are acknowledged, closed, and not durable."""
    put(os.path.join(mount.mountpoint, "important"), "important\n")
    os.mkdir(os.path.join(mount.mountpoint, "directory"))


def meet(mount, store):
    """A program meets the dead store: status says so at once."""
    expect(not mount.problems(), f"problems before: {mount.problems()}")
    store.die()
    try:
        put(os.path.join(mount.mountpoint, "more"), "more\n")
        sys.exit("a file was made on a dead store")
    except OSError as error:
        expect(error.errno in store.errors, f"a program gets {error}")
    expect(any("store fails" in line for line in mount.problems()), f"status names no problem of the store: {mount.problems()}")


def end(mount, way):
    if way == "unmount":
        mount.expect_told("unmount")
    elif way == "term":
        os.kill(mount.process.pid, signal.SIGTERM)
    elif way == "fusermount":
        events = mount.follow()
        run("fusermount3", "-u", mount.mountpoint)
        lines = [json.loads(line) for line in events.communicate(timeout=20)[0].splitlines()]
        expect(any(line.get("atEnd") for line in lines) and lines[-1]["event"] == "unmounted", f"events: {lines}")
    mount.expect_end()


def dies(mount, store, ways):
    for number, way in enumerate(ways):
        mount.start(*(["--idle-unmount", "1s"] if way == "idle" else []))
        if number == 0:
            kept = os.path.join(mount.mountpoint, "kept")
            put(kept, "kept\n")
            mount.command("sync").check_returncode()
        work(mount)
        if way in ("names", "names-sync", "names-lock"):
            # Nothing is left but names, and no program meets the store.
            mount.command("sync").check_returncode()
            os.mkdir(os.path.join(mount.mountpoint, "another"))
            store.die()
            if way != "names":
                mount.expect_told(way.removeprefix("names-"))
            way = "unmount"
        else:
            meet(mount, store)
            mount.expect_told("sync")
            mount.expect_told("lock")
            mount.command("unlock")
        end(mount, way)
        store.revive()
        mount.start()
        with open(os.path.join(mount.mountpoint, "kept")) as file:
            expect(file.read() == "kept\n", "what was synced is lost")
        for name in "important", "directory", "another":
            path = os.path.join(mount.mountpoint, name)
            if os.path.isdir(path):
                os.rmdir(path)
            elif os.path.exists(path):
                os.unlink(path)
        mount.unmount()


def removed(mount, store):
    mount.start()
    work(mount)
    expect(not mount.problems(), f"problems before: {mount.problems()}")
    store.die()
    mount.expect_told("unmount")
    mount.expect_end()
    # A directory in it, by another program.
    mount.initialise()
    mount.start()
    os.mkdir(os.path.join(mount.mountpoint, "directory"))
    put(os.path.join(mount.mountpoint, "directory/file"), "content\n")
    for name in os.listdir(store.vault):
        if not name.startswith("vaultfs."):
            shutil.rmtree(os.path.join(store.vault, name))
    mount.expect_told("unmount")
    mount.expect_end()


def detached(mount, store):
    """An ext4 that is taken from the tree works on for those who have it open."""
    mount.start()
    work(mount)
    run("umount", "-l", store.path)
    put(os.path.join(mount.mountpoint, "more"), "more\n")
    mount.command("unmount").check_returncode()
    mount.expect_end(0)
    until("the loop device", lambda: store.image not in subprocess.check_output(["losetup", "-a"], text=True))
    store.attach()
    mount.start()
    for name in "important", "more":
        with open(os.path.join(mount.mountpoint, name)) as file:
            expect(file.read() == name + "\n", f"{name} is lost")
    mount.unmount()


def full(mount, store):
    """A full disk is no failure of the store, and what does not fit in place is told."""
    mount.start()
    path = os.path.join(mount.mountpoint, "file")
    content = bytearray()
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    with open(os.path.join(store.path, "filler"), "wb") as filler:
        filler.write(bytes(24 << 20))
    block = os.urandom(4096)
    try:
        while True:
            count = os.pwrite(file, block, len(content))
            content += block[:count]
    except OSError as error:
        expect(error.errno == errno.ENOSPC, f"a program gets {error}")
    for start in range(0, len(content) - 4096, 16384):
        try:
            count = os.pwrite(file, block[::-1], start)
            content[start:start + count] = block[::-1][:count]
        except OSError as error:
            expect(error.errno == errno.ENOSPC, f"a program gets {error}")
    os.close(file)
    expect(not any("store fails" in line for line in mount.problems()), f"problems: {mount.problems()}")
    result = mount.command("unmount")
    expect(result.returncode in (0, NOT_DURABLE), f"{result}")
    mount.expect_end(result.returncode)
    with open(os.path.join(store.vault, "vaultfs.lock"), "rb") as lock:
        expect((lock.read() == b"\n") == (result.returncode == 0), "vaultfs.lock says something else")
    os.unlink(os.path.join(store.path, "filler"))
    mount.start()
    with open(path, "rb") as file:
        expect(file.read(len(content)) == content, "acknowledged bytes are lost")
    mount.unmount()


KINDS = {
    "shut-down": (ShutDown, lambda mount, store: dies(mount, store, ["unmount", "names", "names-lock", "term", "idle", "fusermount"])),
    "read-only": (ReadOnly, lambda mount, store: dies(mount, store, ["unmount", "term"])),
    "server": (Served, lambda mount, store: dies(mount, store, ["unmount", "names", "names-sync", "fusermount"])),
    "unmounted-server": (Unmounted, lambda mount, store: dies(mount, store, ["unmount"])),
    "unmounted": (Store, detached),
    "removed": (Removed, removed),
    "full": (Store, full),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("kind", choices=KINDS)
    options = parser.parse_args()
    kind, body = KINDS[options.kind]
    store = kind(options.directory)
    mount = Daemon(options.binary, options.directory, store.vault)
    try:
        mount.initialise()
        body(mount, store)
    finally:
        mount.abandon()
        store.close()


if __name__ == "__main__":
    main()
