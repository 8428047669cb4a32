"""Power cuts: records what a file system writes to a disk while a vault on it is used, builds the disk as cuts at random
moments may leave it, and checks each. scripts/torture/power builds the disk's program and calls this, as root, in a mount
namespace of its own.

A cut leaves every write that came before the last barrier, and of later ones a random part: all or none of each, or each
sector of 512 bytes or 4 KiB by itself, or the first ones, the last of these torn."""

import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = struct.Struct("<QQQ")
TIMEOUT = 60
CHECK_TIMEOUT = 300
SHOWN = 10
# Of each file system: mkfs, options of mount, the units that a cut tears. btrfs has one superblock of 4 KiB with a checksum
# over all of it and overwrites it in place, so a disk that tears at 512 bytes can make it unmountable by itself.
SYSTEMS = {
    "ext4": (["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0"], "nodiscard,commit=1", (512, 4096)),
    "ext4-writeback": (["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0"], "nodiscard,commit=1,data=writeback", (512, 4096)),
    "xfs": (["mkfs.xfs", "-q", "-f", "-K"], "nodiscard", (512, 4096)),
    "btrfs": (["mkfs.btrfs", "-q", "-f", "-K"], "nodiscard,commit=1", (4096,)),
}
WORK = {"sqlite": 512, "files": 512, "postgres": 1024}


class RigError(Exception):
    """The rig failed, not what it tests."""


class CutFailure(Exception):
    """The vault cannot be mounted, or hangs, or is damaged."""


def run(*words, timeout=TIMEOUT, check=True):
    # A new session: an interrupt is for us, who then end it.
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    try:
        out, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RigError(f"{words[0]}: not done within {timeout} s") from None
    finally:
        if process.poll() is None:
            process.kill()
    if check and process.returncode:
        raise RigError(f"{' '.join(words)[:300]}: {errors.strip()[-3000:]}")
    return process.returncode, out, errors


class Served:
    """A FUSE mount and its daemon in the foreground."""

    def __init__(self, log, path, *words):
        self.path, self.log = path, log
        with open(log, "w") as output:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], stdin=subprocess.DEVNULL,
                                            stdout=output, stderr=output, start_new_session=True)
        end = time.monotonic() + TIMEOUT
        while not os.path.ismount(path):
            if self.process.poll() is not None or time.monotonic() > end:
                self.abandon()
                raise CutFailure(f"does not mount: {self.logged()}")
            time.sleep(0.01)

    def logged(self):
        with open(self.log, errors="replace") as file:
            return file.read().strip()[-300:]

    def stop(self):
        run("fusermount3", "-u", self.path)
        try:
            code = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise CutFailure("the daemon does not end") from None
        if code:
            raise CutFailure(f"the daemon's exit code is {code}: {self.logged()}")

    def abandon(self):
        self.process.kill()
        subprocess.run(["fusermount3", "-uz", self.path], stderr=subprocess.DEVNULL, timeout=TIMEOUT)
        self.process.wait()


