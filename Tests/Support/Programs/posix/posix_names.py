"""Names, links, directory entries and renames."""

import os
import socket
import stat

from probe import case, err, get, libc, main, put, renameat2

NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4


@case
def every_length():
    """The padding steps of name encryption, and the step from short to long entries."""
    bad = []
    for n in range(1, 256):
        name, other = "n" * n, "m" * n
        put(name, name.encode())
        os.rename(name, other)
        if get(other) != name.encode() or os.listdir(".") != [other] or os.path.exists(name):
            bad.append(n)
        os.unlink(other)
    return bad, err(put, "n" * 256), err(os.mkdir, "n" * 256), err(os.stat, "n" * 256), err(os.rename, "x", "n" * 256)


@case
def bytes_not_text():
    names = [b"\xff\xfe", b"a\nb", b".hidden", b"..a", b"...", b"-", b" ", b"%00", b"\xc3\xa9" * 127, b"\xff" * 255, b"\\",
             b"vaultfs.json", b"vaultfs.dir", b"vaultfs.long.x", b"vaultfs.tmp.1", b"a" * 12 + b"\x01\x02\x03"]
    for name in names:
        put(name, name)
    found = sorted(os.listdir(b"."))
    return found == sorted(names), all(get(n) == n for n in names), len(found)


@case
def long_names_everywhere():
    long_ = ["d" * 200, "l" * 240, "s" * 255, "h" * 180]
    os.mkdir(long_[0])
    put(os.path.join(long_[0], long_[1]), b"x")
    os.symlink(long_[1], os.path.join(long_[0], long_[2]))
    os.link(os.path.join(long_[0], long_[1]), long_[3])
    os.rename(long_[3], "short")
    os.rename("short", "t" * 230)
    inside = sorted(os.listdir(long_[0]))
    for name in inside:
        os.unlink(os.path.join(long_[0], name))
    os.rmdir(long_[0])
    return inside, os.listdir("."), get("t" * 230)


@case
def deep():
    for _ in range(16):
        os.mkdir("D" * 200)
        os.chdir("D" * 200)
    put("leaf", b"x")
    return get("leaf"), len(os.getcwd().split("/D")) > 15


@case
def creation_errors():
    put("file")
    os.mkdir("dir")
    os.symlink("nowhere", "dangling")
    os.symlink("loop", "loop")
    os.symlink("dir", "to-dir")
    o = os.open
    return [
        err(o, "file", os.O_CREAT | os.O_EXCL | os.O_WRONLY), err(o, "dangling", os.O_CREAT | os.O_EXCL | os.O_WRONLY),
        err(os.mkdir, "file"), err(os.mkdir, "dir"), err(os.mkdir, "dangling"), err(os.mkdir, "file/x"),
        err(os.mkdir, "none/x"), err(o, "none/x", os.O_CREAT | os.O_WRONLY), err(o, "file/", os.O_RDONLY),
        err(o, "file", os.O_DIRECTORY), err(o, "dir", os.O_WRONLY), err(o, "dir", os.O_CREAT | os.O_RDWR),
        err(o, "to-dir", os.O_NOFOLLOW), err(o, "loop", os.O_RDONLY), err(os.stat, "loop"), err(o, "none", os.O_RDONLY),
        err(o, "", os.O_RDONLY), err(os.symlink, "x", "file"), err(os.symlink, "", "empty"), err(os.mkfifo, "dir"),
        err(os.rmdir, "file"), err(os.unlink, "dir"), err(os.rmdir, "none"), err(os.rmdir, "."), err(os.rmdir, "to-dir"),
        err(os.unlink, "none"), err(os.unlink, "file/"), err(os.readlink, "file"), err(os.link, "none", "x"),
        err(os.link, "dir", "x"), err(os.link, "file", "dir"), err(os.link, "file", "none/x"), err(os.truncate, "dir", 0),
        sorted(os.listdir(".")),
    ]


