"""Contents: sizes around the chunk, truncation, holes, fallocate, append, memory maps, unlinked open files."""

import hashlib
import mmap
import os
import random

from probe import case, err, fallocate, get, main, noise, put

KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO_RANGE = 1, 2, 8, 16
C = 4096
GRID = [0, 1, 15, 16, 17, C - 1, C, C + 1, 2 * C, 2 * C + 500, 10 * C, 70001]


def zero_range(fd, flags, at, n):
    """ZERO_RANGE, by hand on a store that lacks it (tmpfs), because the mount may offer more than the store."""
    if err(fallocate, fd, ZERO_RANGE | flags, at, n) in ("ENOTSUP", "EOPNOTSUPP"):
        end = min(at + n, os.fstat(fd).st_size) if flags & KEEP_SIZE else at + n
        os.pwrite(fd, bytes(max(0, end - at)), at)


def digest(path):
    return hashlib.sha256(get(path)).hexdigest()[:16]


@case
def sizes():
    bad = []
    for n in GRID:
        put("f", noise(n, n))
        if get("f") != noise(n, n) or os.stat("f").st_size != n:
            bad.append(n)
    return bad


@case
def truncation_grid():
    r = []
    for a in GRID:
        for b in GRID:
            put("f", noise(a, a))
            os.truncate("f", b)
            if get("f") != noise(a, a)[:b] + bytes(max(0, b - a)):
                r.append((a, b))
    return r


@case
def write_past_end():
    r = []
    for a in GRID[:9]:
        for b in GRID + [3 << 20]:
            put("f", noise(a, a))
            with open("f", "r+b") as file:
                file.seek(b)
                file.write(b"end")
            expected = noise(a, a).ljust(b, b"\0")
            expected = expected[:b] + b"end" + expected[b + 3:]
            if get("f") != expected:
                r.append((a, b))
    return r


@case
def overwrite_grid():
    r = []
    for at in GRID:
        for n in GRID[1:]:
            data = bytearray(noise(1, 20 * C + 77))
            put("f", data)
            with open("f", "r+b") as file:
                file.seek(at)
                file.write(noise(2, n))
            data[at:at + n] = noise(2, n)
            if get("f") != data:
                r.append((at, n))
    return r


@case
def random_operations():
    """Like fsx: any mix of operations leaves the same content as the plain store. Prints digests for the comparison."""
    result = []
    for seed in range(6):
        rng = random.Random(seed)
        fd = os.open("fsx%d" % seed, os.O_CREAT | os.O_RDWR, 0o644)
        limit = 300_000
        for step in range(150):
            size = os.fstat(fd).st_size
            at, n = rng.randrange(limit), rng.choice([1, 3, 100, C, rng.randrange(1, 40000)])
            choice = rng.randrange(9)
            if choice < 3:
                os.pwrite(fd, rng.randbytes(n), at)
            elif choice == 3:
                os.pwrite(fd, rng.randbytes(n), size)
            elif choice == 4:
                os.ftruncate(fd, at)
            elif choice == 5:
                fallocate(fd, PUNCH_HOLE | KEEP_SIZE, at, n)
            elif choice == 6:
                zero_range(fd, rng.choice([0, KEEP_SIZE]), at, n)
            elif choice == 7 and size:
                with mmap.mmap(fd, size) as m:
                    start = rng.randrange(size)
                    m[start:start + n] = rng.randbytes(min(n, size - start))
            else:
                os.pread(fd, n, at)
            if step % 30 == 29:
                result.append(hashlib.sha256(os.pread(fd, 1 << 20, 0)).hexdigest()[:12])
        os.close(fd)
        result.append(digest("fsx%d" % seed))
    return result


@case
def sparse():
    fd = os.open("s", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 1 << 36)
    r = [os.pread(fd, 10, 1 << 35) == bytes(10)]
    os.pwrite(fd, b"end", (1 << 36) - 3)
    os.pwrite(fd, b"mid", (1 << 30) + 5)
    r += [os.pread(fd, 9, (1 << 30) + 2), os.pread(fd, 8, (1 << 36) - 8), os.fstat(fd).st_size,
          os.fstat(fd).st_blocks < 100_000, os.pread(fd, 4, 1 << 36)]
    os.ftruncate(fd, (1 << 30) + 6)
    r += [os.pread(fd, 20, 1 << 30)]
    os.ftruncate(fd, 1 << 31)
    r += [os.pread(fd, 10, (1 << 30) + 4)]
    return r