class Rig:
    """The directory of a run: the disk's image, its recording, the file system and the vault on it."""

    def __init__(self, given):
        self.given = given
        self.directory = given.recording or tempfile.mkdtemp(prefix="vaultfs-power.", dir=given.work)
        # PostgreSQL runs as a user of its own.
        os.chmod(self.directory, 0o711)
        self.base, self.image, self.log = self.file("base"), self.file("image"), self.file("log")
        self.events = self.file("events")
        self.system = self.file("fs")
        self.store = f"{self.system}/store"
        self.tree = self.store if given.plain else self.file("mnt")
        self.disk = self.vault = self.loop = None
        for name in ("fs", "mnt", "disk", "run"):
            os.makedirs(self.file(name), 0o711 if name != "run" else 0o700, exist_ok=True)
        os.environ["XDG_RUNTIME_DIR"] = self.file("run")
        with open(self.file("passphrase"), "w") as file:
            file.write("correct horse battery\n")

    def file(self, name):
        return f"{self.directory}/{name}"

    def vaultfs(self, command, *words, check=True):
        return run(self.given.binary, command, "--passfile", self.file("passphrase"), *words, check=check)

    def mount(self, file, direct=False):
        self.loop = run("losetup", f"--direct-io={'on' if direct else 'off'}", "--find", "--show", file)[1].strip()
        try:
            kind = self.given.fs.partition("-")[0]
            run("mount", "-t", kind, "-o", SYSTEMS[self.given.fs][1], self.loop, self.system)
        finally:
            # The kernel detaches it after the unmount (LO_FLAGS_AUTOCLEAR), even if we are killed.
            run("losetup", "--detach", self.loop)

    def unmount(self):
        """The kernel may need the file system for a moment after a daemon's end."""
        end = time.monotonic() + TIMEOUT
        while run("umount", self.system, check=False)[0]:
            if time.monotonic() > end:
                raise RigError(f"{self.system} stays busy")
            time.sleep(0.05)

    def mount_vault(self):
        self.vault = Served(self.file("daemon.log"), self.tree, self.given.binary, "mount", "-f", "-o", "allow_other",
                            "--passfile", self.file("passphrase"), "--lock-file", self.file("run/device.lock"),
                            self.store, self.tree)

    def work(self, action, *words, timeout):
        return run(sys.executable, f"{HERE}/power_work.py", action, "--work", self.given.workload, self.tree, self.events,
                   *words, timeout=timeout)[1]

    def record(self):
        """Makes the file system, the vault and the work's files, and records the work. Writes the moments between which
        cuts are made."""
        mkfs = SYSTEMS[self.given.fs][0]
        size = max(WORK[name] for name in self.given.workload.split(",")) << 20
        with open(self.base, "wb") as file:
            file.truncate(size)
        run(*mkfs, self.base)
        run("cp", "--sparse=always", self.base, self.image)
        self.disk = Served(self.file("disk.log"), self.file("disk"), self.given.disk, self.image, self.log, self.file("disk"))
        self.mount(self.file("disk/disk"), direct=True)
        os.mkdir(self.store, 0o711)
        if not self.given.plain:
            self.vaultfs("init", "--no-recovery-key", "--scrypt-logn", "10", self.store)
            self.mount_vault()
            os.chmod(self.tree, 0o711)
        self.work("make", timeout=CHECK_TIMEOUT)
        run("sync", "--file-system", self.system)
        start = time.monotonic_ns()
        self.work("run", "--seconds", str(self.given.seconds), "--seed", str(self.given.seed), "--store", self.store,
                  timeout=self.given.seconds + CHECK_TIMEOUT)
        end = time.monotonic_ns()
        with open(self.file("span"), "w") as file:
            json.dump([start, end], file)
        if self.vault:
            self.vault.abandon()
        self.unmount()
        self.disk.stop()
        self.vault = self.disk = None

    def check(self, cut):
        """Mounts the image and returns failures: [part, what, path]."""
        try:
            self.mount(self.image)
            try:
                if not self.given.plain:
                    self.mount_vault()
                words = ["--plain"] if self.given.plain else []
                found = json.loads(self.work("check", "--cut", str(cut), *words, timeout=CHECK_TIMEOUT))
                if self.vault:
                    self.vault.stop()
                    code, out, errors = self.vaultfs("verify", self.store, check=False)
                    if code:
                        last = (out + errors).strip().rpartition("\n")[2].rpartition(": ")[2]
                        found.append(["verify", f"exit code {code}", f"({last})"])
                return found
            finally:
                if self.vault:
                    self.vault.abandon()
                    self.vault = None
                self.unmount()
        except (CutFailure, RigError) as error:
            return [["vault" if isinstance(error, CutFailure) else "rig", str(error), ""]]

    def abandon(self):
        """At the end, whatever the state: a namespace of our own is here, and all daemons end with us."""
        for served in (self.vault, self.disk):
            if served:
                served.abandon()
        subprocess.run(["umount", "--lazy", self.system], stderr=subprocess.DEVNULL, timeout=TIMEOUT)


