"""Every way to lock a mount and to unlock it, the cells of the table "What unlocks" (Manual/Locking.md), on real
mounts.

lock_triggers.py --binary VAULTFS --directory DIR [--policy refuse|forget] [CASE…]"""

import json
import mmap
import os
import shutil
import signal
import subprocess
import time

from locking import SECRET, fork, main, refused, run, stop, until, wait

cases = []
LOCK_FILE_EXISTS = 10
WRONG_SECRET = 4
# The time on the daemon's clock, a coarse one that is a few milliseconds late.
ONE_SECOND = 0.98


def case(function):
    cases.append(function)
    return function


def expect(what, found, *wanted):
    if found not in wanted:
        stop(f"{what}: {found!r}, not {wanted[0]!r}")


def content(mount):
    """The name of the error while the vault is locked."""
    def read():
        with open(mount.path("file")) as file:
            return file.read()

    return refused(read)


def expect_locked(mount, what):
    expect(f"{what}: a read", content(mount), "ENOKEY")
    mount.await_state("locked")


def expect_still_locked(mount, what, seconds=0.02):
    """The same after a time in which a wrong unlock would have happened, since nothing reports that there is none."""
    time.sleep(seconds)
    expect_locked(mount, what)


def expect_unlocked(mount, what):
    mount.await_state("unlocked")
    expect(f"{what}: a read", content(mount), "text")


def command(mount, name, secret=None, *more):
    """`vaultfs lock` or `unlock`: (exit code, output)."""
    passfile = []
    if secret:
        path = os.path.join(mount.directory, "secret")
        with open(path, "w") as file:
            file.write(secret)
        passfile = ["--passfile", path]
    return run([mount.binary, name, mount.mountpoint, *passfile, *more])


RIGHT = "correct horse"


class Events:
    """A mount's events from now on. An awaited event is found however late it comes, and however short the state
    lasts."""

    def __init__(self, mount):
        self.connection = mount.send("events")
        self.lines = self.connection.makefile("rb")
        self.first = self.next()

    def next(self):
        try:
            return json.loads(self.lines.readline())
        except (TimeoutError, ValueError) as error:
            stop(f"no event: {error!r}")

    def skip_to(self, *names):
        """The next event of one of these names."""
        while (event := self.next())["event"] not in names:
            pass
        return event

    def close(self):
        self.lines.close()
        self.connection.close()


def unlock_all(mount, what):
    """Unlocks by the command, after `forget` with the secret."""
    code, said = command(mount, "unlock", RIGHT if mount.policy == "forget" else None)
    expect(f"{what}: unlock {said}", code, 0)
    expect_unlocked(mount, what)


# Lock files: everything that can exist at the path


def make_file(path):
    open(path, "x").close()


def move_in(path):
    open(path + ".other", "x").close()
    os.rename(path + ".other", path)


def hard_link(path):
    open(path + ".other", "x").close()
    os.link(path + ".other", path)
    os.unlink(path + ".other")


KINDS = {
    "created": make_file,
    "moved in": move_in,
    "a hard link": hard_link,
    "a dangling link": lambda path: os.symlink("nowhere", path),
    "a directory": os.mkdir,
    "a fifo": os.mkfifo,
}


def remove(path):
    os.rmdir(path) if os.path.isdir(path) else os.unlink(path)


@case
def lock_file(mount):
    """Removal of the lock file unlocks with refuse. With forget the vault needs the secret, once the file is
    removed."""
    for kind, make in KINDS.items():
        make(mount.lock_file)
        expect_locked(mount, kind)
        code, said = command(mount, "unlock", RIGHT)
        expect(f"{kind}: unlock while it is there: {said}", code, LOCK_FILE_EXISTS)
        if mount.lock_file not in said:
            stop(f"the lock file is not named: {said}")
        os.kill(mount.daemon, signal.SIGUSR2)
        expect_still_locked(mount, f"{kind}, SIGUSR2")
        remove(mount.lock_file)
        if mount.policy == "forget":
            expect_still_locked(mount, f"{kind} removed, the keys forgotten", 0.1)
            os.kill(mount.daemon, signal.SIGUSR2)
            expect_still_locked(mount, f"{kind} removed, SIGUSR2")
            unlock_all(mount, kind)
        expect_unlocked(mount, f"{kind} removed")


@case
def moved_away(mount):
    make_file(mount.lock_file)
    expect_locked(mount, "made")
    os.rename(mount.lock_file, mount.lock_file + ".away")
    if mount.policy == "forget":
        unlock_all(mount, "moved away")
    expect_unlocked(mount, "moved away")


