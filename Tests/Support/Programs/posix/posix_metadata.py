"""Modes, owners, times, link counts, extended attributes, ACLs, statfs: the results of stat(2) and its family."""

import os
import subprocess
import time

from probe import case, err, get, main, mode, put, renameat2

SECOND = 1_000_000_000
CLOCK_REALTIME_COARSE = 5  # linux/time.h


def times(path):
    try:
        found = os.lstat(path)
        return found.st_mtime_ns, found.st_ctime_ns
    except FileNotFoundError:
        return None


class Watch:
    """Returns which of mtime and ctime of some paths an action changes."""

    def __init__(self, *paths):
        self.paths = paths

    def __call__(self, action, *arguments, **keywords):
        before = {p: times(p) for p in self.paths}
        # Kernel time stamps advance with the tick, so wait for the next one by reading the clock that they come from. That
        # clock may have been set back since the last change.
        start = max([time.clock_gettime_ns(CLOCK_REALTIME_COARSE)] + [t[1] for t in before.values() if t])
        while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= start:
            pass
        try:
            action(*arguments, **keywords)
        except OSError as error:
            return os.strerror(error.errno)
        result = []
        for path in self.paths:
            after = times(path)
            if before[path] and after:
                result.append("".join(n for n, a, b in zip("mc", before[path], after) if a != b))
            else:
                result.append(f"{'there' if before[path] else '-'} {'there' if after else '-'}")
        return result


@case
def umasks():
    r = []
    for mask in (0, 0o022, 0o077, 0o027, 0o777):
        os.umask(mask)
        put("f%o" % mask, mode=0o666)
        os.mkdir("d%o" % mask, 0o777)
        os.mkfifo("p%o" % mask, 0o666)
        r += [mode(n % mask) for n in ("f%o", "d%o", "p%o")]
    return r


@case
def modes():
    put("f")
    os.mkdir("d")
    r = []
    for bits in (0, 0o400, 0o7777, 0o4755, 0o2750, 0o1777, 0o644):
        os.chmod("f", bits)
        os.chmod("d", bits | 0o700)
        r += [mode("f"), mode("d")]
    fd = os.open("f", os.O_RDONLY)
    os.fchmod(fd, 0o611)
    return r, mode("f"), oct(os.fstat(fd).st_mode)


@case
def created_unreadable():
    """A file made with mode 0 can be written by the descriptor that made it."""
    fd = os.open("f", os.O_CREAT | os.O_RDWR | os.O_EXCL, 0)
    os.write(fd, b"x" * 5000)
    r = [os.pread(fd, 3, 4998), mode("f"), os.stat("f").st_size]
    os.chmod("f", 0o600)
    os.mkdir("d", 0o500)
    return r, get("f") == b"x" * 5000, mode("d"), err(put, "d/x") if os.geteuid() else "EACCES"


@case
def setuid_is_cleared():
    put("f", b"x", 0o755)
    r = []
    for bits in (0o6755, 0o2755, 0o2745, 0o4711):
        for action in (lambda: os.pwrite(os.open("f", os.O_WRONLY), b"y", 0), lambda: os.truncate("f", 0),
                       lambda: os.chown("f", os.geteuid(), os.getegid()), lambda: os.chown("f", -1, -1),
                       lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))):
            os.chmod("f", bits)
            action()
            r.append(mode("f")[-4:])
    return r


@case
def capability_is_cleared():
    """security.capability is removed when the file is written, by any user."""
    if os.geteuid():
        return None
    value = bytes.fromhex("0100000200040000000000000000000000000000")
    r = []
    for action in (lambda: os.pwrite(os.open("f", os.O_WRONLY), b"y", 0), lambda: os.truncate("f", 0),
                   lambda: os.chown("f", 0, 0)):
        put("f", b"x")
        os.setxattr("f", "security.capability", value)
        r.append(os.getxattr("f", "security.capability") == value)
        action()
        r.append(err(os.getxattr, "f", "security.capability"))
    return r


