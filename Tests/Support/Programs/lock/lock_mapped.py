"""Dirty pages of shared mappings when a lock comes: nothing stored before it is lost.

lock_mapped.py --binary VAULTFS --directory DIR [--policy refuse|forget] [--rounds N] [--seed N]"""

import mmap
import os
import random
import signal
import struct
import time

from lock_pages import PAGE, dirty_for_ever, page, stored, touch
from locking import finish, fork, main, noise, refused, stop, until, wait

MIB = 1 << 20


def compare(what, found, expected):
    if found != expected:
        wrong = next(i for i in range(0, len(expected), PAGE) if found[i:i + PAGE] != expected[i:i + PAGE])
        stop(f"{what}: {len(found)} bytes of {len(expected)}, page {wrong // PAGE} differs")


def read_all(fd, size):
    parts = []
    while size and (part := os.read(fd, min(size, 8 * MIB))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def store(path, at, data):
    """The other process: it keeps the pages mapped until it ends."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        pages[at:at + len(data)] = data


def several_mappings(mount, seed, size=120 * MIB):
    """Two mappings of ours and one of another process make 120 MiB dirty; no msync, then the lock."""
    expected, path = bytearray(noise(seed, size)), mount.path("big")
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size)
    first, second = mmap.mmap(fd, size), mmap.mmap(fd, size)
    # The other process first, because the kernel writes everything back when a mapping ends (fuse_vma_close in
    # fs/fuse/file.c).
    half = size // 2
    finish([fork(store, path, half - MIB, bytes(expected[half - MIB:half]))], "another process that maps")
    first[:half - MIB] = expected[:half - MIB]
    second[half:] = expected[half:]
    receipt = mount.lock()
    if refused(os.pread, fd, 10, 0) != "ENOKEY" or refused(touch, first, size // 3) != "EFAULT":
        stop("locked, and the file can be read")
    mount.unlock()
    compare("by the first mapping", first[:], expected)
    compare("by the second mapping", second[:], expected)
    # Stores work again, and the next lock takes them too.
    first[7:12] = b"later"
    expected[7:12] = b"later"
    mount.lock()
    mount.unlock()
    os.lseek(fd, 0, os.SEEK_SET)
    compare("by read(2)", read_all(fd, size), expected)
    first.close()
    second.close()
    os.close(fd)
    print(f"{receipt['writtenBackBytes'] >> 20} MiB written back in {receipt['purgeMilliseconds']} ms")
    if receipt["writtenBackBytes"] == 0:
        stop("nothing was dirty")
    return path, expected


def continuous(mount, rng, pages=2000):
    """A process that never stops storing gets SIGBUS, and every earlier store is kept."""
    path = mount.path("endless")
    with open(path, "wb") as file:
        file.truncate(pages * PAGE)
    progress = memoryview(mmap.mmap(-1, 8)).cast("Q")
    child = fork(dirty_for_ever, path, pages, progress)
    until("the first stores", lambda: progress[0] > 10)
    time.sleep(rng.uniform(0, 0.1))
    trigger = rng.choice(["file", "command", "signal"])
    mount.lock_by(trigger)
    code = wait(child, "a process that stores into a locked file")
    if code != -signal.SIGBUS:
        stop(f"a store into a locked file: ended with {code}")
    mount.unlock_from(trigger)
    stores = progress[0]
    with open(path, "rb") as file:
        for number in range(pages):
            found = file.read(PAGE)
            # The last version of this page that was stored completely. The page in progress may be a mixture.
            version = stored(number, pages, stores)
            if number != stores % pages and found != (page(number, version) if version else bytes(PAGE)):
                stop(f"page {number} of version {version} after {stores} stores: {struct.unpack('<QQ', found[:16])}")
    os.unlink(path)
    return stores


def mapped(mount, options):
    rng = random.Random(options.seed)
    mount.initialise()
    mount.mount()
    path, expected = several_mappings(mount, options.seed)
    stores = [continuous(mount, rng) for _ in range(options.rounds)]
    print(f"stores before SIGBUS: {stores}")
    mount.unmount()
    mount.mount()
    with open(path, "rb") as file:
        compare("after a remount", file.read(), expected)
    mount.verify(with_reader=False)


main(mapped)
