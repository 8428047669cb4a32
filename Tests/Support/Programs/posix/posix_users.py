"""Two users, groups and root on one file system: the operations each may do, and the owners of the results. Root
only. On a mount it needs -o allow_other."""

import os
import subprocess

from probe import as_user, case, err, get, main, mode, put

ANN, BEN, STAFF, OTHERS = 20001, 20002, 30001, 30002


def ann(action, groups=()):
    return as_user(ANN, groups, action)


def ben(action, groups=()):
    return as_user(BEN, groups, action)


def owner(path):
    found = os.lstat(path)
    return found.st_uid, found.st_gid, oct(found.st_mode)


def open_to_all():
    os.chmod(".", 0o777)


@case
def owners_of_new_objects():
    open_to_all()

    def make():
        put("f")
        os.mkdir("d")
        os.symlink("f", "l")
        os.mkfifo("p")
        os.mknod("r", 0o100644)
        put("L" * 220)
        os.mkdir("M" * 220)
        os.link("f", "h")

    return ann(make), [(n[:2],) + owner(n) for n in sorted(os.listdir("."))]


@case
def private_files():
    open_to_all()
    ann(lambda: put("f", b"secret", 0o600))
    ann(lambda: os.mkdir("d", 0o700))
    ann(lambda: put("d/inside", b"x", 0o666))
    return [ben(lambda: [err(get, "f"), err(os.open, "f", os.O_WRONLY), err(os.truncate, "f", 0), err(os.chmod, "f", 0o666),
                         err(os.chown, "f", BEN, -1), err(os.utime, "f"), err(os.utime, "f", ns=(1, 2)), err(os.stat, "f"),
                         err(os.listdir, "d"), err(os.stat, "d/inside"), err(get, "d/inside"), err(put, "d/new"),
                         err(os.setxattr, "f", "user.x", b"1"), err(os.listxattr, "f"), err(os.getxattr, "f", "user.x"),
                         err(os.link, "f", "g"), os.access("f", os.R_OK), err(os.unlink, "f")]), sorted(os.listdir("."))]


@case
def mode_000():
    """The owner of a file without permissions is refused, but may change them. root is never refused."""
    open_to_all()
    put("f", b"x" * 5000, 0o600)
    os.chown("f", ANN, ANN)
    os.chmod("f", 0)
    r = [ann(lambda: [err(get, "f"), err(os.truncate, "f", 1), err(os.setxattr, "f", "user.x", b"1")]), len(get("f"))]
    return r, ann(lambda: [err(os.chmod, "f", 0o400), len(get("f")), err(os.open, "f", os.O_WRONLY)])


@case
def writing_to_what_one_cannot_read():
    open_to_all()
    put("f", b"x" * 5000)
    os.chmod("f", 0o222)

    def write():
        fd = os.open("f", os.O_WRONLY)
        os.pwrite(fd, b"ben", 4095)
        return err(get, "f"), err(os.ftruncate, fd, 4099), err(os.fsync, fd)

    return ben(write), get("f")[4090:]


@case
def sticky_directory():
    os.chmod(".", 0o1777)
    for n in "ab":
        ann(lambda: put(n))
    ann(lambda: os.mkdir("d"))
    ben(lambda: put("own"))
    return ben(lambda: [err(os.unlink, "a"), err(os.rename, "a", "x"), err(os.rmdir, "d"), err(os.rename, "own", "b"),
                        err(os.unlink, "own")]), ann(lambda: [err(os.unlink, "a"), err(os.rename, "b", "c")]), \
        sorted(os.listdir("."))


@case
def setgid_directory():
    os.mkdir("d")
    os.chown("d", ANN, STAFF)
    os.chmod("d", 0o2777)
    r = [ben(lambda: [put("d/f"), os.mkdir("d/sub"), os.symlink("x", "d/l"), put("d/x", mode=0o2755)]),
         ben(lambda: put("d/y", mode=0o2755), [STAFF])]
    return r, [(n,) + owner("d/" + n) for n in sorted(os.listdir("d"))]


@case
def supplementary_groups():
    put("f", b"group", 0o640)
    os.chown("f", 0, STAFF)
    os.mkdir("d")
    os.chown("d", 0, STAFF)
    os.chmod("d", 0o770)
    # More groups than fit a FUSE reply or the first size of a buffer.
    many = list(range(40000, 40060)) + [STAFF]
    return [ben(lambda: err(get, "f")), ben(lambda: err(get, "f"), [STAFF]), ben(lambda: err(put, "d/a")),
            ben(lambda: err(put, "d/b"), many), ben(lambda: err(os.open, "f", os.O_WRONLY), many), owner("d/b")]