@case
def removal():
    os.mkdir("a")
    put("a/f")
    first = err(os.rmdir, "a")
    os.unlink("a/f")
    fd = os.open("a", os.O_DIRECTORY)
    os.rmdir("a")
    gone = (os.fstat(fd).st_nlink, err(os.mkdir, "/proc/self/fd/%d/x" % fd), os.listdir(fd))
    os.mkdir("a")
    return first, gone, os.listdir("a")


@case
def renames():
    for n in "fg":
        put(n, n.encode())
    for n in ("d", "e", "full", "full/sub"):
        os.mkdir(n)
    r = [
        err(os.rename, "f", "f"), err(os.rename, "d", "d/inside"), err(os.rename, "f", "d"), err(os.rename, "d", "f"),
        err(os.rename, "d", "full"), err(os.rename, "none", "x"), err(os.rename, "f", "none/x"),
        err(os.rename, "full/sub", "full"), err(os.rename, "d", "e"), err(os.rename, "f", "g"),
        err(os.rename, "full", "e"), err(os.rename, "e/sub", "moved"), err(os.rename, ".", "x"), err(os.rename, "g", "e/g"),
        err(os.rename, "e/g", "e/h"),
    ]
    os.symlink("target", "link")
    r += [err(os.rename, "link", "link2"), os.readlink("link2")]
    put("h1", b"h")
    os.link("h1", "h2")
    r += [err(os.rename, "h1", "h2"), sorted(os.listdir(".")), sorted(os.listdir("e")), get("e/h")]
    return r


@case
def rename_flags():
    put("a", b"a")
    put("b", b"b")
    os.mkdir("d")
    put("d/in-d", b"d")
    os.mkdir("e")
    long_ = "L" * 220
    put(long_, b"long")
    r = [
        err(renameat2, "a", "b", NOREPLACE), err(renameat2, "a", "d", NOREPLACE), err(renameat2, "a", "c", NOREPLACE),
        err(renameat2, "c", "none", EXCHANGE), err(renameat2, "none", "c", EXCHANGE), err(renameat2, "c", "b", EXCHANGE),
        get("b"), get("c"), err(renameat2, "c", "d", EXCHANGE), get("d"), sorted(os.listdir("c")),
        err(renameat2, "c", "e", EXCHANGE), os.listdir("e"), os.listdir("c"), err(renameat2, "e", "e/x", EXCHANGE),
        err(renameat2, "b", long_, EXCHANGE), get("b"), get(long_), err(renameat2, "b", "e/in-d", EXCHANGE), get("e/in-d"),
        err(renameat2, "b", "x", NOREPLACE | EXCHANGE), err(renameat2, long_, "M" * 220, NOREPLACE), get("M" * 220),
        err(renameat2, "e/in-d", "e", EXCHANGE),
    ]
    return r, sorted(os.listdir("."))


@case
def whiteouts():
    """RENAME_WHITEOUT leaves the character device 0:0 under the old name, for overlayfs."""
    def show(name):
        status = os.lstat(name)
        return stat.S_ISCHR(status.st_mode), status.st_rdev, stat.S_IMODE(status.st_mode), status.st_uid, status.st_nlink

    long_, other = "L" * 220, "M" * 220
    put("a", b"a")
    put(long_, b"long")
    os.mkdir("d")
    put("d/f", b"f")
    os.mkdir("empty")
    r = [
        err(renameat2, "a", "b", WHITEOUT), show("a"), get("b"), err(renameat2, "b", "a", WHITEOUT), show("b"), get("a"),
        err(renameat2, "a", "b", WHITEOUT | NOREPLACE), err(renameat2, "a", "new", WHITEOUT | NOREPLACE), show("a"), get("new"),
        err(renameat2, "a", "b", WHITEOUT | EXCHANGE), err(renameat2, "none", "x", WHITEOUT),
        err(renameat2, long_, other, WHITEOUT), show(long_), get(other), err(renameat2, other, "d/" + other, WHITEOUT),
        show(other), get("d/" + other), err(renameat2, "d", "empty", WHITEOUT), show("d"), sorted(os.listdir("empty")),
        err(renameat2, "d", "empty", 0), err(renameat2, "d", "empty", EXCHANGE), show("empty"), get("d/f"),
        err(os.mknod, "w", stat.S_IFCHR, 0), err(os.link, "w", "w2"), show("w2"), err(renameat2, "w2", "w3", WHITEOUT),
        show("w2"), show("w3"),
    ]
    names = sorted(os.listdir("."))
    for name in ("a", "b", long_, other, "empty", "w", "w2", "w3"):
        r.append(err(os.unlink, name))
    return r, names, sorted(os.listdir("."))


