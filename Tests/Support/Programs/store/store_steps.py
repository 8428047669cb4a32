"""Tries vaultfs on a store: a directory of any file system. Prints a line for each step: its name, the result, a detail.

usage: store_steps.py VAULTFS STORE [--remount COMMAND] [--quick] [--full]
       store_steps.py --list [--quick] [--full]: the names of the steps, for scripts/lib/judge.py

A step of FILES runs in a plain directory of the store and in the mount. What the store lacks must be absent in the mount
too, with the same errno: the result is then "absent". A step of VAULT is vaultfs's own. Nothing runs if the store is not
mounted. --remount: what unmounts and mounts the store again. --full: the store is small, and is filled. --quick: only some
steps. Other results: "ok", "refused" (init says that the store is not fit), "FAILED". The exit code is 1 after a failure. A
row without a line for each step has failed.
"""
import contextlib
import errno
import fcntl
import json
import mmap
import os
import random
import select
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time

VAULTFS, STORE = (sys.argv[1:3] + ["", ""])[:2]
STORE = os.path.abspath(STORE)
REMOUNT = sys.argv[sys.argv.index("--remount") + 1] if "--remount" in sys.argv else None
QUICK, FULL = "--quick" in sys.argv, "--full" in sys.argv
LIMIT = 300
WORK = "" if "--list" in sys.argv else tempfile.mkdtemp()
VAULT, MOUNT, LOCK = f"{STORE}/vault", f"{WORK}/mount", f"{WORK}/lock"
PASS, NEW = f"{WORK}/pass", f"{WORK}/new"
FILES, OWN = [], []
QUICK_FILES = ("create", "overwrite", "rename", "directories", "symlink", "hardlink", "fifo", "chmod", "chown", "times")
QUICK_OWN = ("second_writer", "lock_unlock", "remount", "links", "kill", "rekey", "remove_all")
# Words of status for what the store lacks if a step is absent.
LACKS = {
    "hardlink": "hard links", "symlink": "symbolic links", "chmod": "modes", "xattr": "extended attributes",
    "times": "times finer than",
}


class Absent(Exception):
    """The store takes a change and does not keep it."""


def files(step):
    FILES.append(step)
    return step


def own(step):
    OWN.append(step)
    return step


def blob(count, seed=1):
    return random.Random(seed).randbytes(count)