@case
def changing_owner_and_group():
    open_to_all()
    ann(lambda: put("f"))
    return ann(lambda: [err(os.chown, "f", BEN, -1), err(os.chown, "f", -1, STAFF), err(os.chown, "f", ANN, ANN)], [OTHERS]), \
        ann(lambda: err(os.chown, "f", -1, OTHERS), [OTHERS]), owner("f"), \
        ann(lambda: err(os.chmod, "f", 0o2755)), owner("f"), ann(lambda: err(os.chmod, "f", 0o2755), [OTHERS]), owner("f"), \
        ben(lambda: err(os.chown, "f", BEN, BEN)), ann(lambda: err(os.mknod, "dev", 0o20666, os.makedev(1, 3)))


@case
def set_bits_go_when_another_writes():
    open_to_all()
    r = []
    # Not 02767: the kernel's FUSE keeps a setgid bit without group execution (fuse_setattr, see Manual/Limits.md).
    for bits in (0o6777, 0o4766):
        for action in (lambda: os.pwrite(os.open("f", os.O_WRONLY), b"y", 0), lambda: os.truncate("f", 0),
                       lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))):
            put("f", b"data")
            os.chown("f", ANN, STAFF)
            os.chmod("f", bits)
            ben(action)
            r.append(mode("f")[-4:])
            os.unlink("f")
    return r


@case
def times_by_another():
    open_to_all()
    ann(lambda: put("f", b"x", 0o666))
    return ben(lambda: [err(os.utime, "f"), err(os.utime, "f", ns=(1, 2)), err(os.utime, "f", (os.stat("f").st_mtime, 0))])


@case
def umask_077():
    open_to_all()

    def make():
        os.umask(0o077)
        put("f", mode=0o666)
        os.mkdir("d", 0o777)
        os.mkfifo("p", 0o666)

    ann(make)
    return [(n,) + owner(n) for n in sorted(os.listdir("."))], ben(lambda: [err(get, "f"), err(os.listdir, "d")])


@case
def default_acl():
    os.mkdir("d", 0o777)
    os.chmod("d", 0o777)
    subprocess.run(["setfacl", "-m", f"u:{BEN}:rwx,d:u:{BEN}:rw,d:g:{STAFF}:r,d:m:rw", "d"], check=True)
    ann(lambda: put("d/f", b"acl", 0o660))
    ann(lambda: os.mkdir("d/sub", 0o770))
    shown = [subprocess.run(["getfacl", "-cnp", "d/" + n], capture_output=True, text=True).stdout.split() for n in ("f", "sub")]
    return shown, ben(lambda: [get("d/f"), err(os.open, "d/f", os.O_RDWR), err(os.listdir, "d/sub")]), \
        as_user(20003, [], lambda: err(get, "d/f")), as_user(20003, [STAFF], lambda: [err(get, "d/f"), err(put, "d/f")])


@case
def directory_search():
    os.makedirs("a/b")
    put("a/b/f", b"deep")
    os.chmod("a", 0o711)
    r = [ann(lambda: [err(os.listdir, "a"), err(get, "a/b/f"), err(os.stat, "a/b/none")])]
    os.chmod("a", 0o744)
    r.append(ann(lambda: [err(os.listdir, "a"), err(get, "a/b/f"), err(os.stat, "a/b")]))
    return r


@case
def shared_descriptor():
    """Open files stay open, whichever user has them open."""
    put("f", b"x" * 6000, 0o600)
    fd = os.open("f", os.O_RDWR)
    return ann(lambda: [os.pwrite(fd, b"ann", 4095), os.pread(fd, 3, 4095), err(os.ftruncate, fd, 4100), err(os.fchmod, fd, 0o666),
                        err(os.fsync, fd), os.fstat(fd).st_size]), len(get("f"))


@case
def rename_between_owners():
    open_to_all()
    ann(lambda: os.mkdir("d", 0o755))
    ann(lambda: put("d/f"))
    return ben(lambda: [err(os.rename, "d/f", "f"), err(os.rename, "d", "e"), err(os.rename, "e", "d/e")]), sorted(os.listdir("."))


main()
