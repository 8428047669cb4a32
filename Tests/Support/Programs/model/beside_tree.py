"""The whole of a tree: names, attributes and contents, and the comparison of two of them."""

import os
import stat
import time

HOUR = 3600 * 10 ** 9
# The kernel's time stamps advance with the tick, which is 10 ms at most.
TICK = 0.011


class Entry:
    def __init__(self, status, fields):
        self.fields, self.mode, self.inode = fields, status.st_mode, status.st_ino
        self.mtime, self.ctime = status.st_mtime_ns, status.st_ctime_ns


def content(name, directory):
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
    with open(fd, "rb") as file:
        return file.read()


def entry(name, directory):
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    path = f"/proc/self/fd/{directory}/{name}"
    fields = {"mode": oct(status.st_mode), "owner": (status.st_uid, status.st_gid), "links": status.st_nlink,
              "device": status.st_rdev}
    names = os.listxattr(path, follow_symlinks=False)
    fields["attributes"] = {n: os.getxattr(path, n, follow_symlinks=False) for n in names if n != "user.vaultfs.class"}
    if not stat.S_ISDIR(status.st_mode):
        fields["size"] = status.st_size
    if stat.S_ISLNK(status.st_mode):
        fields["target"] = os.readlink(name, dir_fd=directory)
    elif stat.S_ISREG(status.st_mode):
        fields["content"] = content(name, directory)
    return Entry(status, fields)


def walk(name, directory, path, found):
    found[path] = entry(name, directory)
    if not stat.S_ISDIR(found[path].mode):
        return
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    found[path].fields["names"] = names = sorted(os.listdir(fd))
    for inner in names:
        walk(inner, fd, os.path.join(path, inner), found)
    os.close(fd)


def tree(base):
    """Each path below a directory with its entry. "." is the directory itself."""
    found = {}
    walk(".", base, ".", found)
    return found


def brief(value):
    text = repr(value)
    return text if len(text) < 300 else f"{text[:200]}… ({len(text)} characters)"


def first_difference(expected, found):
    at = len(os.path.commonprefix([expected, found]))
    parts = [part[at:at + 16].hex() for part in (expected, found)]
    return f"{len(expected)} and {len(found)} bytes, from {at}: {parts[0]} and {parts[1]}"


class Trees:
    """Compares the plain tree with the vault's, now and then. `differences` yields (path, field, plain, vault)."""

    def __init__(self):
        self.before, self.began = None, time.time_ns() - HOUR
        # Inodes of the plain tree with mapped stores: the kernel decides when these change the time.
        self.unknown_times = set()

    def is_set(self, when):
        """Returns true for a time that a program has set: all of those are far from the time of the run."""
        return not self.began < when < self.began + 24 * HOUR

    def differences(self, plain, vault, is_after_kill=False):
        now = tree(plain), tree(vault)
        yield from self.compare(*now, is_after_kill)
        self.before = now
        # So a change after this one has another time.
        time.sleep(TICK)

    def compare(self, plain, vault, is_after_kill):
        for path, one in plain.items():
            if (other := vault.get(path)) is None:
                yield path, "entry", "there", "missing"
                continue
            for name, value in one.fields.items():
                if value != (found := other.fields.get(name)):
                    if name == "content" and isinstance(value, bytes) and isinstance(found, bytes):
                        yield path, name, first_difference(value, found), ""
                    else:
                        yield path, name, brief(value), brief(found)
            yield from self.compare_times(path, one, other, is_after_kill)
        for path in vault.keys() - plain.keys():
            yield path, "entry", "missing", "there"
        yield from self.compare_inodes(plain, vault)

    def compare_times(self, path, one, other, is_after_kill):
        # The kernel changes the times of a FIFO as it likes: never, on a FUSE mount.
        if one.inode in self.unknown_times or stat.S_ISFIFO(one.mode):
            return
        if one.mtime != other.mtime and (self.is_set(one.mtime) or self.is_set(other.mtime)):
            if is_after_kill and stat.S_ISREG(one.mode) and not self.is_set(other.mtime):
                # Manual/Limits.md: "If the daemon is killed before that, the file has the time of the write."
                self.unknown_times.add(one.inode)
            else:
                yield path, "mtime", one.mtime, other.mtime
        if self.before is None or is_after_kill:
            return
        old = [trees.get(path) for trees in self.before]
        if None in old or old[0].inode != one.inode or old[1].inode != other.inode:
            return
        changed = one.mtime != old[0].mtime, other.mtime != old[1].mtime
        if changed[0] != changed[1]:
            yield path, "mtime has changed", (old[0].mtime, one.mtime), (old[1].mtime, other.mtime)
        # A seal changes the time of the backing file, so it may change in the vault alone.
        if one.ctime != old[0].ctime and other.ctime == old[1].ctime:
            yield path, "ctime has changed", True, False

    @staticmethod
    def compare_inodes(plain, vault):
        groups = []
        for entries in plain, vault:
            by_inode = {}
            for path, found in entries.items():
                by_inode.setdefault(found.inode, []).append(path)
            groups.append(sorted(sorted(paths) for paths in by_inode.values() if len(paths) > 1))
        if groups[0] != groups[1]:
            yield ".", "names of the same files", *map(brief, groups)
