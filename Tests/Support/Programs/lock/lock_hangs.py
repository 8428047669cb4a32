"""Locks during every kind of operation, and tries every kind of operation in each state of a lock: nothing hangs,
nothing is lost.

lock_hangs.py --binary VAULTFS --directory DIR [--policy refuse|forget] [--seed N] [CASE…]"""

import contextlib
import errno
import mmap
import os
import random
import shutil
import signal
import threading
import time

from locking import PATIENCE, fork, hangs, libc, main, noise, run, stop, syncfs, until, wait, zombie

MIB = 1 << 20
cases = []


def case(function):
    """Registers a case. It gets its own mount, unlocked, with a file `big`, and leaves it mounted and unlocked."""
    cases.append(function)
    return function


@contextlib.contextmanager
def at_work(function, *arguments, processes=1):
    """Runs processes that repeat an operation while the body runs. They continue after a refusal."""
    def again():
        while True:
            try:
                function(*arguments)
            except OSError:
                # An operation that was refused, or whose file is missing because another was refused, may work the next
                # time.
                time.sleep(0.0005)

    pids = [fork(again) for _ in range(processes)]
    # A moment for them to begin. None may get through an operation, so none reports one.
    time.sleep(0.05)
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            if (code := wait(pid, f"{function.__name__}, killed")) != -signal.SIGKILL:
                stop(f"{function.__name__}: ended with {code}")


def lock_often(mount, rounds=6):
    for number in range(rounds):
        trigger = ("command", "file", "signal")[number % 3]
        mount.lock_by(trigger)
        mount.unlock_from(trigger)
        time.sleep(0.02)


# Operations in progress when a lock comes


@case
def msync(mount):
    """Dirty mapped pages, with msync(2) of them in progress."""
    def work():
        with open(mount.path("synced"), "w+b") as file:
            file.truncate(8 * MIB)
            pages = memoryview(mmap.mmap(file.fileno(), 8 * MIB))
            source = os.memfd_create("pages")
            os.pwrite(source, noise(1, 8 * MIB), 0)
            while True:
                os.preadv(source, [pages], 0)
                pages.obj.flush()

    with at_work(work):
        lock_often(mount)


