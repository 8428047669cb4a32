"""Tests the table of classes × states × operations (Manual/Locking.md) on a real mount: the operations that work and
are refused while the vault is locked, and the remains of a closed file.

lock_classes.py --binary VAULTFS --directory DIR [--policy refuse|forget]"""

import mmap
import os
import time

from locking import main, noise, refused, run, stop

CLASSES = ("complete", "unless-open", "until-first-unlock", "none")
SIZE = 600_000


def expect(what, found, wanted):
    if found != wanted:
        found, wanted = (f"{len(v)} bytes" if isinstance(v, bytes) else repr(v) for v in (found, wanted))
        stop(f"{what}: {found}, not {wanted}")


def look(pages, at):
    """Reads a byte of a mapping, with a copy by the kernel."""
    fds = os.pipe()
    try:
        os.write(fds[1], memoryview(pages)[at:at + 1])
        return os.read(fds[0], 1)
    finally:
        for fd in fds:
            os.close(fd)


def put(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, data)
    os.close(fd)


def get(path):
    with open(path, "rb") as file:
        return file.read()


def try_put(pages, at, data):
    """Stores into a mapping, with a copy by the kernel."""
    source = os.memfd_create("data")
    try:
        os.write(source, data)
        return os.preadv(source, [memoryview(pages)[at:at + len(data)]], 0)
    finally:
        os.close(source)


class Held:
    """A file of a class in the root of the mount. It is open for reading and writing, mapped, and read in part."""

    def __init__(self, mount, name, protection):
        self.path, self.protection, self.data = mount.path(name), protection, bytearray(noise(len(name), SIZE))
        put(self.path, self.data)
        mount.run(mount.binary, "protect", protection, self.path)
        self.fd = os.open(self.path, os.O_RDWR)
        self.pages = mmap.mmap(self.fd, SIZE)
        os.pread(self.fd, 1000, 0)

    def use(self, goes_on):
        """Tries each operation on open files and expects that it works, or is refused."""
        for at in (0, 5000, 300_000, SIZE - 10):
            expect(f"{self.path}: pread at {at}", refused(os.pread, self.fd, 10, at),
                   bytes(self.data[at:at + 10]) if goes_on else "ENOKEY")
            expect(f"{self.path}: mapping at {at}", refused(look, self.pages, at),
                   bytes(self.data[at:at + 1]) if goes_on else "EFAULT")
        at, new = 250_000, os.urandom(8)
        expect(f"{self.path}: pwrite", refused(os.pwrite, self.fd, new, at), 8 if goes_on else "ENOKEY")
        expect(f"{self.path}: store", refused(try_put, self.pages, 400_000, new), 8 if goes_on else "EFAULT")
        expect(f"{self.path}: fstat", refused(lambda: os.fstat(self.fd).st_size), SIZE if goes_on else "ENOKEY")
        expect(f"{self.path}: fsync", refused(os.fsync, self.fd), None)
        if goes_on:
            self.data[at:at + 8] = self.data[400_000:400_008] = new
            expect(f"{self.path}: after a write", os.pread(self.fd, 8, at), new)

    def close(self):
        self.pages.close()
        os.close(self.fd)

    def check(self):
        """While unlocked, by path: expects everything that was written."""
        expect(self.path, get(self.path), bytes(self.data))


def cached(path):
    """The part of a file that is in the page cache, as another process sees it. None if the file cannot be opened."""
    code, said = run(["fincore", "-b", "-n", "-o", "PAGES", path])
    return said.strip() if code == 0 else "refused"


def files(mount):
    """Files in the root, whose class is complete: no path leads to them while the vault is locked, but descriptors
    do."""
    held = {name: Held(mount, name, name) for name in CLASSES}
    closed_while_locked = Held(mount, "closed-while-locked", "unless-open")
    for _ in range(3):
        mount.lock()
        for name, file in held.items():
            file.use(goes_on=name != "complete")
            for action in (get, os.stat, os.listxattr, lambda p: os.open(p, os.O_WRONLY), os.unlink):
                expect(f"{name}: by path", refused(action, file.path), "ENOKEY")
        mount.unlock()
        for file in held.values():
            file.use(goes_on=True)
            file.check()
    mount.lock()
    closed_while_locked.use(goes_on=True)
    closed_while_locked.close()
    # The daemon releases the file after close(2) has returned, and reports nothing.
    time.sleep(0.1)
    expect("after the last close", refused(get, closed_while_locked.path), "ENOKEY")
    expect("pages after the last close", cached(closed_while_locked.path), "refused")
    mount.unlock()
    expect("no page survived", cached(closed_while_locked.path), "0")
    closed_while_locked.check()
    for file in held.values():
        file.close()


