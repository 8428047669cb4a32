"""Random calls with random arguments. Only the plain tree and the seed decide them, so a seed replays them."""

import dataclasses
import errno
import fcntl
import os
import stat
import struct

from beside_calls import AT_SYMLINK_NOFOLLOW, MODES, OFD_GETLK, OFD_SETLK, UTIME_NOW, UTIME_OMIT
from beside_tree import brief
from probe import fallocate

ANN, BEN, STAFF = 20001, 20002, 30001
SLOTS = 8
NOREPLACE, EXCHANGE = 1, 2
# An access control list: the tag of an entry, and if it has an id.
ACL_TAGS = {1: False, 2: True, 4: False, 8: True, 16: False, 32: False}
# Call → how often it is among those from which one is drawn.
WEIGHTS = {
    "open": 14, "reopen": 1, "close": 3, "fstat": 2, "lseek": 2, "seek_data": 1, "seek_hole": 1,
    "read": 3, "pread": 4, "preadv": 1, "write": 7, "pwrite": 9, "writev": 2, "ftruncate": 4, "truncate": 3,
    "fallocate": 5, "copy": 3, "fsync": 1, "fdatasync": 1, "map": 4,
    "mkdir": 8, "mknod": 3, "symlink": 4, "readlink": 1, "link": 5, "relink": 1, "rename": 12, "unlink": 5, "rmdir": 3,
    "list": 1, "list_changing": 1,
    "stat": 3, "access": 1, "chmod": 5, "fchmod": 2, "chown": 4, "fchown": 1, "utimens": 4, "futimens": 2,
    "setxattr": 5, "fsetxattr": 1, "getxattr": 1, "removexattr": 2, "flock": 2, "lock_range": 2}
# Calls that need a handle.
ON_HANDLES = {
    "reopen", "close", "fstat", "lseek", "seek_data", "seek_hole", "read", "pread", "preadv", "write", "pwrite",
    "writev", "ftruncate", "fallocate", "copy", "fsync", "fdatasync", "map", "relink", "fchmod", "fchown", "futimens",
    "fsetxattr", "flock", "lock_range"}


@dataclasses.dataclass
class Context:
    """The user of a call (None for the one that runs the program), and the handle of the directory it starts in."""

    user: int | None
    groups: list
    umask: int
    start: int | None

    def __str__(self):
        return f"[user {self.user} {self.groups}, umask {self.umask:o}, start {self.start}]"