def put(path, data, sync=False):
    with open(path, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def get(path):
    with open(path, "rb") as file:
        return file.read()


def equal(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: {str(found)[:60]} instead of {str(expected)[:60]}")


def kept(found, expected, what):
    if found != expected:
        raise Absent(f"{what} is not kept")


def run(*command, codes=(0,)):
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, text=True)
    text = " | ".join((result.stdout + result.stderr).strip().splitlines()[-2:])
    if result.returncode not in codes:
        raise RuntimeError(f"{' '.join(command[:3])[-40:]}: exit code {result.returncode}: {text[:300]}")
    return text


# MARK: Files


@files
def create(root):
    for size in (0, 1, 4095, 4096, 4097, 100_000):
        put(f"{root}/f{size}", blob(size, size))
    for size in (0, 1, 4095, 4096, 4097, 100_000):
        equal(get(f"{root}/f{size}"), blob(size, size), "content")
    with contextlib.suppress(FileExistsError):
        os.close(os.open(f"{root}/f1", os.O_CREAT | os.O_EXCL | os.O_RDWR))
        raise AssertionError("O_EXCL opened an existing file")


@files
def overwrite(root):
    data = bytearray(blob(300_000))
    put(f"{root}/over", data)
    with open(f"{root}/over", "r+b", buffering=0) as file:
        for offset in range(0, 290_000, 9000):
            os.pwrite(file.fileno(), b"N" * 700, offset)
            data[offset : offset + 700] = b"N" * 700
        os.fsync(file.fileno())
    equal(get(f"{root}/over"), bytes(data), "content")


@files
def append(root):
    for number in range(20):
        with open(f"{root}/log", "ab") as file:
            file.write(blob(1000, number))
    equal(get(f"{root}/log"), b"".join(blob(1000, number) for number in range(20)), "content")


@files
def truncate(root):
    put(f"{root}/cut", blob(50_000))
    os.truncate(f"{root}/cut", 10_001)
    os.truncate(f"{root}/cut", 20_000)
    equal(get(f"{root}/cut"), blob(50_000)[:10_001] + bytes(9999), "content")


@files
def rename(root):
    put(f"{root}/a", b"a")
    put(f"{root}/b", b"b")
    with open(f"{root}/b", "rb") as file:
        os.rename(f"{root}/a", f"{root}/b")
        equal(file.read(), b"b", "the replaced file, open")
    equal(get(f"{root}/b"), b"a", "content")
    with open(f"{root}/b", "r+b") as file:
        os.rename(f"{root}/b", f"{root}/c")
        file.write(b"c")
    equal(get(f"{root}/c"), b"c", "content")


@files
def directories(root):
    os.makedirs(f"{root}/d/sub/deep")
    put(f"{root}/d/sub/f", b"f")
    os.mkdir(f"{root}/e")
    os.rename(f"{root}/d/sub", f"{root}/e/sub")
    try:
        os.rename(f"{root}/d", f"{root}/e")
        raise AssertionError("a directory that is not empty was replaced")
    except OSError as error:
        # SFTP has no error for it.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EPERM):
            raise
    os.mkdir(f"{root}/empty")
    os.rename(f"{root}/e", f"{root}/empty")
    equal(sorted(os.listdir(f"{root}/empty/sub")), ["deep", "f"], "listing")
    for number in range(300):
        put(f"{root}/d/{number}", b"x")
    equal(len(os.listdir(f"{root}/d")), 300, "entries")
    shutil.rmtree(f"{root}/d")
    shutil.rmtree(f"{root}/empty")


@files
def delete(root):
    put(f"{root}/gone", blob(5000))
    with open(f"{root}/gone", "r+b", buffering=0) as file:
        os.unlink(f"{root}/gone")
        file.write(b"still")
        equal(os.pread(file.fileno(), 5000, 0), b"still" + blob(5000)[5:], "a removed file, open")


@files
def names(root):
    for name in ("Upper", "upper", "con", "a:b*?", "dot.", "space ", "\u00fc", "u\u0308", "\udcff", "n" * 140, "n" * 180):
        put(f"{root}/{name}", name.encode(errors="surrogateescape"))
    for name in ("Upper", "upper", "con", "a:b*?", "dot.", "space ", "\u00fc", "u\u0308", "\udcff", "n" * 140, "n" * 180):
        equal(get(f"{root}/{name}"), name.encode(errors="surrogateescape"), name)


@files
def symlink(root):
    os.symlink("target", f"{root}/link")
    equal(os.readlink(f"{root}/link"), "target", "target")


@files
def hardlink(root):
    put(f"{root}/one", b"one")
    os.link(f"{root}/one", f"{root}/two")
    kept(os.stat(f"{root}/one").st_nlink, 2, "the number of links")
    kept(os.stat(f"{root}/one").st_ino, os.stat(f"{root}/two").st_ino, "the inode number")
    put(f"{root}/two", b"two")
    equal(get(f"{root}/one"), b"two", "content")


@files
def fifo(root):
    try:
        os.mkfifo(f"{root}/fifo")
    finally:
        # exfat-fuse makes an empty file, for which the kernel has the error EIO.
        if os.path.lexists(f"{root}/fifo") and not stat.S_ISFIFO(os.lstat(f"{root}/fifo").st_mode):
            os.unlink(f"{root}/fifo")
            raise PermissionError(errno.EPERM, "another type of file")


@files
def chmod(root):
    put(f"{root}/mode", b"x")
    os.chmod(f"{root}/mode", 0o640)
    kept(os.stat(f"{root}/mode").st_mode & 0o7777, 0o640, "the mode")


@files
def chown(root):
    put(f"{root}/owner", b"x")
    os.chown(f"{root}/owner", 4321, 4321)
    kept(os.stat(f"{root}/owner").st_uid, 4321, "the owner")
    equal(get(f"{root}/owner"), b"x", "content")


@files
def xattr(root):
    # A vault stores it under such a name, which another vault refuses (FileFormat, Store-15).
    attribute = "user.name" if root == MOUNT else "user.vaultfs.name"
    put(f"{root}/attribute", b"x")
    os.setxattr(f"{root}/attribute", attribute, b"value")
    equal(os.getxattr(f"{root}/attribute", attribute), b"value", "attribute")


@files
def times(root):
    put(f"{root}/time", b"x" * 5000, sync=True)
    os.utime(f"{root}/time", ns=(1_234_567_891_123_456_789,) * 2)
    distance = abs(os.stat(f"{root}/time").st_mtime_ns - 1_234_567_891_123_456_789)
    if distance >= 2_000_000_000:
        raise AssertionError(f"{distance} ns off")
    kept(distance, 0, "the time")


@files
def holes(root):
    put(f"{root}/hole", blob(65536))
    with open(f"{root}/hole", "r+b") as file:
        subprocess.run(["fallocate", "-p", "-o", "8192", "-l", "8192", f"{root}/hole"], check=False, capture_output=True)
        os.ftruncate(file.fileno(), 1 << 20)
    equal(len(get(f"{root}/hole")), 1 << 20, "size")


@files
def mapping(root):
    put(f"{root}/map", bytes(100_000))
    with open(f"{root}/map", "r+b") as file, mmap.mmap(file.fileno(), 100_000) as pages:
        pages[5000:5005] = b"hello"
        pages.flush()
    equal(get(f"{root}/map")[5000:5005], b"hello", "content")


@files
def locks(root):
    put(f"{root}/locked", b"x")
    with open(f"{root}/locked", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def database(root, mode):
    connection = sqlite3.connect(f"{root}/{mode}.db", isolation_level=None)
    kept(connection.execute(f"pragma journal_mode={mode}").fetchone()[0], mode, "the journal mode")
    connection.execute("create table t (a, b)")
    for number in range(40):
        connection.execute("insert into t values (?, ?)", (number, blob(500, number)))
    equal(connection.execute("pragma integrity_check").fetchone()[0], "ok", "integrity")
    connection.close()


@files
def sqlite_rollback(root):
    database(root, "delete")


@files
def sqlite_wal(root):
    database(root, "wal")


@files
def git(root):
    os.environ.update(
        HOME=WORK, GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@b",
        GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*")
    run("git", "init", "-q", f"{root}/git")
    for number in range(20):
        put(f"{root}/git/{number}", blob(3000, number))
    run("git", "-C", f"{root}/git", "add", ".")
    run("git", "-C", f"{root}/git", "commit", "-qm", "one")
    put(f"{root}/git/1", b"changed")
    run("git", "-C", f"{root}/git", "commit", "-qam", "two")
    run("git", "-C", f"{root}/git", "fsck", "--strict")


# MARK: The vault


def mount(*options):
    os.makedirs(MOUNT, exist_ok=True)
    return run(VAULTFS, "mount", "-q", *options, "--lock-file", LOCK, "--passfile", PASS, VAULT, MOUNT)


def unmount():
    return run(VAULTFS, "unmount", "-q", MOUNT)


def verify():
    return run(VAULTFS, "verify", "--passfile", PASS, VAULT)


def daemons():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = get(f"/proc/{pid}/cmdline").split(b"\0")
            if MOUNT.encode() in words and os.path.basename(words[0]) == b"vaultfs":
                found.append(int(pid))
    return found


def kill_daemon():
    for pid in daemons():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while daemons():
        time.sleep(0.05)
    subprocess.run(["fusermount3", "-uz", MOUNT], capture_output=True, check=False)


def remount_store():
    if REMOUNT and os.geteuid() == 0:
        run("bash", "-c", REMOUNT)
        store_mounted()


def manifest():
    found = {}
    for directory, _, names_here in os.walk(MOUNT):
        for name in names_here:
            path = f"{directory}/{name}"
            if stat.S_ISREG(os.lstat(path).st_mode):
                found[os.path.relpath(path, MOUNT)] = get(path)
    return found


@own
def second_writer():
    other = f"{WORK}/other"
    os.makedirs(other, exist_ok=True)
    return run(VAULTFS, "mount", "-q", "--passfile", PASS, VAULT, other, codes=(5,))


@own
def lock_unlock():
    put(f"{MOUNT}/secret", b"secret")
    run(VAULTFS, "lock", "-q", MOUNT)
    with contextlib.suppress(OSError):
        get(f"{MOUNT}/secret")
        raise AssertionError("read while locked")
    run(VAULTFS, "unlock", "-q", MOUNT)
    equal(get(f"{MOUNT}/secret"), b"secret", "content")


@own
def remount():
    before = manifest()
    put(f"{MOUNT}/timed", blob(100_000), sync=True)
    with open(f"{MOUNT}/timed", "r+b", buffering=0) as file:
        # Into the log, which has finer times than some stores.
        os.pwrite(file.fileno(), b"T" * 700, 5000)
        os.fsync(file.fileno())
        os.utime(file.fileno(), ns=(1_234_567_891_123_456_789,) * 2)
        shown = os.fstat(file.fileno()).st_mtime_ns
    unmount()
    remount_store()
    detail = verify()
    equal("unsealed" in detail, False, f"files that the unmount has not sealed: {detail}")
    mount()
    equal(os.stat(f"{MOUNT}/timed").st_mtime_ns, shown, "a file's time")
    after = manifest()
    equal([name for name in before if after.get(name) != before[name]], [], "files that differ")
    return detail


@own
def links():
    """A file changed under one of its names is the same under the other, in the next mount too."""
    first, second = f"{MOUNT}/first", f"{MOUNT}/second"
    put(first, b"x")
    try:
        os.link(first, second)
    except OSError as error:
        return f"none: {error.strerror}"
    for size in (5000, 9000, 3):
        equal([os.stat(name).st_nlink for name in (first, second)], [2, 2], "the numbers of links")
        put(second, blob(size))
        unmount()
        mount()
        for name in (first, second):
            equal((os.stat(name).st_size, get(name)), (size, blob(size)), "size and content")


@own
def kill():
    put(f"{MOUNT}/synced", blob(300_000), sync=True)
    data = bytearray(blob(300_000))
    with open(f"{MOUNT}/synced", "r+b", buffering=0) as file:
        for offset in range(0, 290_000, 9000):
            os.pwrite(file.fileno(), b"K" * 700, offset)
            data[offset : offset + 700] = b"K" * 700
        os.fsync(file.fileno())
    directory = os.open(MOUNT, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(directory)
    os.close(directory)
    for number in range(10):
        put(f"{MOUNT}/unsynced {number}", blob(30_000, number))
    kill_daemon()
    remount_store()
    mount()
    equal(get(f"{MOUNT}/synced"), bytes(data), "an fsynced file")
    for name in os.listdir(MOUNT):
        if name.startswith("unsynced"):
            get(f"{MOUNT}/{name}")
    unmount()
    verify()
    mount()


@own
def storm():
    """A kill in the middle of many creations."""
    os.makedirs(f"{MOUNT}/storm")
    child = os.fork()
    if child == 0:
        number = 0
        with contextlib.suppress(BaseException):
            while True:
                put(f"{MOUNT}/storm/{number}", b"x" * 100)
                number += 1
        os._exit(0)
    while not os.path.exists(f"{MOUNT}/storm/50"):
        time.sleep(0.01)
    kill_daemon()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    remount_store()
    mount()
    for name in os.listdir(f"{MOUNT}/storm"):
        if get(f"{MOUNT}/storm/{name}") not in (b"", b"x" * 100):
            raise AssertionError("wrong content")
    unmount()
    verify()
    mount()


@own
def slot_change():
    run(VAULTFS, "slot", "change", "-q", "--passfile", PASS, "--new-passfile", NEW, "--scrypt-logn", "10", VAULT)
    os.replace(NEW, PASS)
    unmount()
    mount()
    equal(get(f"{MOUNT}/secret"), b"secret", "content")


@own
def rekey():
    unmount()
    run(VAULTFS, "rekey", "-q", "--yes", "--passfile", PASS, VAULT)
    verify()
    mount()
    equal(get(f"{MOUNT}/secret"), b"secret", "content")


@own
def disk_full():
    put(f"{MOUNT}/before", blob(100_000), sync=True)
    with contextlib.suppress(OSError):
        with open(f"{MOUNT}/filler", "wb", buffering=0) as file:
            for number in range(4000):
                file.write(blob(1 << 20, number))
        raise AssertionError("the store is not full")
    equal(get(f"{MOUNT}/before"), blob(100_000), "content")
    os.unlink(f"{MOUNT}/filler")
    put(f"{MOUNT}/after", blob(100_000), sync=True)
    unmount()
    verify()
    mount()


@own
def remove_all():
    for name in os.listdir(MOUNT):
        path = f"{MOUNT}/{name}"
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    equal(os.listdir(MOUNT), [], "left")
    unmount()
    verify()


# MARK: The run


def outcome(step, *arguments):
    """The result of a step and its detail, or the errno with which it fails. In a process of its own, with a time limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            result, detail = "ok", step(*arguments) or ""
        except Absent as error:
            result, detail = "not kept", error
        except OSError as error:
            result, detail = errno.errorcode.get(error.errno or 0, "an error"), error
        except BaseException as error:  # noqa: BLE001
            result, detail = "wrong", f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps([result, str(detail)[:600]]).encode())
        os._exit(0)
    os.close(writing)
    answer = os.read(reading, 4096) if select.select([reading], [], [], LIMIT)[0] else b""
    os.close(reading)
    if not answer:
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(answer) if answer else ["wrong", f"no answer in {LIMIT} s, or killed"]


def on_mount(step):
    """A step of the mount, which the step before may not have left mounted."""

    def run_mounted(*arguments):
        if not os.path.ismount(MOUNT):
            mount()
        return step(*arguments)

    return run_mounted


def store_mounted():
    """Without the store, all steps would pass on the directory below."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        types = [line.split()[2] for line in file if line.split()[1] == STORE]
    if not types:
        raise AssertionError("the store is not mounted")
    return types[-1]


def init():
    return run(VAULTFS, "init", "-q", "--scrypt-logn", "10", "--no-recovery-key", "--passfile", PASS, VAULT)


def shown_lacks(works):
    """status names what the store lacks, and nothing else."""
    text = subprocess.run([VAULTFS, "status", "--verbose", MOUNT], capture_output=True, text=True, check=True).stdout
    line = next(line for line in text.splitlines() if line.startswith("store lacks"))
    equal({step: words not in line for step, words in LACKS.items() if step in works},
          {step: works[step] for step in works if step in LACKS}, line)
    return line


def planned():
    """The steps of a row, in their order."""
    yield from (store_mounted, init, mount)
    yield from (step for step in FILES if not QUICK or step.__name__ in QUICK_FILES)
    yield shown_lacks
    for step in OWN:
        if (FULL or step is not disk_full) and (not QUICK or step.__name__ in QUICK_OWN):
            yield step


def name(step):
    return step.__name__.replace("_", "-")


def compared(step, plain):
    """A step in the plain directory and in the mount."""
    (expected, _), (found, detail) = outcome(step, plain), outcome(on_mount(step), MOUNT)
    if found == "ok":
        return "ok", detail
    if found == expected and found != "wrong":
        return "absent", f"{found}, as on the store"
    if expected == "not kept" and found == "EPERM":
        return "absent", "EPERM, and the store does not keep it"
    return "FAILED", f"{found}: {detail}; on the store: {expected}"


def verdict(step, plain, works):
    """The result of a step and its detail. Notes in `works` what the mount can."""
    if step in FILES:
        result, detail = compared(step, plain)
        works[step.__name__] = result == "ok"
        return result, detail
    if step in (store_mounted, init, mount):
        found, detail = outcome(step)
    else:
        found, detail = outcome(on_mount(step), *([works] if step is shown_lacks else []))
    if found == "ok":
        return "ok", detail
    if step is init and found == "wrong" and detail.startswith("RuntimeError"):
        # Exit code 2 or 1 with the reason: the store is not fit, and the user knows at once.
        return "refused", detail
    return "FAILED", detail if found == "wrong" else f"{found}: {detail}"


def main():
    put(PASS, b"passphrase")
    put(NEW, b"another passphrase")
    for path in (PASS, NEW):
        os.chmod(path, 0o600)
    plain, works, failures = f"{STORE}/plain", {}, 0
    os.mkdir(plain)
    try:
        for step in planned():
            result, detail = verdict(step, plain, works)
            print(f"{name(step)}\t{result}\t{detail}".replace("\n", " ")[:400], flush=True)
            failures += result == "FAILED"
            if result == "refused" or step is store_mounted and result != "ok":
                break
    finally:
        kill_daemon()
        shutil.rmtree(WORK, ignore_errors=True)
        shutil.rmtree(plain, ignore_errors=True)
        shutil.rmtree(VAULT, ignore_errors=True)
    return 1 if failures else 0


if "--list" in sys.argv:
    print("\n".join(map(name, planned())))
else:
    sys.exit(main())
