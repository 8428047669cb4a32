"""Cases that print the behaviour of a file system. The same program runs on a mount and on the plain store below it,
and both outputs must be equal: the store defines the correct behaviour. So a case prints no value that may differ
between two directories (times themselves, inode numbers, block counts), only their consequences."""

import ctypes
import errno
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.telldir.restype = ctypes.c_long
libc.opendir.restype = ctypes.c_void_p
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
for function in (libc.readdir, libc.telldir, libc.closedir, libc.rewinddir):
    function.argtypes = [ctypes.c_void_p]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
cases = []


def as_user(uid, groups, action):
    """The result of `action` in a process of user `uid` (the group has the same number, with `groups` in addition).
    None: this process's user."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if uid is not None:
                os.setgroups(groups)
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            result = repr(action())
        except OSError as error:
            result = "raised " + os.strerror(error.errno)
        os.write(write, result.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with open(read) as file:
        return file.read()


def case(function):
    """Registers a case. It runs in its own empty directory and returns the text to print."""
    cases.append(function)
    return function


def err(action, *arguments, **keywords):
    """`ok`, or the name of the error of an action."""
    try:
        action(*arguments, **keywords)
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def check(result):
    """Turns the -1 of a C function into the OSError it stands for."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(old, new, flags):
    check(libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags))


def fallocate(fd, mode, offset, length):
    check(libc.fallocate(fd, mode, offset, length))


def put(path, data=b"", mode=0o644):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)
    os.write(fd, data)
    os.close(fd)


def get(path):
    with open(path, "rb") as file:
        return file.read()


def mode(path):
    return oct(os.lstat(path).st_mode)


def noise(seed, size):
    """`size` bytes that do not compress and depend on `seed` only."""
    import random
    return random.Random(seed).randbytes(size)


def main():
    """probe DIRECTORY [CASE…]"""
    program = os.path.basename(sys.argv[0]).removesuffix(".py")
    base, only = os.path.join(os.path.abspath(sys.argv[1]), program), sys.argv[2:]
    os.mkdir(base)
    os.umask(0o022)
    for function in cases:
        if only and function.__name__ not in only:
            continue
        directory = os.path.join(base, function.__name__)
        os.mkdir(directory)
        os.chdir(directory)
        try:
            result = function()
        except OSError as error:
            line = sys.exc_info()[2].tb_next.tb_lineno
            result = f"raised {errno.errorcode.get(error.errno)} at line {line}"
        os.umask(0o022)
        os.chdir(base)
        print(f"{function.__name__}: {result}", flush=True)