@case
def short(mount):
    """Removed before the next periodic check, with no event from inotify(7): the vault does not stay locked."""
    behind, shown = (os.path.join(mount.directory, name) for name in ("behind", "shown"))
    for directory in (behind, shown):
        os.mkdir(directory, 0o700)
    mount.unmount()
    code, said = run(["bindfs", "-o", "entry_timeout=0,attr_timeout=0,negative_timeout=0", behind, shown])
    expect(f"bindfs: {said}", code, 0)
    # Past the kernel, as another machine does it.
    lock = os.path.join(behind, "lock")
    mount.mount("--lock-file", os.path.join(shown, "lock"))
    for _ in range(5):
        make_file(lock)
        expect_locked(mount, "made")
        os.unlink(lock)
        if mount.policy == "forget":
            unlock_all(mount, "gone")
        expect_unlocked(mount, "gone")
    mount.unmount()
    run(["fusermount3", "-u", shown])
    mount.mount()


@case
def several(mount):
    """Locked until all files are removed. unlock names those that exist."""
    other = os.path.join(mount.directory, "other")
    os.mkdir(other, 0o700)
    second = os.path.join(other, "second")
    mount.unmount()
    mount.mount("--lock-file", second)
    for first_gone, last_gone in ((mount.lock_file, second), (second, mount.lock_file)):
        make_file(first_gone)
        expect_locked(mount, "one of two")
        make_file(last_gone)
        answer = mount.ask("unlock", secret=SECRET)
        expect("both are named", sorted(answer.get("lockFiles", [])), sorted([mount.lock_file, second]))
        os.unlink(first_gone)
        expect_still_locked(mount, "the other is there", 0.05)
        code, said = command(mount, "unlock", RIGHT)
        expect(f"one of two: {said}", (code, last_gone in said, first_gone in said), (LOCK_FILE_EXISTS, True, False))
        os.unlink(last_gone)
        if mount.policy == "forget":
            unlock_all(mount, "both gone")
        expect_unlocked(mount, "both gone")


@case
def command_idle_signal(mount):
    """Objects that are no lock file: `unlock` and SIGUSR2 unlock, with forget only the secret does."""

    def lock_by_command():
        code, said = command(mount, "lock")
        expect(f"lock: {said}", code, 0)
        expect("again", command(mount, "lock")[0], 0)

    # The idle time alone, because on a busy machine it would come before the other triggers.
    triggers = {
        "command": (lock_by_command, []),
        "signal": (lambda: os.kill(mount.daemon, signal.SIGUSR1), []),
        "idle": (lambda: None, ["--idle-lock", "300ms"]),
    }
    for reason, (trigger, options) in triggers.items():
        if options:
            mount.unmount()
            mount.mount(*options)
        for way in ("command", "signal"):
            stream = Events(mount)
            trigger()
            if stream.first["state"] != "locked":
                stream.skip_to("did-lock")
            expect_locked(mount, reason)
            expect("why", mount.ask("status")["lock"]["reasons"], [reason])
            if mount.policy == "forget":
                os.kill(mount.daemon, signal.SIGUSR2)
                expect_still_locked(mount, f"{reason}, SIGUSR2")
                expect("unlock", command(mount, "unlock", RIGHT)[0], 0)
            elif way == "signal":
                os.kill(mount.daemon, signal.SIGUSR2)
            else:
                expect("unlock", command(mount, "unlock")[0], 0)
            stream.skip_to("did-unlock")
            stream.close()
            if reason != "idle":
                expect_unlocked(mount, f"{reason} by {way}")


@case
def idle(mount):
    """Idleness means no requests, whatever is open or mapped. Requests postpone it, statfs and status do not."""
    mount.unmount()
    mount.mount("--idle-lock", "1s")
    with open(mount.path("file")) as held, mmap.mmap(held.fileno(), 0, prot=mmap.PROT_READ) as pages:
        used = time.monotonic()
        end = used + 2
        while time.monotonic() < end:
            begin = time.monotonic()
            refused(os.stat, mount.path("file"))
            descriptor = refused(os.open, mount.path("file"), os.O_RDONLY)
            if isinstance(descriptor, int):
                os.close(descriptor)
            time.sleep(0.05)
            # If this program had to wait meanwhile, the lock is correct.
            state = mount.state()
            if state != "unlocked" and time.monotonic() - used < ONE_SECOND:
                stop(f"{state} while it is used")
            if state != "unlocked":
                mount.unlock()
            used = begin

        def locked_beside_statfs():
            os.statvfs(mount.mountpoint)
            return mount.state() == "locked"

        until("an idle lock that open files and statfs do not put off", locked_beside_statfs)
        if time.monotonic() - used < ONE_SECOND:
            stop(f"idle after {time.monotonic() - used:.2f} s")
        expect("read", refused(os.pread, held.fileno(), 4, 0), "ENOKEY")

        def read_after_unlock():
            """On a busy machine the next idle lock may come first."""
            mount.unlock()
            return refused(os.pread, held.fileno(), 4, 0) == b"text"

        def mapped_after_unlock():
            """A process that meets the lock in a page fault gets a signal."""
            mount.unlock()
            code = wait(fork(lambda: pages[:] != b"text"), "a program with a mapping")
            expect("the same mapping", code, 0, -signal.SIGBUS)
            return code == 0

        until("a read by the same descriptor", read_after_unlock)
        until("a read by the same mapping", mapped_after_unlock)


