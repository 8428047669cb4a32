"""Programs deliver files into a locked inbox. Nothing of them can be read back before the unlock, by any call, and after the
last close the daemon's memory has neither content nor secret (only root can look there, in a daemon without memfd_secret(2)).

inbox.py --binary VAULTFS --directory DIR [--policy refuse|forget] [CASE...]

The cases: programs hostile memory"""

import ctypes
import errno
import http.server
import mmap
import os
import random
import shutil
import stat
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "..", "Reader"))
from locking import fork, libc, main, noise, refused, stop, until, wait  # noqa: E402

TREE = {"letter.txt": 900, "deep/er/film.mkv": 3_000_000, "deep/empty": 0, "chunk": 4096, "two chunks": 8192}


def expect(what, found, wanted="ENOKEY"):
    if found != wanted:
        stop(f"{what}: {found!r:.100}, not {wanted!r:.100}")


def call(*arguments, **keywords):
    """Runs a program that must succeed. Returns its output."""
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, **keywords)
    if done.returncode:
        stop(f"{arguments}: exit {done.returncode}\n{done.stdout.decode(errors='replace')}")
    return done.stdout


def get(path):
    with open(path, "rb") as file:
        return file.read()


def make_tree(top):
    for number, (name, size) in enumerate(TREE.items()):
        path = os.path.join(top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(noise(number, size))
        os.utime(path, ns=(10**18, 10**18 + number))
    return top


class Inbox:
    """A vault whose root leads to the directory `inbox`, a maildir in it, and a directory that locks as a whole."""

    def __init__(self, mount):
        self.mount = mount
        mount.initialise()
        # procmail changes its group if root runs it.
        mount.mount(*(["-o", "allow_other"] if os.geteuid() == 0 else []))
        for name in ("inbox/mail/tmp", "inbox/mail/new", "inbox/mail/cur", "private"):
            os.makedirs(mount.path(name))
        # Before other requests: a lock counts a file as one that arrives while the kernel has not sent its release.
        with open(mount.path("inbox/old"), "wb") as file:
            file.write(b"old")
        mount.run(mount.binary, "protect", "-q", "inbox", mount.mountpoint)
        mount.run(mount.binary, "protect", "-q", "-R", "inbox", mount.path("inbox"))
        mount.run(mount.binary, "protect", "-q", "complete", mount.path("private"))
        self.sent = {}

    def path(self, name):
        return self.mount.path("inbox", name)

    def purged(self):
        """Waits until the daemon has purged what was closed: its jobs are done in order."""
        self.mount.ask("lock")

    def check_unreadable(self):
        for name in self.sent:
            expect(name, refused(get, self.path(name)))
        expect("the list", refused(os.listdir, self.path("")))
        expect("what was there", refused(get, self.path("old")))

    def finish(self):
        """Unlocks, and compares what has arrived with what was sent."""
        self.mount.unlock()
        for name, content in self.sent.items():
            if get(self.path(name)) != content:
                stop(f"{name} is not what was sent")


# MARK: Programs

def deliver_scp(inbox, sent, directory):
    # The program that it takes for ssh runs the command here, or sftp-server.
    remote = os.path.join(directory, "remote")
    with open(remote, "w") as script:
        script.write('#!/bin/sh\nwhile [ "$1" != host ]; do shift; done; shift\n'
                     '[ "$1" != sftp ] || exec /usr/lib/openssh/sftp-server\nexec sh -c "$*"\n')
    os.chmod(remote, 0o755)
    for way in ("-O", "-s"):
        call("scp", way, "-q", "-p", "-S", remote, f"{sent}/deep/er/film.mkv", f"host:{inbox.path('scp' + way)}")
        inbox.sent["scp" + way] = get(f"{sent}/deep/er/film.mkv")


def deliver_rsync(inbox, sent, directory):
    call("rsync", "-a", f"{sent}/", inbox.path("rsync"))
    call("rsync", "-a", "--inplace", f"{sent}/letter.txt", inbox.path("inplace"))
    inbox.sent |= {f"rsync/{name}": get(f"{sent}/{name}") for name in TREE} | {"inplace": get(f"{sent}/letter.txt")}
    for number, name in enumerate(TREE):
        expect("a time", os.stat(inbox.path(f"rsync/{name}")).st_mtime_ns, 10**18 + number)


def deliver_curl(inbox, sent, directory):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=sent)

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        call("curl", "-sS", "-R", "-o", inbox.path("curl"), f"http://127.0.0.1:{server.server_port}/chunk")
        server.shutdown()
    inbox.sent["curl"] = get(f"{sent}/chunk")


