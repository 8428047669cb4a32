"""A tree with every kind of object that a source directory can contain, in a read-only view.

view_tree.py BINARY DIRECTORY LOCK_FILE. Mounts by itself, cbc-chunks of 4096 under keys/binary (view_files.py)."""

import errno
import os
import socket
import stat
import subprocess
import sys

from view_files import VECTOR, chunks

binary, directory, lock_file = sys.argv[1:]
mountpoint, source = (os.fsencode(os.path.join(directory, name)) for name in ("mount", "source"))
with open(os.path.join(directory, "keys", "binary"), "rb") as file:
    KEY = file.read()
# All bytes that a name can contain, and the longest name.
NAMES = [bytes(range(1, 47)), bytes(range(48, 256)), b"\xff\xfe", b"new\nline", b"x" * 255]
OPTIONS = ["--chunk-size", "4096", "--iv", VECTOR.hex(), "--key-file", os.path.join(directory, "keys", "binary")]


def stop(*what):
    sys.exit("FAILED: " + " ".join(map(str, what)))


def expect(what, error, function, *arguments):
    try:
        function(*arguments)
    except OSError as problem:
        if problem.errno != error:
            stop(what, problem)
        return
    stop(what, "works")


def store(path, plaintext):
    with open(os.path.join(source, path), "wb") as file:
        file.write(chunks(KEY, VECTOR, plaintext, 4096))


def make_tree():
    os.makedirs(os.path.join(source, b"a/b/c"))
    store(b"a/b/c/deep", b"deep")
    for number, name in enumerate(NAMES):
        store(name, b"%d" % number)
    os.symlink(b"a/b/c/deep", os.path.join(source, b"link"))
    os.symlink(b"nowhere", os.path.join(source, b"dangling"))
    os.mkfifo(os.path.join(source, b"fifo"))
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(source)
        listener.bind("socket")
        os.chdir("/")
    if os.geteuid() == 0:
        # The device number of /dev/null, which the mount does not open.
        os.mknod(os.path.join(source, b"device"), stat.S_IFCHR | 0o666, os.makedev(1, 3))


def read(path):
    with open(os.path.join(mountpoint, path), "rb") as file:
        return file.read()


def look():
    if sorted(os.listdir(mountpoint)) != sorted(os.listdir(source)):
        stop("the mount lists", os.listdir(mountpoint))
    for number, name in enumerate(NAMES):
        if read(name) != b"%d" % number:
            stop(name, read(name))
    if read(b"a/b/c/deep") != b"deep" or read(b"link") != b"deep":
        stop("the deep file")
    if os.readlink(os.path.join(mountpoint, b"dangling")) != b"nowhere":
        stop("the dangling link")
    expect("dangling", errno.ENOENT, read, b"dangling")
    for name, kind in ((b"fifo", stat.S_ISFIFO), (b"socket", stat.S_ISSOCK), (b"device", stat.S_ISCHR)):
        if os.path.lexists(os.path.join(source, name)) and not kind(os.lstat(os.path.join(mountpoint, name)).st_mode):
            stop(name, "is of another kind")
    for path in (b".", b"a", b"a/b/c/deep"):
        if os.stat(os.path.join(mountpoint, path)).st_mode & 0o222:
            stop(path, "looks as if it could be written to")
    if os.path.exists(os.path.join(source, b"device")):
        # nodev, because fusermount3 and vaultfs mount with it.
        expect("a device", errno.EACCES, read, b"device")
    # `ls -lR` and `find` see every name, without an error.
    subprocess.run(["ls", "-lR", mountpoint], check=True, stdout=subprocess.DEVNULL)


def change():
    at = lambda name: os.path.join(mountpoint, name)  # noqa: E731
    file, new = at(b"a/b/c/deep"), at(b"new")
    for what, function, *arguments in (
            ("write", os.open, file, os.O_WRONLY), ("read and write", os.open, file, os.O_RDWR),
            ("append", os.open, file, os.O_WRONLY | os.O_APPEND), ("truncate", os.truncate, file, 0),
            ("O_TRUNC", os.open, file, os.O_WRONLY | os.O_TRUNC), ("create", os.open, new, os.O_RDWR | os.O_CREAT),
            ("mkdir", os.mkdir, new), ("symlink", os.symlink, b"x", new), ("link", os.link, file, new),
            ("mkfifo", os.mkfifo, new), ("unlink", os.unlink, file), ("rmdir", os.rmdir, at(b"a")),
            ("rename", os.rename, file, new), ("chmod", os.chmod, file, 0o777), ("utime", os.utime, file, (1, 1)),
            ("chown", os.chown, file, os.getuid(), os.getgid()), ("setxattr", os.setxattr, file, "user.a", b"b")):
        expect(what, errno.EROFS, function, *arguments)
    expect("getxattr", errno.EOPNOTSUPP, os.getxattr, file, "user.a")


make_tree()
subprocess.run([binary, "view", "cbc-chunks", source, mountpoint, "--lock-file", lock_file, *OPTIONS], check=True)
try:
    look()
    change()
    look()
finally:
    subprocess.run([binary, "unmount", mountpoint], check=True)