@case
def times_to_the_nanosecond():
    put("f", b"x")
    os.mkdir("d")
    os.symlink("f", "l")
    r = []
    for stamps in ((1, 2), (123456789, 987654321), (1_600_000_000_123456789, 1_500_000_000_999999999),
                   (-5 * SECOND + 1, -1), (2_200_000_000 * SECOND, 2_500_000_000 * SECOND + 7)):
        for path in "fdl":
            os.utime(path, ns=stamps, follow_symlinks=False)
            found = os.lstat(path)
            r.append((found.st_atime_ns, found.st_mtime_ns))
    fd = os.open("f", os.O_WRONLY)
    os.utime(fd, ns=(3, 4))
    r.append(os.fstat(fd).st_mtime_ns)
    now = time.time_ns()
    os.utime("f")
    r.append(abs(os.stat("f").st_mtime_ns - now) < 5 * SECOND)
    subprocess.run(["touch", "-a", "-d", "@77.5", "f"], check=True)
    r.append((os.stat("f").st_atime_ns, os.stat("f").st_mtime_ns > now - 5 * SECOND))
    return r


@case
def times_stay_after_close():
    """Setting the time and closing afterwards must not change it again (tar and rsync do this)."""
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"x" * 10000)
    os.utime(fd, ns=(5, 6))
    os.close(fd)
    first = os.stat("f").st_mtime_ns
    os.close(os.open("f", os.O_RDWR))
    os.close(os.open("f", os.O_WRONLY | os.O_APPEND))
    return first, os.stat("f").st_mtime_ns


@case
def what_moves_which_time():
    put("f", b"x" * 100)
    put("t", b"x")
    os.mkdir("d")
    w = Watch("f", ".", "d")
    fd = os.open("f", os.O_RDWR)
    return [
        w(os.write, fd, b"abc"), w(os.truncate, "f", 50), w(os.ftruncate, fd, 500), w(os.chmod, "f", 0o600),
        w(os.link, "f", "d/l"), w(os.unlink, "d/l"), w(os.rename, "f", "g"), w(os.rename, "g", "f"),
        w(put, "d/new"), w(os.mkdir, "d/sub"), w(os.rmdir, "d/sub"), w(os.symlink, "x", "d/s"), w(os.rename, "d/s", "s"),
        w(os.setxattr, "f", "user.a", b"1"), w(os.removexattr, "f", "user.a"), w(get, "f"),
        w(os.chown, "f", -1, os.getegid()), w(os.utime, "f", ns=(1, 2)), w(renameat2, "d", "t", 2), w(renameat2, "d", "t", 2),
        w(os.chmod, "d", 0o711), w(os.rename, "t", "f"), w(os.pwrite, fd, b"z", 9), os.fstat(fd).st_nlink,
    ]


@case
def empty_write_and_truncate():
    put("f", b"x" * 10)
    w = Watch("f")
    fd = os.open("f", os.O_RDWR)
    return [w(os.write, fd, b""), w(os.open, "f", os.O_WRONLY | os.O_TRUNC), w(os.open, "f", os.O_WRONLY | os.O_TRUNC),
            w(os.fsync, fd), w(os.open, "f", os.O_RDWR)]


@case
def owners():
    put("f")
    os.mkdir("d")
    os.symlink("f", "l")
    r = []
    for path in "fdl":
        r.append(err(os.chown, path, 1234, 4321, follow_symlinks=False))
        found = os.lstat(path)
        r.append(os.geteuid() != 0 or (found.st_uid, found.st_gid))
        r.append(err(os.chown, path, -1, os.getegid(), follow_symlinks=False))
    return r