def deliver_mail(inbox, sent, directory):
    message = b"From: a@example.org\nTo: b@example.org\nSubject: hello\n\n" + b"A line of the letter.\n" * 400
    home = os.path.join(directory, "home")
    os.makedirs(f"{home}/bin", 0o700)
    rules = {"maildrop": f'to "{inbox.path("mail")}"\n',
             "procmail": f"MAILDIR={home}\nDEFAULT={inbox.path('mail')}/\nORGMAIL=/dev/null\n"}
    for program, lines in rules.items():
        with open(f"{home}/{program}", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(lines)
    environment = os.environ | {"HOME": home}
    for program in ("maildrop", "procmail"):
        # Without its set-ID bits, with which FUSE lets it into mounts with allow_other only.
        copy = shutil.copyfile(shutil.which(program), f"{home}/bin/{program}")
        os.chmod(copy, 0o755)
        call(copy, f"{home}/{program}", input=message, env=environment, cwd=home)
    inbox.messages = message


def check_mail(inbox):
    names = os.listdir(inbox.path("mail/new"))
    expect("messages", len(names), 2)
    for name in names:
        # Each program may add a header of its own.
        if not get(inbox.path(f"mail/new/{name}")).endswith(inbox.messages.split(b"\n\n", 1)[1]):
            stop(f"{name} is not the message")
    expect("leftovers", os.listdir(inbox.path("mail/tmp")), [])


def deliver_ffmpeg(inbox, sent, directory):
    for name in ("recording.mkv", "recording.mp4"):
        arguments = ["ffmpeg", "-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc=duration=2:size=320x240:rate=10",
                     "-c:v", "mpeg4", "-bitexact", "-fflags", "+bitexact"]
        call(*arguments, f"{directory}/{name}")
        call(*arguments, inbox.path(name))
        inbox.sent[name] = get(f"{directory}/{name}")


def deliver_browser(inbox, sent, directory):
    content = get(f"{sent}/deep/er/film.mkv")
    # It keeps the name with an empty file first, writes beside it, and replaces it.
    os.close(os.open(inbox.path("download.iso"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    with open(inbox.path("download.iso.part"), "xb", buffering=0) as part:
        for start in range(0, len(content), 30_000):
            part.write(content[start:start + 30_000])
        os.fsync(part)
    os.rename(inbox.path("download.iso.part"), inbox.path("download.iso"))
    folder = os.open(inbox.path(""), os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)
    inbox.sent["download.iso"] = content


def deliver_recorder(inbox, sent, directory):
    """A program that was writing when the lock came."""
    with inbox.recorder as file:
        file.write(b"after" * 5000)
    inbox.sent["recorder"] = b"before" * 5000 + b"after" * 5000


def programs(mount, options):
    inbox = Inbox(mount)
    sent = make_tree(os.path.join(mount.directory, "sent"))
    inbox.recorder = open(inbox.path("recorder"), "xb")
    inbox.recorder.write(b"before" * 5000)
    inbox.recorder.flush()
    mount.lock()
    for deliver in (deliver_recorder, deliver_scp, deliver_rsync, deliver_curl, deliver_mail, deliver_ffmpeg, deliver_browser):
        deliver(inbox, sent, mount.directory)
        inbox.check_unreadable()
    arrived = mount.ask("status")["lock"]["arrivedFiles"]
    if arrived < len(inbox.sent):
        stop(f"status counts {arrived} files")
    inbox.finish()
    check_mail(inbox)
    # After the unlock it is like everything else: it can be changed, and the next lock refuses it.
    with open(inbox.path("curl"), "ab") as file:
        file.write(b"more")
    inbox.sent["curl"] += b"more"
    mount.lock()
    inbox.check_unreadable()
    with open(inbox.path("last"), "xb") as file:
        file.write(b"kept by the unmount")
    inbox.sent["last"] = b"kept by the unmount"
    mount.verify()
    mount.mount()
    mount.lock()
    inbox.finish()
    mount.verify()


# MARK: Hostile calls

class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128)]


def by_handle(path, directory):
    """open_by_handle_at(2) of a handle that was taken while the file was open."""
    handle, mount_id = Handle(bytes=128), ctypes.c_int()
    if libc.syscall(303, -100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount_id), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    fd = libc.syscall(304, directory, ctypes.byref(handle), os.O_RDONLY)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return fd


def probes(inbox, path, pinned):
    """Each way to something in a file that was closed. All must be refused."""
    through = f"/proc/self/fd/{pinned}"
    folder = os.open(inbox.path(""), os.O_RDONLY | os.O_DIRECTORY)
    found = {
        "read": lambda: get(path), "O_PATH": lambda: get(through), "O_DIRECT": lambda: os.open(path, os.O_RDONLY | os.O_DIRECT),
        "write": lambda: os.open(path, os.O_WRONLY), "append": lambda: os.open(path, os.O_WRONLY | os.O_APPEND),
        "O_TRUNC": lambda: os.open(path, os.O_WRONLY | os.O_TRUNC), "truncate": lambda: os.truncate(path, 1),
        "truncate by O_PATH": lambda: os.truncate(through, 1), "execute": lambda: os.execv(path, ["x"]),
        "symlink": lambda: os.symlink("x", path + ".soft"),
        "copy": lambda: shutil.copyfile(path, path + ".copy"), "list": lambda: os.listdir(inbox.path("")),
        "attribute": lambda: os.getxattr(path, "user.note"), "set attribute": lambda: os.setxattr(path, "user.note", b"x"),
        "list by descriptor": lambda: os.listdir(folder), "class": lambda: os.setxattr(path, "user.vaultfs.class", b"none"),
        "unlink what was there": lambda: os.unlink(inbox.path("old")),
        "replace what was there": lambda: os.rename(path, inbox.path("old")),
    }
    if os.geteuid() == 0:
        found["handle"] = lambda: by_handle(path, folder)
    for name, probe in found.items():
        expect(f"{name} of {os.path.basename(path)}", refused(probe))
    os.close(folder)
    os.link(path, path + ".link")
    expect("read by another name", refused(get, path + ".link"))
    os.unlink(path + ".link")
    if stat.S_IMODE(os.stat(path).st_mode) != 0o755:
        stop("its mode")


def racer(inbox, names, stopping):
    """Tries to read files from the moment their names appear. Returns 1 if one can be read."""
    rng = random.Random(os.getpid())
    while not stopping[0]:
        path = inbox.path(rng.choice(names))
        for flags in (os.O_RDONLY, os.O_RDWR):
            try:
                fd = os.open(path, flags)
            except OSError as error:
                if error.errno not in (errno.ENOKEY, errno.ENOENT):
                    raise
                continue
            print(f"{path} was opened", flush=True)
            return 1
    return 0


def hostile(mount, options):
    inbox = Inbox(mount)
    mount.lock()
    for size in (0, 1, 5000, 300_000):
        path = inbox.path(f"secret{size}")
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o755)
        data = noise(size, size)
        os.write(fd, data)
        if size:
            pages = mmap.mmap(fd, size)
            expect("a mapping of the handle", pages[:], data)
            pages[0:1] = b"m"
            pages.close()
            os.pwrite(fd, data[:1], 0)
        pinned = os.open(path, os.O_PATH)
        expect("another open", refused(os.open, path, os.O_RDONLY))
        os.close(fd)
        inbox.sent[os.path.basename(path)] = data
        for _ in range(3):
            probes(inbox, path, pinned)
            inbox.purged()
        os.close(pinned)
    names = [f"raced{number}" for number in range(100)]
    stopping = memoryview(mmap.mmap(-1, 1))
    racers = [fork(racer, inbox, names, stopping) for _ in range(3)]
    for number, name in enumerate(names):
        inbox.sent[name] = noise(number, 20_000)
        with open(inbox.path(name), "xb") as file:
            file.write(inbox.sent[name])
        os.rename(inbox.path(name), inbox.path(name + "~"))
        os.rename(inbox.path(name + "~"), inbox.path(name))
    stopping[0] = 1
    for pid in racers:
        expect("a racer", wait(pid, "a racer"), 0)
    inbox.check_unreadable()
    inbox.finish()
    mount.verify()


# MARK: Memory

def memory(mount, options):
    from memory_needles import aes, scan
    import vaultfs_reader
    from vaultfs_reader import Configuration, DirectoryRecord, FileHeader, hkdf
    inbox = Inbox(mount)
    with open(os.path.join(mount.vault, "vaultfs.json"), "rb") as file:
        keys = Configuration(file.read()).open("passphrase", b"correct horse")

    def opened(directory, name, is_root=False):
        with open(os.path.join(directory, "vaultfs.dir"), "rb") as file:
            return os.path.join(directory, os.fsdecode(DirectoryRecord(file.read(), keys, is_root).encode(name)[0]))

    def needles(name, content):
        secrets = []
        # The reader derives the keys of a file from its secret, and keeps only them.
        vaultfs_reader.hkdf = lambda secret, *others: secrets.append(secret) or hkdf(secret, *others)
        with open(opened(opened(mount.vault, b"inbox", True), name), "rb") as file:
            header = FileHeader(file.read(128), keys)
        vaultfs_reader.hkdf = hkdf
        return {"content": [content[at:at + 32] for at in (0, 5000, len(content) - 40)], "cipher key": aes(header.cipher_key),
                "mac key": aes(header.mac_key), "attribute key": aes(header.xattr_key[:32]) + aes(header.xattr_key[32:]),
                "secret": [secrets[-1][:16], secrets[-1][16:]]}

    mount.lock()
    content = os.urandom(200_000)
    file = open(inbox.path("open"), "xb", buffering=0)
    file.write(content)
    while_open = scan(mount.daemon, needles(b"open", content))
    # The secret is wiped when its keys have been derived.
    if any(found == 0 for kind, (found, _) in while_open.items() if kind != "secret"):
        stop(f"nothing to be found while it is open: {while_open}")
    closed = os.urandom(300_000)
    with open(inbox.path("closed"), "xb", buffering=0) as other:
        other.write(closed)
    file.close()
    inbox.purged()
    for name, data in ((b"open", content), (b"closed", closed)):
        found = scan(mount.daemon, needles(name, data))
        if any(count for count, _ in found.values()):
            stop(f"after the last close of {name}: {found}")
    inbox.sent |= {"open": content, "closed": closed}
    inbox.finish()
    mount.verify()


def run(mount, options):
    for case in options.cases:
        {"programs": programs, "hostile": hostile, "memory": memory}[case](mount, options)


main(run)