@case
def grace(mount):
    """Ends when no handle is open for writing, or at its deadline. Removing the lock file meanwhile cancels it."""
    mount.unmount()
    # Longer than any step of this test.
    mount.mount("--grace", "120s")
    writer = os.open(mount.path("written"), os.O_RDWR | os.O_CREAT)
    # The writer continues, then closes the file, which ends the grace period.
    make_file(mount.lock_file)
    until("the will-lock", lambda: mount.ask("status")["lock"]["seen"])
    for _ in range(10):
        os.write(writer, b"x" * 1000)
        expect("a read in the grace", content(mount), "text")
    os.close(writer)
    mount.await_state("locked")
    os.unlink(mount.lock_file)
    if mount.policy == "forget":
        unlock_all(mount, "grace")
    expect_unlocked(mount, "grace")
    # Cancelled.
    writer = os.open(mount.path("written"), os.O_RDWR)
    stream = Events(mount)
    make_file(mount.lock_file)
    stream.skip_to("will-lock")
    os.unlink(mount.lock_file)
    expect("after a lock file that came and went", stream.skip_to("did-lock", "did-unlock")["event"], "did-unlock")
    stream.close()
    expect_unlocked(mount, "a lock file that came and went")
    os.close(writer)
    # At its deadline, because a writer stays.
    mount.unmount()
    mount.mount("--grace", "500ms")
    writer = os.open(mount.path("written"), os.O_RDWR)
    begin = time.monotonic()
    mount.ask("lock")
    if time.monotonic() - begin < 0.5:
        stop(f"a grace of 0.5 s took {time.monotonic() - begin:.2f} s")
    expect("a write after the grace", refused(os.write, writer, b"y"), "ENOKEY")
    unlock_all(mount, "after the deadline")
    expect("what was written in the grace", os.pread(writer, 10_001, 0), b"x" * 10_000)
    os.close(writer)


@case
def no_writer_no_grace(mount):
    mount.unmount()
    # Longer than the timeout for a lock.
    mount.mount("--grace", "120s")
    with open(mount.path("file")):
        mount.lock()
    mount.unlock()


@case
def secret(mount):
    """After forget: no secret, wrong ones, too many, the right one. The same descriptors work again."""
    if mount.policy != "forget":
        return
    with open(mount.path("file"), "rb") as held:
        held.peek()
        directory = os.open(mount.mountpoint, os.O_RDONLY)
        mount.lock()
        expect("no secret", mount.ask("unlock")["code"], "secret-needed")

        def right_after_wrong():
            """On a busy machine the second that the daemon requires between attempts may have passed."""
            begin = time.monotonic()
            code, said = command(mount, "unlock", "wrong")
            expect(f"a wrong secret: {said}", code, WRONG_SECRET)
            answer = mount.ask("unlock", secret=SECRET)
            if answer.get("state") != "unlocked":
                return answer
            if time.monotonic() - begin < 1:
                stop("the right secret at once after a wrong one:", answer)
            mount.lock()

        answer = until("two secrets in a second", right_after_wrong)
        expect("the right one at once after it", answer.get("code"), "too-many-tries")
        expect_locked(mount, "after a wrong secret")
        time.sleep(answer["retryAfterSeconds"])
        unlock_all(mount, "the right secret")
        expect("the same descriptor", os.pread(held.fileno(), 4, 0), b"text")
        if "file" not in os.listdir(directory):
            stop("the directory that was open lists nothing")
        os.close(directory)


# The lock file's directory


def away(path):
    os.rename(path, path + ".away")


def replaced(path):
    os.rename(path, path + ".away")
    os.mkdir(path, 0o700)


def over_mounted(path):
    run(["mount", "-t", "tmpfs", "-o", "mode=700", "none", path])


VANISHING = {
    "deleted": lambda base: os.rmdir(f"{base}/inner/locks"),
    "renamed": lambda base: away(f"{base}/inner/locks"),
    "replaced": lambda base: replaced(f"{base}/inner/locks"),
    "its parent renamed": lambda base: away(f"{base}/inner"),
    "an ancestor renamed": lambda base: away(base),
    "an ancestor replaced": lambda base: replaced(base),
}
ROOT_ONLY = {
    "over-mounted": lambda base: over_mounted(f"{base}/inner/locks"),
    "an ancestor over-mounted": lambda base: over_mounted(base),
    "unmounted": lambda base: run(["umount", "-l", f"{base}/inner/locks"]),
}


