"""Rights of a program to its own files: each check is the kernel's or the store's, and both must give the same answer. The
files are open, or were just written, so that the daemon has them open too."""

import os
import subprocess

from probe import case, err, get, main, mode, put


def tries(path):
    """The result of each kind of use of a file."""
    flags = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "truncate": os.O_RDONLY | os.O_TRUNC, "append": os.O_APPEND | os.O_WRONLY}
    result = [f"{name} {err(lambda flag=flag: os.close(os.open(path, flag)))}" for name, flag in flags.items()]
    result.append(f"cut {err(os.truncate, path, 3)}")
    return result + [f"access {bits} {os.access(path, bits)}" for bits in range(8)]


@case
def file_modes():
    r = []
    for bits in (0, 0o400, 0o444, 0o600, 0o700, 0o077, 0o007):
        name = "f%o" % bits
        put(name, b"#!/bin/true\n")
        fd = os.open(name, os.O_RDWR)
        os.chmod(name, bits)
        r.append((name, tries(name)))
        os.write(fd, b"#!")
        os.close(fd)
        r.append((name, tries(name)))
    return r


@case
def read_only_then_writable():
    put("f", b"content")
    os.chmod("f", 0o444)
    first = err(os.truncate, "f", 0)
    os.chmod("f", 0o644)
    second = err(os.truncate, "f", 1)
    return first, second, get("f")


def execute(path):
    try:
        return subprocess.run([path], capture_output=True, check=False).returncode
    except OSError as error:
        return os.strerror(error.errno)


@case
def execution():
    put("program", b"#!/bin/true\n")
    r = []
    for bits in (0o600, 0o700, 0o601, 0o610, 0o500):
        os.chmod("program", bits)
        r.append((oct(bits), execute("./program")))
    return r


@case
def directory_modes():
    r = []
    for bits in (0, 0o500, 0o300, 0o700):
        name = "d%o" % bits
        os.mkdir(name)
        os.mkdir(f"{name}/sub")
        put(f"{name}/f", b"f")
        os.stat(f"{name}/f")
        os.chmod(name, bits)
        here = os.getcwd()
        r.append((
            name, err(os.listdir, name), err(os.stat, f"{name}/f"), err(get, f"{name}/f"), err(put, f"{name}/new"),
            err(os.mkdir, f"{name}/sub2"), err(os.rename, f"{name}/f", f"{name}/g"), err(os.link, f"{name}/g", "out%o" % bits),
            err(os.unlink, f"{name}/g"), err(os.rmdir, f"{name}/sub"), err(os.chdir, name),
            [os.access(name, mask) for mask in range(8)]))
        os.chdir(here)
        os.chmod(name, 0o700)
    return r


@case
def parents():
    """A change of rights of a directory counts at once for names below it that the kernel knows."""
    os.makedirs("a/b")
    put("a/b/f", b"f")
    r = [get("a/b/f"), os.stat("a/b/f").st_size]
    os.chmod("a", 0o600)
    r += [err(os.stat, "a/b"), err(os.stat, "a/b/f"), err(get, "a/b/f")]
    os.chmod("a", 0o700)
    return r + [get("a/b/f")]


@case
def access_lists():
    """An ACL changes the mode, and counts."""
    put("f", b"f")
    os.chmod("f", 0o600)
    subprocess.run(["setfacl", "-m", "u:7:rw", "f"], check=True)
    r = [mode("f"), subprocess.run(["getfacl", "-cn", "f"], capture_output=True, check=True).stdout]
    subprocess.run(["setfacl", "-b", "f"], check=True)
    r.append(mode("f"))
    os.mkdir("d")
    subprocess.run(["setfacl", "-d", "-m", "u:7:rwx", "d"], check=True)
    os.umask(0o077)
    put("d/f", b"f")
    os.mkdir("d/sub")
    r += [mode("d/f"), mode("d/sub"), subprocess.run(["getfacl", "-cn", "d/f"], capture_output=True, check=True).stdout]
    subprocess.run(["setfacl", "-m", "u::---", "f"], check=True)
    return r + [mode("f"), err(get, "f")]


@case
def owners():
    """Changes that only another owner, or root, may make."""
    put("f")
    return [err(os.chown, "f", 0, -1), err(os.chown, "f", -1, 0), err(os.chown, "f", os.getuid(), os.getgid()), mode("f")]


@case
def attributes():
    put("f")
    r = [err(os.setxattr, "f", "user.a", b"a")]
    # vaultfs must read a file to write it.
    for bits in (0o400, 0):
        os.chmod("f", bits)
        r.append((bits, err(os.getxattr, "f", "user.a"), err(os.setxattr, "f", "user.b", b"b"), err(os.listxattr, "f")))
    return r


main()