@case
def setgid_directory():
    os.mkdir("d")
    if os.geteuid() == 0:
        os.chown("d", -1, 4321)
    os.chmod("d", 0o2775)
    group = os.stat("d").st_gid
    put("d/f")
    os.mkdir("d/sub")
    os.symlink("x", "d/l")
    os.mkfifo("d/p")
    put("f")
    os.rename("f", "d/moved")
    return [(n, os.lstat("d/" + n).st_gid == group, mode("d/" + n)) for n in sorted(os.listdir("d"))]


@case
def extended_attributes():
    put("f")
    os.mkdir("d")
    os.symlink("f", "l")
    r = []
    for path in "fd":
        for name, value in [("user.a", b"1"), ("user.empty", b""), ("user.long-" + "n" * 100, b"v"), ("user.big", b"B" * 900),
                            ("user.ünï", b"\0\xff")]:
            r.append(err(os.setxattr, path, name, value))
            r.append(err(os.getxattr, path, name) == "ok" and os.getxattr(path, name) == value)
        r.append(sorted(os.listxattr(path)))
        r += [
            err(os.setxattr, path, "user.a", b"2", os.XATTR_CREATE), err(os.setxattr, path, "user.none", b"2", os.XATTR_REPLACE),
            err(os.setxattr, path, "user.a", b"22", os.XATTR_REPLACE), os.getxattr(path, "user.a"),
            err(os.removexattr, path, "user.none"), err(os.removexattr, path, "user.a"), err(os.getxattr, path, "user.a"),
            err(os.setxattr, path, "user.", b"x"), err(os.setxattr, path, "nonsense.x", b"x"),
            err(os.setxattr, path, "user." + "n" * 251, b"x"), sorted(os.listxattr(path)),
        ]
    r.append(err(os.setxattr, "l", "user.a", b"1", follow_symlinks=False))
    if os.geteuid() == 0:
        os.setxattr("f", "trusted.t", b"T")
        r += [os.getxattr("f", "trusted.t"), err(os.setxattr, "l", "trusted.t", b"1", follow_symlinks=False)]
    os.rename("f", "g" * 200)
    os.link("g" * 200, "h")
    return r, os.getxattr("h", "user.big") == b"B" * 900


@case
def access_control_lists():
    def acl(*arguments):
        return subprocess.run(arguments, capture_output=True, text=True).returncode

    def shown(path):
        return subprocess.run(["getfacl", "-cnp", path], capture_output=True, text=True).stdout.split()

    put("f", b"", 0o640)
    os.mkdir("d")
    r = [acl("setfacl", "-m", "u:1234:rw,g:4321:r", "f"), shown("f"), mode("f")]
    os.chmod("f", 0o600)
    r += [shown("f"), acl("setfacl", "-m", "d:u:1234:rwx,d:g:4321:rx,d:o:-", "d"), shown("d")]
    os.umask(0o077)
    put("d/f", mode=0o666)
    os.mkdir("d/sub", 0o777)
    r += [shown("d/f"), shown("d/sub"), mode("d/f"), mode("d/sub"), acl("setfacl", "-b", "f"), shown("f"), mode("f")]
    return r


@case
def access():
    put("f", mode=0o000)
    put("x", mode=0o100)
    os.mkdir("d", 0o000)
    return [os.access(p, m) for p in "fxd" for m in (os.F_OK, os.R_OK, os.W_OK, os.X_OK)]


@case
def file_system():
    found = os.statvfs(".")
    return found.f_namemax, found.f_bsize > 0, found.f_blocks > 0, 0 < found.f_bavail <= found.f_blocks, found.f_files > 0


@case
def block_counts():
    """Never less than a small part of the stored data, never much more."""
    put("f", os.urandom(1 << 20))
    os.sync()
    found = os.stat("f")
    return found.st_blocks * 512 >= 1 << 20, found.st_blocks * 512 < 3 << 20, found.st_blksize >= 512


@case
def symlink_metadata():
    os.symlink("target", "l")
    found = os.lstat("l")
    return oct(found.st_mode), found.st_size, found.st_nlink, found.st_uid == os.geteuid()


main()