@case
def directory(mount):
    """Vanished or replaced: the vault is locked until an unlock accepts the current directory, and watches it."""
    ways = VANISHING | (ROOT_ONLY if os.geteuid() == 0 else {})
    mount.unmount()
    for name, vanish in ways.items():
        base = os.path.join(mount.directory, "outer")
        locks = f"{base}/inner/locks"
        os.makedirs(locks, 0o700)
        if name == "unmounted":
            over_mounted(locks)
        mount.mount("--lock-file", f"{locks}/lock")
        vanish(base)
        # The watch notices it, not the request (Manual/Locking.md).
        until(f"the reason, {name}", lambda: mount.ask("status")["lock"]["reasons"] == ["lock-directory"])
        expect_locked(mount, name)
        # The vault stays locked, even if the directory is restored by hand.
        os.makedirs(f"{base}/inner", 0o700, exist_ok=True)
        expect_still_locked(mount, f"{name}, put right", 0.06)
        unlock_all(mount, name)
        expect(f"{name}: made again", os.path.isdir(locks), True)
        make_file(f"{locks}/lock")
        expect_locked(mount, f"{name}, armed again")
        os.unlink(f"{locks}/lock")
        if mount.policy == "forget":
            unlock_all(mount, name)
        expect_unlocked(mount, f"{name}, armed again")
        mount.unmount()
        for path in (locks, base):
            run(["umount", path]) if os.path.ismount(path) else None
        for path in os.listdir(mount.directory):
            if path.startswith("outer"):
                shutil.rmtree(os.path.join(mount.directory, path))
    mount.mount()


@case
def unreadable(mount):
    """A directory that this user may not read: locked, whatever is in it."""
    if os.geteuid() == 0:
        return
    os.chmod(mount.lock_directory, 0)
    expect_locked(mount, "mode 000")
    expect("unlock", command(mount, "unlock", RIGHT)[0], LOCK_FILE_EXISTS)
    os.chmod(mount.lock_directory, 0o700)
    if mount.policy == "forget" or mount.state() == "locked":
        unlock_all(mount, "readable again")
    expect_unlocked(mount, "readable again")


# At mount, and events


@case
def there_at_mount(mount):
    mount.unmount()
    for kind, make in KINDS.items():
        make(mount.lock_file)
        mount.mount()
        expect(f"{kind}: the first request", content(mount), "ENOKEY")
        expect("state", mount.state(), "locked")
        remove(mount.lock_file)
        if mount.policy == "forget":
            unlock_all(mount, kind)
        expect_unlocked(mount, kind)
        mount.unmount()
    mount.mount()


@case
def events(mount):
    """`vaultfs events --json`: each lock is announced, completed and reported with its receipt, each unlock too."""
    stream = subprocess.Popen(
        [mount.binary, "events", "--json", mount.mountpoint], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    lines = (json.loads(line) for line in stream.stdout)
    expect("the first line", (first := next(lines))["event"], "state")
    expect("the state", first["state"], "unlocked")
    for trigger, reason in (("file", "lock-file"), ("command", "command"), ("signal", "signal")):
        mount.lock_by(trigger)
        expect(trigger, content(mount), "ENOKEY")
        mount.unlock_from(trigger)
        seen = {}
        while "did-unlock" not in seen:
            event = next(lines)
            if event["mountpoint"] != os.path.realpath(mount.mountpoint) or "time" not in event:
                stop(event)
            seen[event["event"]] = event
        seen.pop("denied", None)
        expect(f"{trigger}: the order", list(seen), ["will-lock", "did-lock", "will-unlock", "did-unlock"])
        expect(trigger, seen["will-lock"]["reasons"], [reason])
        receipt = seen["did-lock"]["receipt"]
        expect("the receipt", (receipt["complete"], receipt["unpurged"], receipt["policy"]), (True, [], mount.policy))
        expect("forgotten", receipt["keysForgotten"], ["complete", "unless-open"] if mount.policy == "forget" else [])
    mount.unmount()
    expect("the end of the stream", [e["event"] for e in lines if e["event"] != "denied"], ["unmounted"])
    expect("its exit code", stream.wait(30), 0)
    mount.mount()


def triggers(mount, options):
    mount.initialise()
    mount.mount()
    with open(mount.path("file"), "w") as file:
        file.write("text")
    for function in cases:
        if not options.cases or function.__name__ in options.cases:
            begin = time.monotonic()
            function(mount)
            mount.unmount()
            mount.mount()
            expect_unlocked(mount, function.__name__)
            print(f"{function.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    mount.verify()


main(triggers)
