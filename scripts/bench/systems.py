"""The file systems that are compared: how each is made, mounted, and unmounted so that none of its processes
remains."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PASSPHRASE = "correct horse battery"
PATIENCE = 30
# For a program with much work, or for a daemon with much data to make durable.
LONG_PATIENCE = 900


class BenchError(Exception):
    """An error message for people."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def median(values):
    """The median of the values that could be measured."""
    measured = [value for value in values if value is not None]
    return statistics.median(measured) if measured else None


@contextlib.contextmanager
def workspace(parent):
    """A new directory in `parent`. An error and a signal remove it too, after the mounts in it."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    directory = tempfile.mkdtemp(prefix="vaultfs-bench.", dir=parent)
    try:
        yield directory
    except (BenchError, OSError) as error:
        sys.exit(f"bench: {error}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run(*command, input=None, check=True):
    """Runs a program without a terminal. Returns its output, or raises an error if it fails."""
    words = shlex.join(command)[:200]
    try:
        done = subprocess.run(command, input=input or "", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=LONG_PATIENCE)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{words}: not done within {LONG_PATIENCE} s") from None
    if check and done.returncode:
        raise BenchError(f"{words} failed: {done.stdout.strip()[-500:]}")
    return done.stdout


def wait_for(condition, what, seconds=PATIENCE):
    """Returns when `condition()` is true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise BenchError(f"{what}: not within {seconds} s")
        time.sleep(0.01)


def processes_of(path):
    """The processes whose arguments contain `path`: the daemons that serve a mountpoint."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if os.fsencode(path) in file.read().split(b"\0") and int(pid) != os.getpid():
                    found.append(int(pid))
        except OSError:
            pass
    return found


class System:
    """One file system over its own directory. The commands' `{c}`, `{m}`, `{p}` are the directory, the mountpoint
    and a file with the passphrase."""

    def __init__(self, name, work, make=None, mount=None, version=None, stdin=False):
        self.name = name
        self.store = f"{work}/{name}.store"
        self.passfile = f"{work}/passphrase"
        # The plain directory is its own mountpoint.
        self.mountpoint = f"{work}/{name}.mnt" if mount else self.store
        self._make, self._mount, self._version, self._stdin = make, mount, version, stdin
        self.peak_kibibytes = 0

    def _command(self, words):
        return [word.format(c=self.store, m=self.mountpoint, p=self.passfile) for word in words]

    def make(self):
        os.makedirs(self.store, mode=0o700)
        os.makedirs(self.mountpoint, mode=0o700, exist_ok=True)
        if self._make:
            run(*self._command(self._make))

    def mount(self):
        if not self._mount:
            return
        run(*self._command(self._mount), input=PASSPHRASE + "\n" if self._stdin else None)
        wait_for(lambda: os.path.ismount(self.mountpoint), f"mount of {self.name}")

    def unmount(self):
        """Returns when its processes have ended."""
        if not self._mount:
            return
        self.note_memory()
        served = processes_of(self.mountpoint)
        wait_for(self._is_unmounted, f"unmount of {self.name}")
        wait_for(lambda: not set(served) & set(processes_of(self.mountpoint)), f"end of {self.name}",
                 LONG_PATIENCE)

    def _is_unmounted(self):
        if os.path.ismount(self.mountpoint):
            run("fusermount3", "-u", self.mountpoint, check=False)
        return not os.path.ismount(self.mountpoint)

    def remount(self):
        """Makes its own cache cold."""
        self.unmount()
        self.mount()

    def abandon(self):
        """Cleans up at the end, in any state."""
        if self._mount:
            run("fusermount3", "-uz", self.mountpoint, check=False)

    @property
    def daemons(self):
        return processes_of(self.mountpoint) if self._mount else []

    def note_memory(self):
        """Peak resident memory (VmHWM, proc(5)) of the processes that serve the mount, over all mounts."""
        for pid in self.daemons:
            try:
                with open(f"/proc/{pid}/status") as file:
                    peak = re.search(r"VmHWM:\s+(\d+)", file.read())
            except OSError:
                continue
            if peak:
                self.peak_kibibytes = max(self.peak_kibibytes, int(peak[1]))

    @property
    def version(self):
        """The version that its program prints. Empty if it prints none."""
        if not self._version or not shutil.which(self._version[0]):
            return ""
        found = re.search(r"\d+(\.\d+)+", run(*self._version, check=False))
        return found[0] if found else ""


class NullServer(System):
    """Serves in the foreground, and keeps its tree in a file between two mounts."""

    def __init__(self, work, binary):
        super().__init__("null", work, mount=["-"])
        self._server = None
        self._words = [binary, f"{work}/null.state", self.mountpoint]

    def mount(self):
        self._server = subprocess.Popen(self._words, stdin=subprocess.DEVNULL)
        wait_for(lambda: os.path.ismount(self.mountpoint) or self._server.poll() is not None, "mount of null")
        if self._server.poll() is not None:
            raise BenchError("the null server ended")

    def unmount(self):
        wait_for(self._is_unmounted, "unmount of null")
        wait_for(lambda: self._server.poll() is not None, "end of null")

    def abandon(self):
        super().abandon()
        if self._server:
            self._server.kill()
            self._server.wait()


def vaultfs(work, binaries, name="vaultfs", make=()):
    """vaultfs. `make` has more arguments of `vaultfs init`. The lock file is in the work directory, because the
    default one locks every mount of this user."""
    binary = f"{binaries}/vaultfs"
    return System(
        name, work, [binary, "init", "--passfile", "{p}", *make, "{c}"],
        [binary, "mount", "--passfile", "{p}", "--lock-file", f"{work}/run/device.lock", "{c}", "{m}"],
        [binary, "--version"])


def prepare(work):
    """The files that the mounts need in the work directory."""
    os.mkdir(f"{work}/run", 0o700)
    os.environ["XDG_RUNTIME_DIR"] = f"{work}/run"
    with open(f"{work}/passphrase", "w") as file:
        file.write(PASSPHRASE + "\n")


def package(name):
    """The command that prints the version of a package, because not all peers print their own."""
    return ["dpkg-query", "-W", "-f", "${Version}", name]


def systems(work, binaries):
    """All available systems, and the names of those that are not installed."""
    peers = [
        System("bindfs", work, None, ["bindfs", "{c}", "{m}"], package("bindfs")),
        System("gocryptfs", work, ["gocryptfs", "-init", "-q", "-passfile", "{p}", "{c}"],
               ["gocryptfs", "-q", "-passfile", "{p}", "{c}", "{m}"], package("gocryptfs")),
        System("securefs", work, ["securefs", "create", "--format", "4", "--pass", PASSPHRASE, "{c}"],
               ["securefs", "mount", "-b", "--pass", PASSPHRASE, "{c}", "{m}"], package("securefs")),
        System("encfs", work, None, ["encfs", "--standard", "--stdinpass", "{c}", "{m}"], package("encfs"),
               stdin=True),
    ]
    there = [peer for peer in peers if shutil.which(peer.name)]
    absent = [peer.name for peer in peers if not shutil.which(peer.name)]
    return [System("plain", work), NullServer(work, f"{binaries}/null-server"), *there, vaultfs(work, binaries)], absent
