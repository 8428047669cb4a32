"""A vault on a disk that fills up. A write that does not fit returns ENOSPC, and every acknowledged byte stays
readable, also in the chunk being overwritten. The directory is a small file system of its own.

full_disk.py --binary VAULTFS --directory DIR"""

import argparse
import errno
import os
import random
import sys
import time

from mounting import Mount


class File:
    """A file on the mount and its expected content."""

    def __init__(self, path):
        self.path, self.content = path, bytearray()
        self.fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)

    def write(self, at, block):
        """Returns true if all of it was written. Cuts off any bytes that a failed call left after the acknowledged
        end."""
        while block:
            try:
                n = os.pwrite(self.fd, block, at)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return False
            self.content[at:at + n] = block[:n]
            block, at = block[n:], at + n
        return True

    def check(self, when):
        size = os.fstat(self.fd).st_size
        if size < len(self.content):
            sys.exit(f"LOST: {self.path} {when}: {size} bytes of {len(self.content)}")
        for at in range(0, len(self.content), 4096):
            want = bytes(self.content[at:at + 4096])
            try:
                got = os.pread(self.fd, len(want), at)
            except OSError as error:
                sys.exit(f"LOST: {self.path} {when}: {error} at {at}")
            if got != want:
                sys.exit(f"LOST: {self.path} {when}: other bytes at {at}")


def overwrite_while_full(files, rng):
    """Overwrites inside, grows last chunks, extends, and counts the writes that did not fit. A block that did not
    fit may be written in part, with whole chunks old or new, so each write repeats the existing content."""
    refused = 0
    for _ in range(400):
        file = rng.choice(files)
        size = len(file.content)
        if rng.random() < 0.6 and size > 10000:
            at = rng.randrange(size - 9000)
            before = bytes(file.content)
            block = rng.randbytes(rng.choice([1, 500, 4096, 9000]))
            if not file.write(at, block):
                refused += 1
                settle(file, before, at, block)
        elif not file.write(size, rng.randbytes(rng.choice([1, 100, 3000, 20000]))):
            refused += 1
    return refused


def settle(file, before, at, block):
    """After a refused overwrite each chunk is the old or the new one. Takes the one that is found."""
    new = bytearray(file.content)
    new[at:at + len(block)] = block
    for start in range(at // 4096 * 4096, at + len(block), 4096):
        got = os.pread(file.fd, 4096, start)[:len(file.content) - start]
        if got not in (bytes(file.content[start:start + 4096]), bytes(new[start:start + 4096])):
            sys.exit(f"LOST: {file.path}: the chunk at {start} is neither old nor new after ENOSPC")
        file.content[start:start + len(got)] = got


def delete_again_and_again(directory, rng):
    """A file that was overwritten, closed and deleted keeps its space until a checkpoint. The next one needs it."""
    for n in range(8):
        file = File(os.path.join(directory, "short-lived"))
        for block in range(10):
            if not file.write(len(file.content), rng.randbytes(1 << 20)) or not file.write(5000, b"overwritten"):
                sys.exit(f"no room for file {n} beside deleted ones")
        file.check("before it is deleted")
        os.close(file.fd)
        os.unlink(file.path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--directory", required=True)
    options = parser.parse_args()
    rng = random.Random(5)
    mount = Mount(options.binary, options.directory)
    mount.initialise()
    mount.mount()
    try:
        delete_again_and_again(mount.mountpoint, rng)
        files = [File(os.path.join(mount.mountpoint, n)) for n in ("first", "small", "filler")]
        files[0].write(0, rng.randbytes(4 << 20))
        files[1].write(0, rng.randbytes(5000))
        blocks = 0
        while files[2].write(len(files[2].content), rng.randbytes(100_000)):
            blocks += 1
            if blocks > 1000:
                sys.exit("the disk does not fill up")
        while files[2].write(len(files[2].content), rng.randbytes(50)):
            pass
        refused = overwrite_while_full(files, rng)
        for file in files:
            file.check("while full")
        names = [os.path.join(mount.mountpoint, "new%d" % n) for n in range(3)]
        for name in names:
            try:
                os.mkdir(name)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        for file in files:
            os.close(file.fd)
        mount.unmount()
        mount.read("--allow-torn-tail")
        mount.mount()
        for file in files:
            file.fd = os.open(file.path, os.O_RDWR)
            file.check("after mounting again")
        os.close(files[2].fd)
        os.unlink(files[2].path)
        # The kernel notifies the daemon of the close after close(2) has returned, so the space becomes free soon, but
        # not at once.
        deadline = time.monotonic() + 30
        while not files[0].write(len(files[0].content), rng.randbytes(1 << 20)):
            if time.monotonic() > deadline:
                sys.exit("no room after a file has gone")
        files[0].check("after room was made")
        for file in files[:2]:
            os.close(file.fd)
        mount.unmount()
        mount.read("--require-sealed")
    finally:
        mount.abandon()
    print(f"filled with {len(files[2].content)} bytes, {refused} writes refused while full: nothing acknowledged was lost")


if __name__ == "__main__":
    main()