class Recording:
    """The disk's log, and the disk as it was at the last barrier before a position in it."""

    def __init__(self, rig):
        self.rig, self.entries = rig, []
        self.file = open(rig.log, "rb")
        while head := self.file.read(HEAD.size):
            time_, offset, length = HEAD.unpack(head)
            self.entries.append((time_, offset, length, self.file.tell()))
            self.file.seek(length, os.SEEK_CUR)
        self.durable, self.applied = rig.file("durable"), 0
        run("cp", "--sparse=always", rig.base, self.durable)

    def between(self, start, end):
        return [number for number, entry in enumerate(self.entries) if start < entry[0] < end]

    def bytes(self, entry):
        self.file.seek(entry[3])
        return self.file.read(entry[2])

    def build(self, position, rng, units):
        """Makes the image as it may be after a cut before entry `position`. Positions do not decrease. Returns a
        description."""
        barrier = max((n for n in range(self.applied, position) if not self.entries[n][2]), default=self.applied)
        with open(self.durable, "r+b") as image:
            for entry in self.entries[self.applied:barrier]:
                image.seek(entry[1])
                image.write(self.bytes(entry))
        self.applied = barrier
        run("cp", "--sparse=always", self.durable, self.rig.image)
        pending = [entry for entry in self.entries[barrier:position] if entry[2]]
        style, unit, share = rng.choice(["writes", "sectors", "first"]), rng.choice(units), rng.choice([0.1, 0.5, 0.9])
        stop = rng.randrange(len(pending) + 1)
        with open(self.rig.image, "r+b") as image:
            for number, entry in enumerate(pending):
                data, whole = self.bytes(entry), rng.random() < share
                for start in range(0, len(data), unit):
                    kept = {"writes": whole, "sectors": rng.random() < share,
                            "first": number < stop or number == stop and rng.random() < share}[style]
                    if kept:
                        image.seek(entry[1] + start)
                        image.write(data[start:start + unit])
        return f"before write {position}, {len(pending)} writes after the last barrier, {style}, {unit} bytes"


def torture(given, rig):
    if not given.recording:
        rig.record()
    with open(rig.file("span")) as file:
        span = json.load(file)
    recording = Recording(rig)
    positions = recording.between(*span)
    barriers = sum(not recording.entries[number][2] for number in positions)
    print(f"{given.fs}{' without vaultfs' if given.plain else ''}, {given.workload}: {len(positions)} writes, {barriers} of "
          f"them barriers, in {(span[1] - span[0]) / 1e9:.0f} s", flush=True)
    rng = random.Random(given.seed)
    cuts = sorted((rng.choice(positions), rng.getrandbits(32)) for _ in range(given.cuts))
    failed, counts = 0, collections.Counter()
    for number, (position, seed) in enumerate(cuts, 1):
        if given.cut and number != given.cut:
            continue
        about = recording.build(position, random.Random(seed), SYSTEMS[given.fs][2])
        failures = rig.check(recording.entries[position][0])
        if failures:
            failed += 1
            print(f"seed {given.seed}, cut {number} ({about}):", flush=True)
            for part, text, path in failures[:SHOWN]:
                print(f"  {part}: {text}{' ' + path if path else ''}", flush=True)
            if len(failures) > SHOWN:
                print(f"  and {len(failures) - SHOWN} more")
        # In how many cuts a part failed, and how. Figures in the messages differ.
        counts.update({(part, "") for part, _, _ in failures})
        counts.update({(part, re.sub(r"\d+", "N", text.partition("\n")[0])) for part, text, _ in failures})
    print(f"{failed} of {1 if given.cut else given.cuts} cuts failed")
    for (part, text), count in sorted(counts.items()):
        print(f"{count:7d}  {text}" if text else f"{count:5d}  {part}")
    return failed


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/torture/power", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="vaultfs; default: a release build")
    parser.add_argument("--disk", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--fs", choices=SYSTEMS, default="ext4")
    parser.add_argument("--workload", default="sqlite,files", metavar="NAME,…", help="some of: sqlite,files,postgres")
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=20, help="how long the work is recorded")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--plain", action="store_true", help="without vaultfs: the rig by itself must show no failure")
    parser.add_argument("--work", default=os.environ.get("TMPDIR", "/var/tmp"), help="needs 2 GiB")
    parser.add_argument("--recording", metavar="DIR", help="cut a recording that an earlier run kept, with its options")
    parser.add_argument("--cut", type=int, metavar="N", help="only this one of the cuts")
    parser.add_argument("--keep", action="store_true", help="keep the recording; a failure keeps it too")
    given = parser.parse_args()
    for name in given.workload.split(","):
        if name not in WORK:
            parser.error(f"no workload {name}")
    return given


def main():
    given = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    rig, failed = Rig(given), 0
    try:
        failed = torture(given, rig)
    except (RigError, CutFailure) as error:
        sys.exit(f"torture/power: {error}")
    finally:
        rig.abandon()
        if given.keep or given.recording or failed:
            for name in ("durable", "image"):
                if os.path.exists(rig.file(name)):
                    os.unlink(rig.file(name))
            print(f"kept: {rig.directory} (repeat with --recording and the same options, or remove it)")
        else:
            shutil.rmtree(rig.directory)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
