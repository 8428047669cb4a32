"""Tests the end of a daemon while pages of shared mappings are dirty. SIGTERM loses none of them. SIGKILL ends the
daemon, and every process that waits for it gets an error.

lock_end.py --binary VAULTFS --directory DIR [--policy refuse|forget] [--seed N] CASE…"""

import contextlib
import errno
import mmap
import os
import signal
import time

from lock_pages import check_stored, dirty_for_ever, touch
from locking import GONE, SECRET, ended, fork, main, mounted, noise, refused, run, stop, until, wait

MIB = 1 << 20
# About as much as stays dirty if the kernel limits the dirty pages of a FUSE mount (balance_dirty_pages), and quick to
# make.
DIRTY = 32 * MIB
CLEAN = MIB
DIRECTORIES = 50
# Time limit for the end of a daemon, and of the processes that wait for it.
SECONDS = 10
DEAD = [errno.errorcode[number] for number in GONE]
cases = {}


def case(function):
    cases[function.__name__] = function
    return function


# Programs that use the mount. Each reports through `begun` that it is running, and ends when it learns that the daemon
# is dead.


def make_dirty(mount, seed, begun):
    """Makes a whole file dirty through a mapping and keeps the mapping, because the kernel writes back when one
    ends."""
    source = os.memfd_create("pages")
    os.pwrite(source, noise(seed, DIRTY), 0)
    with open(mount.path("big"), "r+b") as file, mmap.mmap(file.fileno(), DIRTY) as pages:
        # Read-ahead is quicker than a page fault for each.
        while file.read(MIB):
            pass
        os.preadv(source, [memoryview(pages)], 0)
        begun[0] = 1
        signal.pause()