@case
def memory_pressure(mount):
    """Makes pages dirty while the kernel writes back and reclaims. A cgroup is not available everywhere, so this
    uses syncfs(2) and drops pages as fast as they come."""
    def drop():
        with open(mount.path("pressed"), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        syncfs(mount.mountpoint)

    def dirty():
        with open(mount.path("pressed"), "r+b") as file:
            os.preadv(source, [memoryview(mmap.mmap(file.fileno(), 16 * MIB))], 0)

    source = os.memfd_create("pages")
    os.pwrite(source, noise(2, 16 * MIB), 0)
    with open(mount.path("pressed"), "wb") as file:
        file.truncate(16 * MIB)
    with at_work(drop), at_work(dirty):
        lock_often(mount)


@case
def names_change(mount):
    """Changes directories, because the kernel holds their locks while a request is in progress."""
    base = mount.path("names")
    os.mkdir(base)

    def change(rng):
        old, new = (f"{base}/{rng.randrange(20)}" for _ in range(2))
        rng.choice([
            lambda: os.close(os.open(old, os.O_CREAT)), lambda: os.rename(old, new), lambda: os.unlink(old),
            lambda: os.mkdir(old), lambda: os.rmdir(old), lambda: os.listdir(base), lambda: os.symlink("x", old),
            lambda: os.link(old, new)])()

    with at_work(lambda: change(random.Random(os.urandom(8))), processes=6):
        lock_often(mount, 20)


@case
def fsync(mount):
    def work():
        with open(mount.path("durable"), "wb") as file:
            os.write(file.fileno(), bytes(300_000))
            os.fsync(file.fileno())

    with at_work(work, processes=2):
        lock_often(mount, 12)


@case
def copy(mount):
    """cp of a big file, also by copy_file_range(2)."""
    with at_work(lambda: shutil.copy(mount.path("big"), mount.path(f"copy{os.getpid()}")), processes=2):
        lock_often(mount)


@case
def exit_with_dirty_pages(mount):
    """munmap(2) and exit of processes that have made pages dirty. Both write back."""
    def dirty_and_end():
        with open(mount.path(f"mapped{os.getpid() % 4}"), "w+b") as file:
            file.truncate(4 * MIB)
            with mmap.mmap(file.fileno(), 4 * MIB) as pages:
                source = os.memfd_create("pages")
                os.pwrite(source, noise(3, 4 * MIB), 0)
                with memoryview(pages) as view:
                    os.preadv(source, [view], 0)
                os.close(source)

    def killed():
        child = os.fork()
        if child == 0:
            try:
                dirty_and_end()
            except OSError:
                pass
            os._exit(0)
        time.sleep(random.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    with at_work(killed, processes=3):
        lock_often(mount, 12)


@case
def readahead(mount):
    """Pages that are being read ahead. The kernel keeps them locked until the daemon has replied."""
    def read():
        with open(mount.path("big"), "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            for _ in range(100):
                file.read(131_072)

    with at_work(read, processes=3):
        lock_often(mount, 12)


@case
def few_threads(mount):
    """More simultaneous requests than the daemon has threads, from descriptors of one file and by page faults in it."""
    def read(at):
        with open(mount.path("big"), "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.pread(file.fileno(), MIB, at % 32 * MIB)

    threads = 0
    with contextlib.ExitStack() as stack:
        for at in range(40):
            stack.enter_context(at_work(read, at))
            threads = max(threads, mount.memory("Threads"))
        lock_often(mount, 9)
    if threads > 40:
        stop(f"{threads} threads: the case proves nothing")


@case
def unmount_in_the_middle(mount):
    """Ends the daemon during its lock. A client that waits for that lock gets a reply, or the connection is closed."""
    enders = {
        "vaultfs unmount": lambda: mount.run(mount.binary, "unmount", mount.mountpoint),
        "fusermount3": lambda: mount.run("fusermount3", "-u", mount.mountpoint),
        "SIGTERM": lambda: os.kill(mount.daemon, signal.SIGTERM),
    }
    for name, end in enders.items():
        with open(mount.path("unmounted"), "w+b") as file:
            file.truncate(24 * MIB)
            pages = mmap.mmap(file.fileno(), 24 * MIB)
            pages[:] = noise(4, 24 * MIB)
        # A thread unmaps, so that its write-back, the lock and the unmount happen at the same time.
        closing = threading.Thread(target=pages.close, daemon=True)
        waiting = mount.send("lock")
        closing.start()
        closing.join(PATIENCE)
        if closing.is_alive():
            hangs(f"munmap before {name}")
        end()
        mount.receive(waiting)
        ended(mount)
        mount.mount()
        with open(mount.path("unmounted"), "rb") as file:
            if file.read() != noise(4, 24 * MIB):
                stop(f"{name} in the middle of a lock lost dirty pages")


def ended(mount):
    """Waits for the daemon's end and the mount's."""
    daemon = mount.daemon
    until("the daemon's end", lambda: not os.path.exists(f"/proc/{daemon}") or zombie(daemon))
    until("the mount's end", lambda: not os.path.ismount(mount.mountpoint))


# Operations in each state


@contextlib.contextmanager
def state(mount, name, holding=()):
    """`grace`: will-lock has been published, and a file that is open for writing delays the lock. `locked`.
    `unlocked` again. Yields descriptors that must stay open."""
    if name == "grace":
        mount.unmount()
        # Longer than all operations in this state, including sync(2) of a busy machine.
        mount.mount("--grace", "600s")
    fds = [os.open(mount.path(path), os.O_RDONLY) for path in holding]
    held = open(mount.path("held"), "wb")
    waiting = mount.send("lock")
    if name == "grace":
        # Longer than a lock without a grace takes.
        time.sleep(0.05)
        if mount.state() != "unlocked":
            stop("a grace, and the vault is locked at once")
    else:
        held.close()
        mount.receive(waiting)
        if name == "unlocked":
            mount.unlock()
    yield fds
    for fd in fds:
        os.close(fd)
    if name == "grace":
        try:
            held.close()
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise
        if mount.receive(waiting) is None:
            return
    if name != "unlocked" and os.path.ismount(mount.mountpoint):
        mount.unlock()


STATES = ("grace", "locked", "unlocked")


@case
def looking(mount):
    for name in STATES:
        with state(mount, name, holding=["big", "."]) as held:
            for command in (["ls", "-la"], ["df"], ["stat"], ["stat", "-f"], ["mountpoint"], ["sync"], ["sync", "-f"], ["du"]):
                code, said = run(command + [mount.mountpoint])
                # Commands that open the directory are refused.
                may_fail = name == "locked" and command in (["ls", "-la"], ["sync"], ["sync", "-f"], ["du"])
                if code and not may_fail:
                    stop(f"{name}: {command}: {code} {said}")
                if may_fail and "Required key not available" not in said:
                    stop(f"{name}: {command}: {code} {said}")
            # sync(1) concerns all mounts of this machine.
            if run(["sync"], seconds=300)[0]:
                stop(f"{name}: sync")
            for fd in held:
                os.fsync(fd)
                if libc.syncfs(fd):
                    stop(f"{name}: syncfs")


@case
def unmounting(mount):
    """Each way to unmount in each state. With an open file the unmount is refused, but SIGTERM is not."""
    enders = {
        "umount": ["umount", mount.mountpoint] if os.geteuid() == 0 else ["fusermount3", "-u", mount.mountpoint],
        "fusermount3": ["fusermount3", "-u", mount.mountpoint],
        "vaultfs": [mount.binary, "unmount", mount.mountpoint],
        "SIGTERM": None,
    }
    for name in STATES:
        for ender, command in enders.items():
            with state(mount, name):
                if command is None:
                    os.kill(mount.daemon, signal.SIGTERM)
                    # The mount ends with files open, and no unlock follows.
                    ended(mount)
                else:
                    code, said = run(command)
                    if (code == 0) != (name != "grace"):
                        stop(f"{name}: {command}: {code} {said}")
            if name == "grace" and command:
                code, said = run(command)
                if code:
                    stop(f"after {name}: {command}: {code} {said}")
            if command:
                ended(mount)
            mount.mount()


@case
def killing(mount):
    """A process that waits for a reply, in read(2) or in a page fault, can be killed in every state."""
    def read(fd):
        os.pread(fd, 4096, 40 * MIB)

    def fault(fd):
        return mmap.mmap(fd, 0, prot=mmap.PROT_READ)[41 * MIB]

    for name in STATES:
        for action in (read, fault):
            with state(mount, name, holding=["big"]) as (fd,):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.kill(mount.daemon, signal.SIGSTOP)
                try:
                    until("the daemon's stop", lambda: stopped(mount.daemon))
                    child = fork(action, fd)
                    until("a request", lambda: asleep(child))
                    os.kill(child, signal.SIGKILL)
                finally:
                    # A process that ends closes its files, and the kernel waits for the reply to that (fuse_flush).
                    os.kill(mount.daemon, signal.SIGCONT)
                code = wait(child, f"a process killed in {action.__name__}, {name}")
                if code != -signal.SIGKILL:
                    stop(f"{name}: {action.__name__} did not wait: {code}")


def stopped(pid):
    def state_of(thread):
        with open(f"/proc/{pid}/task/{thread}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]

    return all(state_of(thread) == "T" for thread in os.listdir(f"/proc/{pid}/task"))


def asleep(pid):
    with open(f"/proc/{pid}/wchan") as wchan:
        # It waits for its own request, or for a page that another process requested.
        return wchan.read() in ("request_wait_answer", "folio_wait_bit_common", "fuse_readahead")


def hang(mount, options):
    mount.initialise()
    for function in cases:
        if options.cases and function.__name__ not in options.cases:
            continue
        begin = time.monotonic()
        mount.mount()
        if not os.path.exists(mount.path("big")):
            with open(mount.path("big"), "wb") as file:
                file.write(noise(options.seed, 48 * MIB))
        function(mount)
        with open(mount.path("big"), "rb") as file:
            if file.read() != noise(options.seed, 48 * MIB):
                stop(f"{function.__name__}: the file is another")
        mount.verify(with_reader=False)
        print(f"{function.__name__}: {time.monotonic() - begin:.1f} s", flush=True)


main(hang)