def directories(mount):
    """Directories of each class with a file of each class. A directory's class governs its names."""
    for directory in CLASSES:
        os.mkdir(mount.path(directory + ".d"))
        for name in CLASSES:
            put(mount.path(directory + ".d", name), b"inside")
            mount.run(mount.binary, "protect", name, mount.path(directory + ".d", name))
        mount.run(mount.binary, "protect", directory, mount.path(directory + ".d"))
    # Names are looked up from the root on, so the root must allow lookups.
    mount.run(mount.binary, "protect", "none", mount.mountpoint)
    allowed = ("until-first-unlock", "none")
    mount.lock()
    expect("the root", "none.d" in os.listdir(mount.mountpoint), True)
    for directory in CLASSES:
        base = mount.path(directory + ".d")
        listed = refused(lambda: sorted(os.listdir(base)))
        expect(f"ls {directory}", listed, sorted(CLASSES) if directory in allowed else "ENOKEY")
        for name in CLASSES:
            works = directory in allowed and name in allowed
            path = os.path.join(base, name)
            expect(f"read {directory}/{name}", refused(get, path), b"inside" if works else "ENOKEY")
            expect(f"stat {directory}/{name}", refused(lambda: os.stat(path).st_size), 6 if works else "ENOKEY")
            expect(f"getxattr {directory}/{name}", refused(os.getxattr, path, "user.vaultfs.class"),
                   name.encode() if works else "ENOKEY")
            expect(f"write {directory}/{name}", refused(put, path, b"INSIDE"), None if works else "ENOKEY")
            expect(f"truncate {directory}/{name}", refused(os.truncate, path, 6), None if works else "ENOKEY")
        works = directory in allowed
        changes = {
            "mkdir": lambda: os.mkdir(f"{base}/made"), "rmdir": lambda: os.rmdir(f"{base}/made"),
            "create": lambda: put(f"{base}/new", b"made while locked"),
            "rename": lambda: os.rename(f"{base}/new", f"{base}/newer"),
            "read": lambda: expect("a new file", get(f"{base}/newer"), b"made while locked"),
            "symlink": lambda: os.symlink("newer", f"{base}/link"),
            "readlink": lambda: expect("readlink", os.readlink(f"{base}/link"), "newer"),
            "unlink": lambda: os.unlink(f"{base}/link"),
        }
        for what, change in changes.items():
            expect(f"{what} in {directory}", refused(change), None if works else "ENOKEY")
    mount.unlock()
    for directory in CLASSES:
        for name in CLASSES:
            works = directory in allowed and name in allowed
            expect(f"{directory}/{name}", get(mount.path(directory + ".d", name)), b"INSIDE" if works else b"inside")
        newer = mount.path(directory + ".d", "newer")
        expect(newer, refused(get, newer), b"made while locked" if directory in allowed else "ENOENT")


def first_unlock(mount):
    """Mounted under a lock file: until-first-unlock is refused, and none works. From the first unlock on both work."""
    paths = [mount.path(name + ".d", name) for name in ("until-first-unlock", "none")]
    content = [get(path) for path in paths]
    mount.unmount()
    open(mount.lock_file, "x").close()
    mount.mount()
    expect("until-first-unlock at first", refused(get, paths[0]), "ENOKEY")
    expect("its directory", refused(os.listdir, os.path.dirname(paths[0])), "ENOKEY")
    expect("none at first", get(paths[1]), content[1])
    mount.unlock_from("file")
    expect("unlocked", [get(path) for path in paths], content)
    for trigger in ("file", "command", "signal"):
        mount.lock_by(trigger)
        expect(f"locked by {trigger}", [get(path) for path in paths], content)
        expect("complete", refused(get, mount.path("complete.d", "complete")), "ENOKEY")
        mount.unlock_from(trigger)


def playing(mount):
    """A player of an unless-open video. It continues to read through its descriptor during locks, while no other
    program can open the video."""
    path, data = mount.path("video"), noise(9, 24 << 20)
    put_all(path, data)
    mount.run(mount.binary, "protect", "unless-open", path)
    mount.unmount()
    mount.mount()
    found = []
    with open(path, "rb", buffering=0) as video:
        while part := video.read(150_000):
            found.append(part)
            if len(found) % 30 == 10:
                mount.lock()
                expect("another player", refused(get, path), "ENOKEY")
            if len(found) % 30 == 25:
                mount.unlock()
    if mount.state() == "locked":
        mount.unlock()
    expect("the video", b"".join(found), data)


def put_all(path, data):
    with open(path, "wb") as file:
        file.write(data)


def classes(mount, options):
    mount.initialise()
    mount.mount()
    for function in (files, directories, first_unlock, playing):
        begin = time.monotonic()
        function(mount)
        print(f"{function.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    mount.verify()


main(classes)
