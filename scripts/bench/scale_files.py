"""The cost of a read in files of different sizes: cold in vaultfs's own cache, past the kernel's (O_DIRECT)."""

import mmap
import os
import random
import statistics
import time

KIBIBYTE, MEBIBYTE, GIBIBYTE = 1 << 10, 1 << 20, 1 << 30
SIZES = {"1 MiB": MEBIBYTE, "100 MiB": 100 * MEBIBYTE, "10 GiB": 10 * GIBIBYTE, "100 GiB": 100 * GIBIBYTE}
LENGTHS = {"4 KiB": 4 * KIBIBYTE, "64 KiB": 64 * KIBIBYTE, "1 MiB": MEBIBYTE}
# Spread evenly over the file, with holes between them.
REGIONS, REGION = 16, MEBIBYTE
READS = 200


def starts(size):
    """The offsets at which the written regions begin."""
    regions = min(REGIONS, size // REGION)
    return [index * (size // regions // REGION * REGION) for index in range(regions)]


def make(directory):
    for name, size in SIZES.items():
        descriptor = os.open(f"{directory}/{name}", os.O_CREAT | os.O_WRONLY, 0o600)
        os.ftruncate(descriptor, size)
        for start in starts(size):
            os.pwrite(descriptor, os.urandom(REGION), start)
        os.close(descriptor)


def offsets(size, length, kind, numbers):
    """Up to READS different offsets to read from, in written regions or in holes."""
    begin = 0 if kind == "written" else REGION
    # With only one possible read, it would be measured together with the opening.
    if size == REGION and (kind == "hole" or length == REGION):
        return []
    places = [start + begin + inside for start in starts(size) for inside in range(0, REGION, length)]
    numbers.shuffle(places)
    return places[:READS]


def read(reads, length, times):
    """Adds to `times` the microseconds of each read of (key, descriptor, offset)."""
    # O_DIRECT needs whole pages.
    buffer = mmap.mmap(-1, length)
    for key, descriptor, place in reads:
        start = time.perf_counter_ns()
        count = os.preadv(descriptor, [buffer], place)
        times[key].append((time.perf_counter_ns() - start) / 1000)
        if count != length:
            raise OSError(f"{key}: {count} bytes read at {place} instead of {length}")


def measure(vault, rounds, say):
    """Median microseconds: {(file, kind): {length: µs}}, for reads of chunks that were not read since the mount. The
    files take turns, so that other load of the machine affects all alike."""
    vault.make()
    vault.mount()
    make(vault.mountpoint)
    numbers, medians = random.Random(1), {}
    times = {length: {(name, kind): [] for name in SIZES for kind in ("written", "hole")} for length in LENGTHS}
    for number in range(1, rounds + 1):
        say(f"files: round {number} of {rounds}")
        for length_name, length in LENGTHS.items():
            vault.remount()
            files = {name: os.open(f"{vault.mountpoint}/{name}", os.O_RDONLY | os.O_DIRECT) for name in SIZES}
            reads = [((name, kind), files[name], place) for name, kind in times[length_name]
                     for place in offsets(SIZES[name], length, kind, numbers)]
            numbers.shuffle(reads)
            read(reads, length, times[length_name])
            for descriptor in files.values():
                os.close(descriptor)
    vault.unmount()
    for length, measured in times.items():
        for key, taken in measured.items():
            if taken:
                medians.setdefault(key, {})[length] = statistics.median(taken)
    return medians