@case
def seek_data_and_hole():
    fd = os.open("s", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 10 << 20)
    os.pwrite(fd, b"z" * 5000, 5 << 20)
    data, hole = os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, 5 << 20, os.SEEK_HOLE)
    r = [data <= 5 << 20, (5 << 20) + 5000 <= hole <= 10 << 20, os.lseek(fd, 0, os.SEEK_HOLE) <= 5 << 20,
         err(os.lseek, fd, 10 << 20, os.SEEK_DATA), err(os.lseek, fd, 11 << 20, os.SEEK_HOLE),
         os.lseek(fd, 5 << 20, os.SEEK_DATA) == 5 << 20]
    put("dense", noise(3, 50000))
    dense = os.open("dense", os.O_RDONLY)
    return r, os.lseek(dense, 1234, os.SEEK_DATA), os.lseek(dense, 1234, os.SEEK_HOLE)


@case
def allocation():
    r = []
    for at, n in [(0, 10), (C, C), (5000, 20000), (90000, 1000), (100000, 50000)]:
        for flags in (0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE, ZERO_RANGE | KEEP_SIZE):
            put("f", noise(9, 100_001))
            fd = os.open("f", os.O_RDWR)
            outcome = err(zero_range, fd, flags & KEEP_SIZE, at, n) if flags & ZERO_RANGE else err(fallocate, fd, flags, at, n)
            os.close(fd)
            expected = bytearray(noise(9, 100_001))
            if outcome == "ok":
                if flags & (PUNCH_HOLE | ZERO_RANGE):
                    end = min(at + n, len(expected))
                    expected[at:end] = bytes(max(0, end - at))
                if not flags & KEEP_SIZE:
                    expected = expected.ljust(at + n, b"\0")
            good = get("f") == expected
            r.append((at, flags, outcome, good))
    fd = os.open("f", os.O_RDONLY)
    return r, err(fallocate, fd, 0, 0, 10), err(fallocate, os.open("f", os.O_RDWR), 0, 0, 0)


@case
def flags():
    put("f", b"0123456789")
    ro, wo = os.open("f", os.O_RDONLY), os.open("f", os.O_WRONLY)
    r = [err(os.write, ro, b"x"), err(os.read, wo, 1), err(os.ftruncate, ro, 0), err(os.ftruncate, wo, 4), get("f"),
         err(os.pwrite, wo, b"", 100), os.stat("f").st_size, os.pread(ro, 10, 4), os.pread(ro, 10, 1 << 40)]
    os.close(os.open("f", os.O_RDONLY | os.O_TRUNC))
    r += [os.stat("f").st_size, err(os.truncate, "f", -1), err(os.pwrite, wo, b"x", -1)]
    append = os.open("f", os.O_WRONLY | os.O_APPEND)
    os.write(append, b"one")
    os.pwrite(append, b"two", 0)
    os.truncate("f", 4)
    os.write(append, b"three")
    sync = os.open("f", os.O_WRONLY | os.O_SYNC)
    os.write(sync, b"S")
    r += [get("f"), err(os.fsync, ro), err(os.fdatasync, sync), err(os.fsync, os.open(".", os.O_RDONLY))]
    return r


@case
def append_from_many():
    kids = []
    for k in range(4):
        pid = os.fork()
        if pid == 0:
            fd = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            for i in range(150):
                os.write(fd, b"%d-%04d-%s\n" % (k, i, b"x" * (i % 50)))
            os._exit(0)
        kids.append(pid)
    r = [os.waitpid(pid, 0)[1] for pid in kids]
    lines = get("log").split(b"\n")
    return r, len(lines), len(set(lines)), all(b"x" * (i % 50) in get("log") for i in range(150))


@case
def two_descriptors():
    a, b = os.open("f", os.O_CREAT | os.O_RDWR), os.open("f", os.O_RDWR)
    os.write(a, noise(1, 9000))
    r = [os.pread(b, 9000, 0) == noise(1, 9000)]
    os.pwrite(b, b"B" * 100, 4000)
    r += [os.pread(a, 4, 4050), os.fstat(a).st_size]
    os.ftruncate(b, 4050)
    r += [os.pread(a, 100, 4040), os.fstat(a).st_size, os.read(a, 10)]
    return r


