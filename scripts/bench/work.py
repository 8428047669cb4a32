"""The work that is timed: eleven tests over a file and a tree. Each returns a rate: more is better."""

import json
import mmap
import os
import random
import shlex
import shutil
import tarfile
import time

import machine
from systems import run

MEBIBYTE = 1 << 20
TREE_FILES = 12_000
TREE_SEED = 1
# For fio: random blocks, repeated until the time is over.
FOR_A_TIME = ("--time_based", "--norandommap")


class Work:
    """Each method runs one test on one system, and makes its own input unless an earlier test has. `source` and
    `archive` are beside the stores."""

    def __init__(self, directory, mebibytes, seconds):
        self.mebibytes, self.seconds = mebibytes, seconds
        self.source, self.archive = f"{directory}/source", f"{directory}/tree.tar"
        self.directory = directory
        # The system that is measured, the processor time before the measured work, and how long this took.
        self.system, self.before, self.elapsed = None, (0, 0), 0
        with open(self.source, "wb") as file:
            for _ in range(mebibytes):
                file.write(os.urandom(MEBIBYTE))
        self.entries, self.tree_bytes = make_archive(self.archive)

    def settle(self):
        """Before a measurement."""
        # Earlier writes of other programs must not count.
        run("sync", "-f", self.directory)
        # A virtual machine may have given free memory back, and gets it again page by page, which makes writes up to four
        # times as slow (seen). So touch what the test will use, if there is so much.
        free = os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE
        with mmap.mmap(-1, min(2 * self.mebibytes * MEBIBYTE, free // 2)) as memory:
            for offset in range(0, len(memory), mmap.PAGESIZE):
                memory[offset] = 1
        self.before = self.spent()

    def spent(self):
        """Seconds of processor time: of the system's daemon, and of the programs that have ended."""
        return machine.processor_seconds(self.system.daemons), sum(os.times()[2:4])

    def cost(self, rate):
        """Microseconds of processor time for each unit of the last test, whose rate this is: daemon's, programs'."""
        return [(after - before) / (rate * self.elapsed) * 1e6 for before, after in zip(self.before, self.spent())]

    def time(self, *command, reader=None):
        """Seconds that a program takes. `reader` reads its output."""
        self.settle()
        line = shlex.join(command) + " | " + shlex.join(reader) if reader else shlex.join(command)
        start = time.perf_counter()
        run("bash", "-c", f"set -o pipefail; {line} >/dev/null")
        self.elapsed = time.perf_counter() - start
        return self.elapsed

    def fio(self, system, kind, *options):
        """Random 4 KiB operations per second."""
        self.settle()
        text = run(
            "fio", "--name=bench", f"--filename={system.mountpoint}/big", f"--rw={kind}", "--bs=4k", "--ioengine=psync",
            "--group_reporting", f"--runtime={self.seconds}", f"--size={self.mebibytes}m", "--randrepeat=0",
            "--output-format=json", *options)
        job = json.loads(text[text.index("{"):])["jobs"][0]
        found = job["write" if kind == "randwrite" else "read"]
        self.elapsed = found["total_ios"] / found["iops"]
        return found["iops"]

    def need_file(self, system):
        if not os.path.exists(f"{system.mountpoint}/big"):
            shutil.copyfile(self.source, f"{system.mountpoint}/big")

    def need_tree(self, system):
        if not os.path.exists(f"{system.mountpoint}/tree"):
            os.mkdir(f"{system.mountpoint}/tree")
            run("tar", "-xf", self.archive, "-C", f"{system.mountpoint}/tree")

    def cold_file(self, system):
        self.need_file(system)
        system.remount()
        return f"{system.mountpoint}/big"

    # The tests

    def seqwrite(self, system):
        target = f"{system.mountpoint}/big"
        if os.path.exists(target):
            os.unlink(target)
        return self.mebibytes / self.time("dd", f"if={self.source}", f"of={target}", "bs=1M", "conv=fsync")

    def seqread(self, system):
        return self.mebibytes / self.time("dd", f"if={self.cold_file(system)}", "of=/dev/null", "bs=1M")

    def catread(self, system):
        return self.mebibytes / self.time("cat", self.cold_file(system))

    def rand4k_direct(self, system):
        self.cold_file(system)
        return self.fio(system, "randread", "--direct=1", "--numjobs=1", *FOR_A_TIME)

    def rand4k_direct_4jobs(self, system):
        self.cold_file(system)
        return self.fio(system, "randread", "--direct=1", "--numjobs=4", *FOR_A_TIME)

    def rand4k_buffered(self, system):
        """Reads no block twice. Otherwise the faster system would find more in the page cache."""
        self.cold_file(system)
        return self.fio(system, "randread", "--fadvise_hint=random")

    def randwrite4k(self, system):
        self.need_file(system)
        return self.fio(system, "randwrite", "--end_fsync=1", "--overwrite=1", *FOR_A_TIME)

    def untar(self, system):
        tree = f"{system.mountpoint}/tree"
        shutil.rmtree(tree, ignore_errors=True)
        os.mkdir(tree)
        return self.entries / self.time("tar", "-xf", self.archive, "-C", tree)

    def lsr(self, system):
        self.need_tree(system)
        system.remount()
        return self.entries / self.time("ls", "-lR", f"{system.mountpoint}/tree")

    def readtree(self, system):
        self.need_tree(system)
        system.remount()
        # tar skips the reads if it writes to /dev/null.
        return self.entries / self.time("tar", "-cf", "-", "-C", system.mountpoint, "tree", reader=["cat"])

    def rmtree(self, system):
        self.need_tree(system)
        return self.entries / self.time("rm", "-rf", f"{system.mountpoint}/tree")


# In the order in which they run: name → (its text in the table, the unit).
TESTS = {
    "seqwrite": ("sequential write, 1 MiB, fsync", "MiB/s"),
    "seqread": ("sequential read, 1 MiB", "MiB/s"),
    "catread": ("sequential read, cat", "MiB/s"),
    "rand4k_direct": ("random 4 KiB read, O_DIRECT, 1 job", "IOPS"),
    "rand4k_direct_4jobs": ("random 4 KiB read, O_DIRECT, 4 jobs", "IOPS"),
    "rand4k_buffered": ("random 4 KiB read, page cache", "IOPS"),
    "randwrite4k": ("random 4 KiB write", "IOPS"),
    "untar": ("untar", "files/s"),
    "lsr": ("ls -lR, cold", "files/s"),
    "readtree": ("read a tree (tar), cold", "files/s"),
    "rmtree": ("rm -rf", "files/s"),
}


def make_archive(path):
    """Makes a tree like a source tree: files of about 3 KiB and some large ones, three levels deep, one link in
    fifty entries. It is the same at every call. Returns the number of its entries and their bytes."""
    numbers = random.Random(TREE_SEED)
    contents = numbers.randbytes(2 * MEBIBYTE)
    directories, total, entries = [""], 0, 0
    with tarfile.open(path, "w") as archive:
        for index in range(TREE_FILES):
            if index % 25 == 0:
                parent = numbers.choice([name for name in directories if name.count("/") < 3])
                directories.append(f"{parent}{word(numbers)}{index}/")
                archive.addfile(member(directories[-1].rstrip("/"), tarfile.DIRTYPE, 0o755))
                entries += 1
            name = f"{directories[-1]}{word(numbers)}{index}.c"
            if index % 50 == 49:
                link = member(name, tarfile.SYMTYPE, 0o777)
                link.linkname = "../" + word(numbers)
                archive.addfile(link)
            else:
                file = member(name, tarfile.REGTYPE, 0o644)
                file.size = min(MEBIBYTE, int(numbers.lognormvariate(8, 1.5)))
                start = numbers.randrange(MEBIBYTE)
                archive.addfile(file, Slice(contents, start, file.size))
                total += file.size
            entries += 1
    return entries, total


def member(name, kind, mode):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, mode, 1_700_000_000
    info.uid, info.gid = os.getuid(), os.getgid()
    return info


def word(numbers):
    return "".join(numbers.choices("abcdefghijklmnopqrstuvwxyz_", k=numbers.randint(3, 18)))


class Slice:
    """Opens a file to read a part of it."""

    def __init__(self, contents, start, size):
        self.rest = memoryview(contents)[start:start + size]

    def read(self, size):
        piece, self.rest = self.rest[:size], self.rest[size:]
        return bytes(piece)