def read(mount, begun):
    """Makes pages that are being written back, and pages that the daemon must supply."""
    # Never closed, because close reports pages that could not be written back.
    big, clean = (os.open(mount.path(name), os.O_RDONLY) for name in ("big", "clean"))
    while True:
        os.posix_fadvise(clean, 0, 0, os.POSIX_FADV_DONTNEED)
        for at in range(64):
            refused(os.pread, big, 4096, at * DIRTY // 64)
            if refused(os.pread, clean, 4096, at * CLEAN // 64) in DEAD:
                return
        begun[0] = 1


def touch_pages(mount, begun, dead):
    """The same by mappings. A page that the kernel still has is no error there."""
    big, clean = (os.open(mount.path(name), os.O_RDONLY) for name in ("big", "touched"))
    kept = mmap.mmap(big, DIRTY, prot=mmap.PROT_READ)
    while True:
        was_dead = dead[0]
        os.posix_fadvise(clean, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(clean, CLEAN, prot=mmap.PROT_READ) as pages:
            found = [refused(touch, *where) for at in range(64)
                     for where in ((kept, at * DIRTY // 64), (pages, at * CLEAN // 64))]
        if was_dead and "EFAULT" in found:
            return
        begun[0] = 1


def look_up(mount, begun):
    while True:
        for number in range(DIRECTORIES):
            path = mount.path("directories", str(number))
            if refused(os.listdir, path) in DEAD or refused(os.stat, f"{path}/{number}") in DEAD:
                return
        begun[0] = 1


def execute(*command):
    """Becomes another program, without output."""
    quiet = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    os.execvp(command[0], command)


def start(*function):
    """Starts a child and waits until it has begun. Its last argument is the object through which it reports that."""
    begun = memoryview(mmap.mmap(-1, 8)).cast("Q")
    pid = fork(function[0], *function[1:], begun)
    until(f"{function[0].__name__} to begin", lambda: begun[0])
    return pid


# The daemon's end


@contextlib.contextmanager
def nothing_left(mount):
    """Aborts the connection if the body hangs, after printing where it hangs."""
    with open("/proc/self/mountinfo") as mounts:
        device = next(line.split()[2] for line in mounts if line.split()[4] == mount.mountpoint)
    try:
        yield
    except BaseException:
        try:
            with open(f"/sys/fs/fuse/connections/{device.split(':')[1]}/abort", "w") as abort:
                abort.write("1")
        except OSError:
            # fusectl is not mounted. root can use umount -f instead.
            run(["umount", "-f", mount.mountpoint])
        raise


def await_end(mount):
    until("the daemon's end", lambda: ended(mount.daemon), SECONDS)


def remount(mount):
    """Checks after the daemon's end, and without the lock file."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(mount.lock_file)
    if mounted(mount):
        run(["fusermount3", "-uz", mount.mountpoint], SECONDS)
    if mounted(mount):
        stop("the mount of a dead daemon cannot be detached")
    mount.mount()


def put_away(pid, what):
    os.kill(pid, signal.SIGKILL)
    wait(pid, what, SECONDS)


@case
def terminated_in_grace(mount, seed, pages=2000):
    """Sends SIGTERM during a grace period that waits for a program that never stops storing into a mapping."""
    mount.unmount()
    mount.mount("--grace", "60s")
    path = mount.path("endless")
    with open(path, "wb") as file:
        file.truncate(pages * 4096)
    progress = memoryview(mmap.mmap(-1, 8)).cast("Q")
    with nothing_left(mount):
        child = fork(dirty_for_ever, path, pages, progress)
        until("the first stores", lambda: progress[0])
        open(mount.lock_file, "x").close()
        until("the grace", lambda: mount.ask("status")["lock"]["seen"])
        until("stores in the grace", lambda begin=progress[0]: progress[0] > begin + 2 * pages)
        if mount.state() != "unlocked":
            stop("a grace of 60 s is over at once")
        stores = progress[0]
        os.kill(mount.daemon, signal.SIGTERM)
        await_end(mount)
        put_away(child, "a program that stores into a mapping")
    remount(mount)
    check_stored(path, pages, stores)
    os.unlink(path)


@case
def terminated_with_dirty_pages(mount, seed):
    with nothing_left(mount):
        child = start(make_dirty, mount, seed)
        os.kill(mount.daemon, signal.SIGTERM)
        await_end(mount)
        put_away(child, "a program that has mapped a file")
    remount(mount)
    expected = noise(seed, DIRTY)
    with open(mount.path("big"), "rb") as file:
        lost = sum(file.read(4096) != expected[at:at + 4096] for at in range(0, DIRTY, 4096))
    if lost:
        stop(f"{lost} of {DIRTY // 4096} pages were lost")


def kill(mount, seed, prepare, delay):
    """Sends SIGKILL `delay` seconds after the last action of `prepare`, while programs use the mount."""
    dead = memoryview(mmap.mmap(-1, 8)).cast("Q")
    with nothing_left(mount):
        users = {
            "a reader": start(read, mount), "who looks up names": start(look_up, mount),
            "who touches a mapping": start(lambda begun: touch_pages(mount, begun, dead)),
        }
        dirty = start(make_dirty, mount, seed)
        prepare()
        time.sleep(delay)
        os.kill(mount.daemon, signal.SIGKILL)
        # Each sends a request to the daemon, whatever the kernel has cached.
        lookers = [fork(execute, *words, mount.mountpoint) for words in (["stat", "--cached=never"], ["stat", "-f"], ["ls"])]
        await_end(mount)
        dead[0] = 1
        for user, pid in users.items():
            if code := wait(pid, f"{user}, whose daemon is dead,", SECONDS):
                stop(f"{user}: ended with {code}")
        for pid in lookers:
            if not wait(pid, "who looks at the mountpoint", SECONDS):
                stop("the mountpoint of a dead daemon can be looked at")
        put_away(dirty, "a program that has mapped a file")
    remount(mount)
    for name in ("clean", "touched"):
        with open(mount.path(name), "rb") as file:
            if file.read() != noise(seed, CLEAN):
                stop(f"{name} is another file")


@case
def killed_while_locking(mount, seed):
    for delay in (0.05, 0.1, 0.2, 0.4):
        kill(mount, seed, lambda: open(mount.lock_file, "x").close(), delay)


@case
def killed_while_locked(mount, seed):
    kill(mount, seed, lambda: mount.lock_by("file"), 0)


@case
def killed_while_unlocking(mount, seed):
    def unlock():
        mount.lock_by("file")
        os.unlink(mount.lock_file)
        if mount.policy == "forget":
            mount.send("unlock", secret=SECRET)

    for delay in (0, 0.002, 0.02):
        kill(mount, seed, unlock, delay)


def ends(mount, options):
    mount.initialise()
    mount.mount()
    for name, size in (("big", DIRTY), ("clean", CLEAN), ("touched", CLEAN)):
        with open(mount.path(name), "wb") as file:
            file.write(noise(options.seed, size) if name != "big" else b"")
            file.truncate(size)
            os.fsync(file.fileno())
    for number in range(DIRECTORIES):
        os.makedirs(mount.path("directories", str(number), str(number)))
    for name in options.cases:
        begin = time.monotonic()
        cases[name](mount, options.seed)
        print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
    mount.verify(with_reader=False)


main(ends)