class Operations:
    def __init__(self, rng, plain, chunk):
        self.rng, self.plain, self.chunk = rng, plain, chunk
        self.largest = max(200_000, 5 * chunk)
        self.is_root = os.geteuid() == 0
        self.names, self.paths, self.drawn = [self.name() for _ in range(14)], [], 0
        self.modes = ["plain", *MODES] if self.can_zero() else ["plain", "keep", "punch"]
        self.calls = [name for name, weight in WEIGHTS.items() for _ in range(weight)]

    def can_zero(self):
        """A vault can do it on any store, tmpfs cannot."""
        fd = os.open(self.plain.path, os.O_TMPFILE | os.O_WRONLY)
        try:
            fallocate(fd, MODES["zero"], 0, 1)
        except OSError as error:
            return error.errno != errno.EOPNOTSUPP
        finally:
            os.close(fd)
        return True

    def draw(self):
        """A context, a call and its arguments."""
        if self.drawn % 4 == 0:
            self.paths = self.walk()
        self.drawn += 1
        if len(self.paths) > 70 and (names := sorted(os.listdir(self.plain.path))):
            return Context(None, [], 0o022, None), "remove_tree", (self.rng.choice(names),)
        while True:
            name = self.rng.choice(self.calls)
            if name in ON_HANDLES and not self.plain.handles:
                continue
            context = self.context()
            return context, name, getattr(self, name)()

    def walk(self):
        """The paths of the plain tree, with their types."""
        found = []
        for directory, names, files in os.walk(self.plain.path):
            start = os.path.relpath(directory, self.plain.path)
            found += [(os.path.normpath(os.path.join(start, n)), n in names) for n in names + files]
        return sorted(found)

    def shown(self, arguments):
        """Arguments with short words for long names."""
        short = {name: f"<name {n}>" for n, name in enumerate(self.names) if len(name) > 12}
        return " ".join(
            "/".join(short.get(part, part) for part in argument.split("/"))[:300] if isinstance(argument, str)
            else brief(argument) for argument in arguments)

    @staticmethod
    def handles_of(name, arguments):
        """The slots that a call uses."""
        if name not in ON_HANDLES:
            return ()
        return arguments[1:2] if name == "reopen" else arguments[:2] if name == "copy" else arguments[:1]

    # Parts of arguments

    def chance(self, probability):
        return self.rng.random() < probability

    def context(self):
        rng = self.rng
        user = rng.choice([None, None, ANN, BEN]) if self.is_root else None
        start = rng.choice(sorted(self.plain.handles)) if self.plain.handles and self.chance(0.06) else None
        groups = [STAFF] if user == ANN and self.chance(0.5) else []
        return Context(user, groups, rng.choice([0o022, 0o022, 0, 0o077, 0o27]), start)

    def name(self):
        """A name of any length and of any bytes."""
        rng = self.rng
        length = rng.choice([1, 1, 2, 8, 175, 180, 255, rng.randrange(1, 256)])
        kind = rng.randrange(5)
        if kind == 0:
            return rng.choice(
                ["-", ".hidden", "..a", "...", "new\nline", " ", "%s", "vaultfs.dir", "vaultfs.json", "é" * 127])
        if kind < 3:
            return (rng.choice("abcdefgh") * length)[:length]
        return os.fsdecode(bytes(b if b not in b"/\0" else 255 for b in rng.randbytes(length))).replace(".", "_")

    def path(self, directory=None):
        """An existing path, or one that may be new. `directory`: of this kind, usually. No path has "..", so that none
        leaves the tree."""
        rng, kind = self.rng, self.rng.random()
        paths = [path for path, is_directory in self.paths if directory in (None, is_directory)]
        if kind < 0.05:
            long = "/".join(["d" * 255] * 17)
            return rng.choice(["", ".", long, "n" * 256, "none/none", self.new() + "/", self.new() + "/."])
        if kind < 0.75 and paths:
            return rng.choice(paths)
        return self.new()

    def new(self):
        directories = ["."] + [path for path, is_directory in self.paths if is_directory]
        directory, name = self.rng.choice(directories), self.rng.choice(self.names)
        return name if directory == "." else f"{directory}/{name}"

    def target(self):
        return self.new() if self.chance(0.7) else self.path()

    def slot(self):
        return self.rng.choice(sorted(self.plain.handles))

    def length_of(self, slot):
        return min(os.fstat(self.plain.handles[slot]).st_size, self.largest)

    def position(self, slot=None):
        end = self.largest if slot is None else self.length_of(slot)
        return self.offset(self.rng.choice([end, end, self.largest]))

    def offset(self, end):
        rng, border = self.rng, self.rng.choice([self.chunk, self.chunk, 4096])
        at = rng.choice([0, end, rng.randrange(end + 1), rng.randrange(end + 1), rng.randrange(3 * border)])
        if self.chance(0.6):
            at = at // border * border + rng.choice([0, 0, -1, 1])
        return max(0, min(at, self.largest))

    def size(self):
        rng, chunk = self.rng, self.chunk
        return rng.choice([0, 1, 2, 100, 4096, chunk - 1, chunk, chunk + 1, 2 * chunk, rng.randrange(1, 3 * chunk),
                           rng.randrange(1, 20_000), rng.randrange(1, 20_000)])

    def seed(self):
        return self.rng.randrange(1 << 30)

    def mode(self):
        rng = self.rng
        mode = rng.choice([0o644, 0o600, 0o666, 0o755, 0o777, 0o700, 0o1777, 0o2775, 0o4755, 0o6711, 0o640,
                           rng.randrange(0o10000)])
        # Manual/Limits.md: "An ordinary user's mount needs read permission on the backing files."
        return mode if self.is_root else mode | 0o700

    def owners(self):
        """A user and a group. POSIX leaves open if -1 for both changes the ctime."""
        ids = [-1, 0, ANN, BEN, STAFF] if self.is_root else [-1, os.geteuid(), 0]
        user = self.rng.choice(ids)
        return user, self.rng.choice(ids if user != -1 else ids[1:])

    def times(self):
        # Those that any store can keep (Manual/Limits.md).
        moment = self.rng.choice([0, 1, -1, -5, 10 ** 9, 1_500_000_000, 2 ** 31 - 1, 2 ** 31, 2 ** 33, -2 ** 31 + 1])
        invalid = self.rng.choice([0, 10 ** 9, -1])
        nanoseconds = self.rng.choice([0, 1, 500, 999_999_999, UTIME_NOW, UTIME_OMIT, invalid])
        return moment, nanoseconds

    # Handles

    def open(self):
        flags = self.rng.choice([os.O_RDONLY, os.O_RDWR, os.O_RDWR, os.O_RDWR, os.O_WRONLY]) | os.O_NONBLOCK
        for flag, probability in [
                (os.O_CREAT, 0.5), (os.O_EXCL, 0.1), (os.O_TRUNC, 0.1), (os.O_APPEND, 0.12), (os.O_NOFOLLOW, 0.1),
                (os.O_DIRECTORY, 0.07), (os.O_PATH, 0.04), (os.O_SYNC, 0.03), (os.O_DSYNC, 0.03), (os.O_NOATIME, 0.03),
                (os.O_TMPFILE, 0.02)]:
            if self.chance(probability):
                flags |= flag
        return self.rng.randrange(SLOTS), self.path(False), flags, self.mode()

    def reopen(self):
        flags = self.rng.choice([os.O_RDONLY, os.O_RDWR, os.O_WRONLY]) | os.O_NONBLOCK
        return self.rng.randrange(SLOTS), self.slot(), flags

    def close(self):
        return (self.slot(),)

    fstat = fsync = fdatasync = close

    def lseek(self):
        slot, whence = self.slot(), self.rng.choice([os.SEEK_SET, os.SEEK_SET, os.SEEK_CUR, os.SEEK_END])
        if stat.S_ISDIR(os.fstat(self.plain.handles[slot]).st_mode):
            return slot, 0, os.SEEK_SET
        return slot, self.position(slot) * (1 if whence == os.SEEK_SET else self.rng.choice([0, -1])), whence

    def seek_data(self):
        slot = self.slot()
        return slot, self.position(slot)

    seek_hole = ftruncate = seek_data

    # Contents

    def read(self):
        return self.slot(), self.size()

    def pread(self):
        slot = self.slot()
        return slot, self.size(), self.position(slot)

    def sizes(self):
        return [self.size() for _ in range(self.rng.randrange(1, 5))]

    def preadv(self):
        slot = self.slot()
        return slot, self.sizes(), self.position(slot)

    def write(self):
        return self.slot(), self.seed(), self.size()

    def pwrite(self):
        slot = self.slot()
        return slot, self.seed(), self.size(), self.position(slot)

    def writev(self):
        return self.slot(), self.seed(), self.sizes()

    def truncate(self):
        return self.path(False), self.position()

    def fallocate(self):
        slot = self.slot()
        return slot, self.rng.choice(self.modes), self.position(slot), self.size()

    def copy(self):
        source, target = self.slot(), self.slot()
        return source, target, self.size(), self.position(source), self.position(target)

    def map(self):
        slot = self.slot()
        length = self.length_of(slot)
        at = max(0, min(self.position(slot), length - 1))
        seed = self.rng.choice([None, self.seed()])
        # A directory has a length, too. An empty mapping is refused before the file system sees it.
        return slot, at, max(1, min(self.size(), length - at)), seed, self.rng.choice([1, 4, 4, 0])

    # Names

    def mkdir(self):
        return self.target(), self.mode()

    def mknod(self):
        devices = [stat.S_IFCHR, stat.S_IFBLK] if self.is_root else []
        kind = self.rng.choice([stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, *devices])
        return self.target(), kind | self.mode(), os.makedev(0, 0) if kind != stat.S_IFCHR else os.makedev(240, 7)

    def symlink(self):
        # Manual/Limits.md: "The target of a symbolic link has at most 3000 bytes." Linux allows 4095.
        # A small ext4 has blocks of 1 KiB, and a link has one block.
        most = [2999, 3000] if os.statvfs(self.plain.path).f_bsize >= 4096 else [600]
        length = self.rng.choice([None, None, None, 1, 14, 15, 16, 59, 60, 255, 4096, *most])
        return (self.path()[:300] if length is None else ("t/" * length)[:length]), self.target()

    def readlink(self):
        return (self.path(False),)

    def link(self):
        return self.path(False), self.target(), self.chance(0.3)

    def relink(self):
        return self.slot(), self.target()

    def rename(self):
        flags = self.rng.choice([0, 0, 0, NOREPLACE, EXCHANGE, EXCHANGE, NOREPLACE | EXCHANGE])
        return self.path(), self.path() if flags & EXCHANGE else self.target(), flags

    def unlink(self):
        return (self.path(False),)

    def rmdir(self):
        return (self.path(True),)

    def list(self):
        return (self.path(True),)

    def list_changing(self):
        made = [self.rng.choice(self.names) for _ in range(3)]
        return self.path(True), self.rng.choice([300, 600, 4096]), made, [self.rng.choice(self.names) for _ in range(3)]

    # Attributes

    def stat(self):
        return self.path(), self.chance(0.5)

    def access(self):
        return self.path(), self.rng.randrange(8)

    def chmod(self):
        return self.path(), self.mode()

    def fchmod(self):
        return self.slot(), self.mode()

    def chown(self):
        return self.path(), *self.owners(), self.chance(0.5)

    def fchown(self):
        return self.slot(), *self.owners()

    def utimens(self):
        return self.path(), (*self.times(), *self.times()), self.rng.choice([0, AT_SYMLINK_NOFOLLOW])

    def futimens(self):
        return self.slot(), (*self.times(), *self.times())

    def attribute(self):
        length = self.rng.choice([1, 2, 100, 165, 166, 250, 251])
        other = self.rng.choice(["user.", "bogus.x", "security.x", "trusted.x"])
        return self.rng.choice(["user.a", "user.b", "user." + "n" * length, "acl", "default acl", other])

    def setxattr(self):
        name, value, flags = self.attribute_to_set()
        return self.path(), name, value, flags, self.chance(0.8)

    def fsetxattr(self):
        return self.slot(), *self.attribute_to_set()

    def attribute_to_set(self):
        name, rng = self.attribute(), self.rng
        if name.endswith("acl"):
            return {"acl": "system.posix_acl_access", "default acl": "system.posix_acl_default"}[name], self.acl(), 0
        size = rng.choice([0, 1, 10, 100, 100, 1000, rng.randrange(3800, 4100), 65536, 65537])
        value = rng.randbytes(size) if size < 1000 else b"v" * size
        return name, value, rng.choice([0, 0, 0, os.XATTR_CREATE, os.XATTR_REPLACE])

    def acl(self):
        """Usually valid: the owner, the group and the others, a mask, and some users and groups."""
        rng = self.rng
        tags = [1, 2, 4, 8, 16, 32] if self.chance(0.8) else rng.choices(list(ACL_TAGS), k=rng.randrange(5))
        if not self.chance(0.7):
            tags = [1, 4, 32]
        # The owner's as in `mode`.
        entries = [(tag, rng.choice([7, 6, 5, 4, 4]) if self.is_root or tag != 1 else 7,
                    rng.choice([ANN, BEN, STAFF]) if ACL_TAGS[tag] else 0xFFFFFFFF) for tag in tags]
        return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)

    def getxattr(self):
        return self.path(), self.attribute()

    removexattr = getxattr

    # Locks of files

    def flock(self):
        return self.slot(), self.rng.choice([fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN])

    def lock_range(self):
        slot = self.slot()
        kind = self.rng.choice([fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK])
        return slot, self.rng.choice([OFD_SETLK, OFD_SETLK, OFD_GETLK]), kind, self.position(slot), self.size()