@case
def memory_maps():
    put("f", noise(4, 20000))
    fd = os.open("f", os.O_RDWR)
    m = mmap.mmap(fd, 20000)
    r = [m[:] == noise(4, 20000)]
    m[4090:4110] = b"M" * 20
    m[19999:20000] = b"Z"
    m.flush()
    r += [os.pread(fd, 20, 4090), get("f")[-1:]]
    os.pwrite(fd, b"through write", 9000)
    r += [m[9000:9013]]
    second = mmap.mmap(os.open("f", os.O_RDONLY), 20000, prot=mmap.PROT_READ)
    m[12000:12003] = b"abc"
    r += [second[12000:12003]]
    m.close()
    private = mmap.mmap(fd, 20000, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    private[0:3] = b"PPP"
    r += [get("f")[:3] == noise(4, 3), private[0:3]]
    os.close(fd)
    return r, digest("f")


@case
def map_outlives_descriptor():
    put("f", noise(5, 3 * C))
    fd = os.open("f", os.O_RDWR)
    m = mmap.mmap(fd, 3 * C)
    os.close(fd)
    os.rename("f", "g")
    m[5:10] = b"later"
    m.flush()
    m.close()
    return get("g")[:12] == noise(5, 3 * C)[:5] + b"later" + noise(5, 3 * C)[10:12]


@case
def unlinked_open():
    fd = os.open("u", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, b"a" * 9000)
    os.unlink("u")
    r = [err(os.fsync, fd), err(os.fdatasync, fd), err(os.fchmod, fd, 0o640), err(os.utime, fd, ns=(7, 8)),
         err(os.ftruncate, fd, 12345), err(os.posix_fallocate, fd, 0, 50000), err(os.ftruncate, fd, 12345)]
    m = mmap.mmap(fd, 12345)
    m[5000:5003] = b"xyz"
    r += [err(m.flush), os.pread(fd, 3, 5000), os.pread(fd, 3, 12000), err(os.pwrite, fd, b"more", 20000)]
    found = os.fstat(fd)
    r += [found.st_nlink, found.st_size, oct(found.st_mode), err(os.stat, "u")]
    again = os.open("/proc/self/fd/%d" % fd, os.O_RDWR)
    r += [os.pread(again, 4, 20000), err(os.write, again, b"AGAIN"), os.pread(fd, 5, 0)]
    r += [err(os.setxattr, fd, "user.x", b"v"), err(os.getxattr, fd, "user.x"), err(os.fchown, fd, -1, os.getegid())]
    synced = os.open("v", os.O_CREAT | os.O_RDWR | os.O_SYNC)
    os.unlink("v")
    return r, err(os.write, synced, b"b" * 5000), os.pread(synced, 2, 4999), os.listdir(".")


@case
def replaced_while_open():
    put("old", b"old" * 3000)
    put("new", b"new")
    fd = os.open("old", os.O_RDWR)
    os.rename("new", "old")
    os.pwrite(fd, b"X", 0)
    return os.pread(fd, 4, 0), os.fstat(fd).st_nlink, get("old"), err(os.fsync, fd)


@case
def copy_file_range():
    put("a", noise(6, 100_000))
    a, b = os.open("a", os.O_RDONLY), os.open("b", os.O_CREAT | os.O_RDWR)
    at = 0
    while at < 100_000:
        n = os.copy_file_range(a, b, 100_000 - at)
        if not n:
            break
        at += n
    put("c", noise(7, 50_000))
    c = os.open("c", os.O_RDWR)
    n = os.copy_file_range(a, c, 5000, 777, 4001)
    expected = bytearray(noise(7, 50_000))
    expected[4001:4001 + n] = noise(6, 100_000)[777:777 + n]
    return at, get("b") == noise(6, 100_000), n > 0, get("c") == expected, os.copy_file_range(a, c, 10, 1 << 20, 0)


@case
def vectors_and_offsets():
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.writev(fd, [b"a" * 5000, b"b" * 10, b"", b"c" * 4096])
    buffers = [bytearray(10), bytearray(5000)]
    n = os.preadv(fd, buffers, 4995)
    os.lseek(fd, -5, os.SEEK_END)
    return n, bytes(buffers[0]), os.read(fd, 100), os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size


@case
def big_requests():
    data = noise(8, 5 << 20)
    fd = os.open("big", os.O_CREAT | os.O_RDWR)
    written = os.pwrite(fd, data, 333)
    return written, os.pread(fd, 6 << 20, 333) == data, digest("big")


main()
