"""A mount that locks, for the programs that test it: its control socket, its lock file, and waits with a timeout."""

import base64
import ctypes
import errno
import glob
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

from mounting import Mount

libc = ctypes.CDLL(None, use_errno=True)
SECRET = {"kind": "passphrase", "bytes": base64.b64encode(b"correct horse").decode()}
# No step of a test takes this long on any machine. A longer step hangs.
PATIENCE = 30
# Errors of system calls on a mount whose daemon has died.
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.EINTR, errno.ENODEV)
children = set()


def stop(*what):
    """Ends the program with a line."""
    sys.exit("FAILED: " + " ".join(map(str, what)))


def hangs(what):
    """Ends the program, and prints where its children, and any process that cannot be killed, are in the kernel
    (only root can read that)."""
    for stat in glob.glob("/proc/[0-9]*/task/*/stat"):
        try:
            with open(stat) as file, open(stat[:-4] + "stack") as stack:
                fields = file.read().rsplit(")", 1)[1].split()
                if int(fields[1]) == os.getpid() or fields[0] == "D":
                    print(f"{stat[:-5]} {fields[0]}:\n{stack.read()}", file=sys.stderr)
        except OSError:
            pass
    stop(what)


def until(what, condition, seconds=PATIENCE):
    """Repeats `condition` until its result is true, and returns the result."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            hangs(f"waited {seconds} s for {what}")
        time.sleep(0.001)
    return result


def refused(action, *arguments):
    """The outcome of an action on a locked vault: its result, or the name of its error."""
    try:
        return action(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


class Locking(Mount):
    """A mount with one lock file in its own directory, and one of the two policies."""

    def __init__(self, binary, directory, policy="refuse"):
        super().__init__(binary, directory)
        self.policy = policy
        self.lock_directory = os.path.join(directory, "locks")
        self.lock_file = os.path.join(self.lock_directory, "lock")
        os.makedirs(self.lock_directory, mode=0o700, exist_ok=True)

    def mount(self, *arguments):
        super().mount("--lock-file", self.lock_file, "--on-lock", self.policy, *arguments)
        self.socket_path = self.find_socket()

    def path(self, *names):
        return os.path.join(self.mountpoint, *names)

    # The control socket

    def find_socket(self):
        """The path as Control's RuntimeDirectory builds it: FNV-1a of the mountpoint."""
        digest = 0xCBF29CE484222325
        for byte in os.fsencode(os.path.realpath(self.mountpoint)):
            digest = (digest ^ byte) * 0x100000001B3 % (1 << 64)
        places = ["/run/vaultfs"] if os.geteuid() == 0 else [os.environ.get("XDG_RUNTIME_DIR", "") + "/vaultfs"]
        for place in places + [f"/run/user/{os.geteuid()}/vaultfs", f"/tmp/vaultfs-{os.geteuid()}"]:
            if os.path.exists(found := f"{place}/mount-{digest:016x}.socket"):
                return found
        sys.exit("mounted, and no control socket to be found")

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(PATIENCE)
        connection.connect(self.socket_path)
        return connection

    def send(self, request, **fields):
        """Sends without waiting. `receive` returns the reply."""
        connection = self.connect()
        connection.sendall(json.dumps({"request": request, **fields}).encode() + b"\n")
        return connection

    @staticmethod
    def receive(connection):
        """One line. None if the daemon has closed the connection."""
        try:
            with connection, connection.makefile("rb") as lines:
                line = lines.readline()
        except ConnectionError:
            return None
        except TimeoutError:
            hangs("the daemon does not answer")
        return json.loads(line) if line.endswith(b"\n") else None

    def ask(self, request, **fields):
        return self.receive(self.send(request, **fields)) or stop(f"{request}: the daemon hung up")

    def state(self):
        return self.ask("status")["state"]

    def await_state(self, state):
        until(f"state {state}", lambda: self.state() == state)

    # Locks and unlocks

    def lock(self):
        """Locks and returns the receipt, which must be complete."""
        answer = self.ask("lock")
        if not answer.get("receipt", {}).get("complete"):
            stop("lock:", answer)
        return answer["receipt"]

    def unlock(self):
        fields = {"secret": SECRET} if self.policy == "forget" else {}
        answer = self.ask("unlock", **fields)
        if answer.get("state") != "unlocked":
            stop("unlock:", answer)

    def lock_by(self, trigger):
        """`trigger`: file, command or signal. Returns when the vault is locked."""
        if trigger == "file":
            open(self.lock_file, "x").close()
        elif trigger == "signal":
            os.kill(self.daemon, signal.SIGUSR1)
        if trigger == "command":
            self.lock()
        else:
            self.await_state("locked")

    def unlock_from(self, trigger):
        if trigger == "file":
            os.unlink(self.lock_file)
        if self.policy == "forget" or trigger == "command":
            self.unlock()
        elif trigger == "signal":
            os.kill(self.daemon, signal.SIGUSR2)
        self.await_state("unlocked")

    # The daemon

    def memory(self, field="VmRSS"):
        """A value in KiB, or another field of /proc/PID/status."""
        with open(f"/proc/{self.daemon}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(field + ":"))

    def descriptors(self):
        """The number of the daemon's open descriptors. 0 unless run by root, because only root can see those of a
        process that is not dumpable."""
        if os.geteuid() != 0:
            return 0
        return len(os.listdir(f"/proc/{self.daemon}/fd"))

    def verify(self, with_reader=True):
        """Unmounts. The vault must be undamaged according to `vaultfs verify` and to the independent reader, which
        is slow."""
        self.unmount()
        self.run(self.binary, "verify", self.vault, "--passfile", self.passfile, timeout=300)
        if with_reader:
            self.read("--require-sealed")


def fork(function, *arguments):
    """Runs `function` in a child. Its result is the exit code, 0 for None. Returns the process id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        children.add(pid)
        return pid
    status = 1
    try:
        status = function(*arguments) or 0
    except BaseException as error:
        import traceback
        traceback.print_exc()
    finally:
        os._exit(status)


def wait(pid, what, seconds=PATIENCE):
    """The wait status of a child, in the form of Popen.returncode: -N for a signal. A child that does not end is a
    failure."""
    code = until(f"the end of {what} ({pid})", lambda: _ended(pid), seconds)[0]
    children.discard(pid)
    return code


def _ended(pid):
    found, status = os.waitpid(pid, os.WNOHANG)
    return (os.waitstatus_to_exitcode(status),) if found else None


def finish(pids, what):
    for pid in pids:
        code = wait(pid, what)
        if code:
            stop(f"{what}: ended with {code}")


def run(arguments, seconds=PATIENCE, **keywords):
    """Runs a command that must not hang. Returns (exit code, output)."""
    process = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **keywords)
    try:
        said = process.communicate(timeout=seconds)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        hangs(f"{' '.join(arguments)}: hangs")
    return process.returncode, said


def zombie(pid):
    """Returns true if a process has ended, even if it is still a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def ended(pid):
    """Returns true if all its threads have ended. A main thread that has ended stays a zombie until the others end."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) <= 1 and zombie(pid)
    except FileNotFoundError:
        return True


def mounted(mount):
    """Also true for a mount whose daemon is dead, which os.path.ismount does not recognize."""
    with open("/proc/self/mounts") as mounts:
        return f" {mount.mountpoint} " in mounts.read()


def syncfs(path):
    """syncfs(2)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        if libc.syncfs(fd):
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(fd)


def noise(seed, size):
    """`size` bytes that depend on `seed`, in which no two pages are alike."""
    block = random.Random(seed).randbytes(min(size, 4099))
    return (block * (size // len(block) + 1))[:size] if block else b""


def parse_random(parser, events, usual):
    """Parses the command line of a program that makes random calls on a mount, with `usual` of `events` beside them unless
    --events names others."""
    parser.add_argument("--binary", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--chunk-size", choices=("4K", "64K", "1M"), default="4K")
    parser.add_argument("--policy", choices=("refuse", "forget"), default="refuse")
    parser.add_argument("--events", default=",".join(usual))
    options = parser.parse_args()
    options.events = [event for event in options.events.split(",") if event]
    if unknown := set(options.events) - set(events):
        parser.error(f"unknown events: {unknown}")
    return options


def main(function):
    """The common command line of these programs. Leaves nothing mounted in any case."""
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--policy", choices=("refuse", "forget"), default="refuse")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    mount = Locking(options.binary, options.directory, options.policy)
    try:
        function(mount, options)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        mount.abandon()