@case
def symbolic_links():
    r = []
    for n in list(range(1, 60)) + [255, 1000, 2999, 3000]:
        target = ("t/" * n)[:n]
        os.symlink(target, "link")
        if os.readlink("link") != target or os.lstat("link").st_size != n:
            r.append(n)
        os.unlink("link")
    os.symlink(b"\xff\n", b"odd")
    os.mkdir("d")
    put("d/f", b"through")
    os.symlink("d", "to-d")
    os.symlink(os.path.abspath("d/f"), "absolute")
    os.symlink("../d/f", "d/up")
    return r, os.readlink(b"odd"), get("to-d/f"), get("absolute"), get("d/up"), os.lstat("to-d").st_nlink


@case
def hard_links():
    put("a", b"one")
    os.mkdir("d")
    os.link("a", "d/b")
    os.symlink("a", "s")
    os.link("s", "s2", follow_symlinks=False)
    r = [os.stat("a").st_nlink, os.stat("d/b").st_nlink, os.stat("a").st_ino == os.stat("d/b").st_ino, os.readlink("s2")]
    with open("d/b", "ab") as file:
        file.write(b" two")
    r += [os.stat("a").st_size, get("a")]
    os.chmod("a", 0o600)
    os.utime("d/b", ns=(1, 2))
    r += [oct(os.stat("d/b").st_mode), os.stat("a").st_mtime_ns]
    os.truncate("a", 2)
    r += [os.stat("d/b").st_size]
    os.rename("a", "c")
    os.unlink("d/b")
    r += [os.stat("c").st_nlink, get("c"), err(os.stat, "a")]
    fd = os.open("c", os.O_RDWR)
    os.link("c", "again")
    os.unlink("c")
    os.write(fd, b"xyz")
    return r, get("again"), os.fstat(fd).st_nlink


@case
def special_files():
    os.mkfifo("fifo", 0o640)
    if os.fork() == 0:
        put("fifo", b"hi")
        os._exit(0)
    with open("fifo", "rb") as file:
        said = file.read()
    os.wait()
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect("socket")
    r = [said, oct(os.lstat("fifo").st_mode), oct(os.lstat("socket").st_mode)]
    if os.geteuid() == 0:
        os.mknod("null", 0o20666, os.makedev(1, 3))
        found = os.lstat("null")
        r += [oct(found.st_mode), found.st_rdev]
    os.mknod("regular", 0o100600)
    os.rename("fifo", "F" * 230)
    return r, oct(os.lstat("regular").st_mode), os.stat("regular").st_size, sorted(os.listdir("."))


@case
def inode_numbers():
    """A number that is reused at once (ext4) must not bring back the old file."""
    bad = []
    for i in range(200):
        put("f", b"x" * i)
        if os.stat("f").st_size != i or get("f") != b"x" * i:
            bad.append(i)
        fd = os.open("f", os.O_RDONLY)
        os.unlink("f")
        os.mkdir("f")
        if os.fstat(fd).st_size != i or os.listdir("f"):
            bad.append(-i)
        os.close(fd)
        os.rmdir("f")
        os.symlink("s%d" % i, "f")
        if os.readlink("f") != "s%d" % i:
            bad.append((i,))
        os.unlink("f")
    return bad


main()
