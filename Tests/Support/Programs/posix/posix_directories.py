"""Reading directories: offsets, deletion and creation while iterating, dot entries, file types."""

import ctypes
import os
import stat

from probe import case, libc, main, put


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_ushort), ("type", ctypes.c_ubyte),
                ("name", ctypes.c_char * 256)]


class Directory:
    """opendir(3) and its related functions."""

    def __init__(self, path="."):
        self.handle = libc.opendir(os.fsencode(path))

    def next(self):
        found = libc.readdir(self.handle)
        return Dirent.from_address(found).name if found else None

    def names(self):
        return list(iter(self.next, None))

    def tell(self):
        return libc.telldir(self.handle)

    def seek(self, position):
        libc.seekdir(self.handle, position)

    def rewind(self):
        libc.rewinddir(self.handle)


libc.readdir.restype = ctypes.c_void_p


def fill(count):
    names = {b"file-%05d" % i for i in range(count)}
    for name in names:
        put(name)
    return names


@case
def listing():
    names = fill(1500)
    found = Directory().names()
    return len(found), sorted(set(found) - names), found.count(b"."), found.count(b"..")


@case
def types():
    put("f")
    os.mkdir("d")
    os.symlink("x", "l")
    os.mkfifo("p")
    with os.scandir(".") as entries:
        kinds = sorted((e.name, e.is_file(follow_symlinks=False), e.is_dir(follow_symlinks=False), e.is_symlink())
                       for e in entries)
    with os.scandir(".") as entries:
        same = all(e.inode() == os.lstat(e.name).st_ino for e in entries)
    return kinds, same


@case
def offsets():
    """Seeking back to any offset gives the same next name."""
    fill(700)
    directory = Directory()
    positions = []
    while True:
        at = directory.tell()
        name = directory.next()
        if name is None:
            break
        positions.append((at, name))
    bad = 0
    for at, name in positions[::-7] + positions[::11]:
        directory.seek(at)
        bad += directory.next() != name
    directory.rewind()
    return bad, len({p for p, _ in positions}) == len(positions), len(directory.names()) == len(positions)


@case
def delete_while_iterating():
    """Every name that stays is seen exactly once, however many others are removed."""
    names = fill(2000)
    directory = Directory()
    seen, deleted = [], set()
    for i, name in enumerate(iter(directory.next, None)):
        if name in (b".", b".."):
            continue
        seen.append(name)
        if i % 3:
            os.unlink(name)
            deleted.add(name)
    return len(seen) == len(set(seen)), set(seen) == names, set(os.listdir(b".")) == names - deleted


@case
def delete_what_was_read_then_seek():
    names = fill(900)
    directory = Directory()
    head = [directory.next() for _ in range(300)]
    at = directory.tell()
    for name in set(head) & names:
        os.unlink(name)
    directory.seek(at)
    rest = set(directory.names())
    return rest & set(head) & names == set(), rest | set(head) == names | {b".", b".."}


@case
def remove_tree_in_place():
    for i in range(20):
        os.mkdir("d%d" % i)
        for j in range(60):
            put("d%d/%s%d" % (i, "x" * (j * 3), j))
    for path, directories, files in os.walk(".", topdown=False):
        for name in files:
            os.unlink(os.path.join(path, name))
        for name in directories:
            os.rmdir(os.path.join(path, name))
    return os.listdir(".")


@case
def create_while_iterating():
    """Names that existed before are all seen, names made meanwhile at most once."""
    names = fill(600)
    directory = Directory()
    seen = []
    for i, name in enumerate(iter(directory.next, None)):
        seen.append(name)
        if i < 200:
            put(b"new-%d" % i)
    directory.rewind()
    again = directory.names()
    return names <= set(seen), len(seen) == len(set(seen)), len(again)


@case
def rename_while_iterating():
    names = fill(400)
    seen = []
    for name in iter((directory := Directory()).next, None):
        if name.startswith(b"file-"):
            seen.append(name)
            os.rename(name, b"done-" + name)
    left = set(os.listdir(b"."))
    return set(seen) == names, left == {b"done-" + n for n in names}


@case
def fresh_after_change():
    """A listing through another descriptor sees the latest changes."""
    r = []
    for i in range(50):
        put("f%d" % i)
        r.append(len(os.listdir(".")))
    for i in range(50):
        os.unlink("f%d" % i)
        r.append(len(os.listdir(".")))
    return r == list(range(1, 51)) + list(range(49, -1, -1))


@case
def link_counts():
    r = [os.stat(".").st_nlink]
    os.mkdir("a")
    r += [os.stat(".").st_nlink, os.stat("a").st_nlink]
    os.mkdir("a/b")
    r += [os.stat("a").st_nlink]
    os.rename("a/b", "b")
    r += [os.stat("a").st_nlink, os.stat(".").st_nlink, stat.S_ISDIR(os.stat("b/..").st_mode)]
    os.rmdir("b")
    return r, os.stat(".").st_nlink


main()
