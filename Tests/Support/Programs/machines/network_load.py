"""The programs that scripts/system/network runs on a mounted vault. They write with fsync and report the acknowledged
data, check that it exists, and publish changes and follow them from another machine. `network_load.py MODE
MOUNTPOINT [ARGUMENT]`."""
import contextlib
import errno
import fcntl
import mmap
import os
import struct
import sys
import time

RECORD = 100
BLOCK = 6000


def record(number):
    return (b"record %08d " % number).ljust(RECORD - 1, b".") + b"\n"


def block(number):
    """Fills more than a chunk. Each part of it contains its number."""
    return (b"%08d," % number) * (BLOCK // 9)


def say(text):
    print(text, flush=True)


def write(mount, seconds):
    """Appends a record and overwrites a block, both fsynced, again and again."""
    log = os.open(mount + "/log", os.O_RDWR | os.O_CREAT)
    table = os.open(mount + "/table", os.O_RDWR | os.O_CREAT)
    number = os.fstat(log).st_size // RECORD
    end = time.monotonic() + int(seconds)
    slowest = 0.0
    while time.monotonic() < end:
        begun = time.monotonic()
        try:
            os.pwrite(log, record(number), number * RECORD)
            os.fsync(log)
            os.pwrite(table, block(number), 0)
            os.fsync(table)
        except OSError as error:
            say("error %s after %.1f s" % (errno.errorcode[error.errno], time.monotonic() - begun))
            return
        slowest = max(slowest, time.monotonic() - begun)
        say("acknowledged %d" % number)
        number += 1
    say("wrote to the end, the slowest took %.1f s" % slowest)


def check(mount, last):
    """Expects all records up to `last`, and a block that was written."""
    last = int(last)
    with open(mount + "/log", "rb") as log:
        content = log.read()
    for number in range(last + 1):
        if content[number * RECORD : (number + 1) * RECORD] != record(number):
            return say("record %d of %d is not as it was written" % (number, last))
    with open(mount + "/table", "rb") as table:
        found = table.read()
    # A part of an unacknowledged overwrite may be there.
    number = int(found[:8])
    for older in (number - 1, number):
        if older >= last and is_mixture(found, block(older), block(older + 1)):
            return say("all %d records are there, and the table of %d" % (last + 1, number))
    say("the table is of %r, acknowledged %d" % (sorted(set(found.split(b","))), last))


def is_mixture(found, older, newer):
    return len(found) == len(older) and all(byte in pair for byte, *pair in zip(found, older, newer))


def publish(mount, again=None):
    """Makes changes of every kind, with fsync. The second time it changes the existing objects."""
    def put(name, content):
        fd = os.open(mount + "/" + name, os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(fd, len(content))
        os.pwrite(fd, content, 0)
        os.fsync(fd)
        os.close(fd)

    put("big", block(2 if again else 1) * 50)
    put("grows", b"x" * (30000 if again else 10000))
    if again:
        put("new", b"second")
        os.rename(mount + "/new", mount + "/replaced")
        os.unlink(mount + "/goes")
    else:
        put("replaced", b"first")
        put("goes", b"goes")
    say("published")


def follow(mount, which):
    """Waits until all of it is visible: to new openings and, the second time, to a handle and a mapping that a
    background process from the first call holds."""
    begun = time.monotonic()
    expected = {"big": block(int(which)) * 50, "grows": b"x" * (30000 if which == "2" else 10000),
                "replaced": b"second" if which == "2" else b"first"}
    if which == "1" and os.fork() == 0:
        stay(mount)
    while time.monotonic() < begun + 60:
        found = {}
        for name in expected:
            try:
                with open(mount + "/" + name, "rb") as file:
                    found[name] = file.read()
            except OSError as error:
                found[name] = errno.errorcode[error.errno]
        is_gone = not os.path.exists(mount + "/goes")
        if found == expected and is_gone == (which == "2"):
            if which == "2":
                while not os.path.exists("/tmp/stayed") and time.monotonic() < begun + 60:
                    time.sleep(0.1)
                if not os.path.exists("/tmp/stayed"):
                    return say("the handle that was open has not seen it")
            return say("seen %s after %.1f s" % (which, time.monotonic() - begun))
        time.sleep(0.1)
    say("not seen: %r" % {name: bytes(found[name])[:20] if isinstance(found[name], bytes) else found[name] for name in found})


def stay(mount):
    """Keeps a handle and a mapping open until both show the second publication."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    end = time.monotonic() + 120
    with open(mount + "/big", "rb", buffering=0) as file:
        mapping = mmap.mmap(file.fileno(), 50 * len(block(1)), mmap.MAP_SHARED, mmap.PROT_READ)
        while time.monotonic() < end:
            time.sleep(0.2)
            try:
                if os.pread(file.fileno(), 8, 0) == b"00000002" and mapping[:8] == b"00000002":
                    open("/tmp/stayed", "w").close()
                    break
            except OSError:
                pass
    os._exit(0)


def watch(mount, seconds):
    """Reads the other machine's writes meanwhile. Each record must be as written, each block whole. Measures how long the block
    stayed the same while three or more records came."""
    end = time.monotonic() + int(seconds)
    looks = wrong = errors = 0
    stayed, last, since, before = 0.0, None, 0.0, 0
    kinds = set()
    while time.monotonic() < end:
        looks += 1
        try:
            with open(mount + "/table", "rb") as table:
                found = table.read(8)
                wrong += bool(found) and not found.isdigit()
            with open(mount + "/log", "rb") as log:
                content = log.read()
            records = len(content) // RECORD
            for number in range(records):
                wrong += content[number * RECORD : (number + 1) * RECORD] != record(number)
            if found != last:
                last, since, before = found, time.monotonic(), records
            elif records >= before + 3:
                stayed = max(stayed, time.monotonic() - since)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                errors += 1
                kinds.add(errno.errorcode[error.errno])
        time.sleep(0.05)
    kinds = "".join(" " + kind for kind in sorted(kinds))
    say("watched %d times: %d wrong, %d errors%s, old for %.1f s" % (looks, wrong, errors, kinds, stayed))


def lock(mount, hold, patience=0):
    """Takes a lock as WriterLock does, and retries for `patience` seconds. Another descriptor must then be refused."""
    def take(kind):
        # A new descriptor each time. A descriptor that was open during the server's absence may be useless.
        fd = None
        while fd is None:
            # MooseFS remembers for a moment that the name was absent, and then refuses to make the file: EEXIST.
            with contextlib.suppress(FileExistsError):
                fd = os.open(mount + "/probe", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return None
        return fd

    begun = time.monotonic()
    while take(fcntl.F_WRLCK) is None:
        if time.monotonic() > begun + int(patience):
            return say("held by another")
        time.sleep(0.1)
    if take(fcntl.F_RDLCK) is not None:
        return say("had twice")
    say("locked after %.1f s" % (time.monotonic() - begun))
    time.sleep(int(hold))


if __name__ == "__main__":
    # Otherwise a failed mount would look like one that contains everything.
    if not os.path.ismount(sys.argv[2]):
        sys.exit("%s is no mount point" % sys.argv[2])
    {"write": write, "check": check, "publish": publish, "follow": follow, "watch": watch, "lock": lock}[sys.argv[1]](*sys.argv[2:])
