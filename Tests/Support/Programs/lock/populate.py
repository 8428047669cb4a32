"""Makes the kernel read all pages of a mapping at once (MAP_POPULATE, mlock(2)) while they cannot be read. The kernel repeats
its requests for ever, so the program waits. The wait must cost the daemon next to nothing. An unlock or SIGKILL must end it.

populate.py --binary VAULTFS --directory DIR [--policy refuse|forget] [--seed N]"""

import ctypes
import mmap
import os
import signal
import time

from locking import fork, libc, main, noise, stop, wait

MAP_POPULATE, MAP_LOCKED = 0x8000, 0x2000
SIZE = 1 << 20
libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def populate(fd):
    mmap.mmap(fd, SIZE, flags=mmap.MAP_SHARED | MAP_POPULATE, prot=mmap.PROT_READ)


def map_locked(fd):
    mmap.mmap(fd, SIZE, flags=mmap.MAP_PRIVATE | MAP_LOCKED)


def lock_pages(fd):
    pages = mmap.mmap(fd, SIZE, flags=mmap.MAP_PRIVATE)
    if libc.mlock(ctypes.addressof(ctypes.c_char.from_buffer(pages)), SIZE):
        raise OSError(ctypes.get_errno(), "mlock")


def served(mount):
    return mount.ask("status")["requests"]["served"]


def waits(mount, function, fd, end, expected):
    """Runs `function`, which must wait, with few requests, until `end` releases it."""
    child = fork(function, fd)
    # The first requests are answered at once.
    time.sleep(0.2)
    before = served(mount)
    time.sleep(0.5)
    requests = served(mount) - before
    if os.waitpid(child, os.WNOHANG)[0]:
        stop(f"{function.__name__}: ended by itself")
    if not 1 <= requests <= 200:
        stop(f"{function.__name__}: {requests} requests in half a second")
    end(child)
    code = wait(child, function.__name__)
    if code != expected:
        stop(f"{function.__name__}: ended with {code}")


def test(mount, options):
    mount.initialise()
    mount.mount()
    with open(mount.path("file"), "wb") as file:
        file.write(noise(options.seed, SIZE))
    for function in (populate, map_locked, lock_pages):
        with open(mount.path("file"), "rb") as file:
            mount.lock()
            waits(mount, function, file.fileno(), lambda child: mount.unlock(), 0)
            mount.lock()
            waits(mount, function, file.fileno(), lambda child: os.kill(child, signal.SIGKILL), -signal.SIGKILL)
            mount.unlock()
    mount.unmount()
    backing = max((os.path.join(mount.vault, name) for name in os.listdir(mount.vault)), key=os.path.getsize)
    with open(backing, "r+b") as file:
        file.seek(SIZE // 2)
        file.write(b"damage")
    mount.mount()
    with open(mount.path("file"), "rb") as file:
        waits(mount, populate, file.fileno(), lambda child: os.kill(child, signal.SIGKILL), -signal.SIGKILL)
        # Another read does not wait for it.
        begin = time.monotonic()
        if os.pread(file.fileno(), 4096, 0) != noise(options.seed, SIZE)[:4096] or time.monotonic() - begin > 5:
            stop("another read was wrong or had to wait")
    mount.unmount()


main(test)
