"""Random 4 KiB reads of views beside those of a vault: the same `vaultfs bench`, in turns. The last view is of an MP4
film (cbcs), which is also read from beginning to end, beside a plain file of the same view. scripts/bench/run calls
this."""

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import time

from systems import System, median, prepare, say, vaultfs, workspace

CHUNK = 16 << 20
# Reads of the whole film in each round.
THROUGH = 5
FILM = os.path.join(os.path.dirname(__file__), "../../Tests/Support/Programs/views/mp4_files.py")


def encrypt(source, target, key, iv):
    subprocess.run(["openssl", "enc", "-aes-256-cbc", "-K", key, "-iv", iv], stdin=source, stdout=target, check=True)


def make(given, work):
    """Makes the vault and the two views of the same file. Returns them mounted."""
    prepare(work)
    key, iv = secrets.token_hex(32), secrets.token_hex(16)
    with open(f"{work}/key", "w") as file:
        file.write(key)
    with open(f"{work}/source", "wb") as file:
        for _ in range(given.mebibytes):
            file.write(os.urandom(1 << 20))
    found = [vaultfs(work, given.binaries)]
    for kind in ("cbc", "cbc-chunks"):
        found.append(System(kind, work, mount=[
            f"{given.binaries}/vaultfs", "view", kind, "--key-file", f"{work}/key", "--iv", iv, "--lock-file",
            f"{work}/run/device.lock", "{c}", "{m}"]))
    found.append(System("cbcs", work, mount=[
        f"{given.binaries}/vaultfs", "view", "mp4", "--key", f"{'10' * 16}={work}/film/keys/{'10' * 16}", "--lock-file",
        f"{work}/run/device.lock", "{c}", "{m}"]))
    for system in found:
        system.make()
    subprocess.run([sys.executable, FILM, "filled", f"{work}/film", str(given.mebibytes)], check=True)
    os.rename(f"{work}/film/source/film.mp4", f"{work}/cbcs.store/file")
    os.rename(f"{work}/film/originals/film.mp4", f"{work}/cbcs.store/plain")
    with open(f"{work}/source", "rb") as source, open(f"{work}/cbc.store/file", "wb") as whole, \
            open(f"{work}/cbc-chunks.store/file", "wb") as chunks:
        encrypt(source, whole, key, iv)
        for offset in range(0, given.mebibytes << 20, CHUNK):
            with open(f"{work}/chunk", "wb") as chunk:
                os.sendfile(chunk.fileno(), source.fileno(), offset, CHUNK)
            with open(f"{work}/chunk", "rb") as chunk:
                encrypt(chunk, chunks, key, iv)
    for system in found:
        system.mount()
    shutil.move(f"{work}/source", f"{found[0].mountpoint}/file")
    return found


def measure(given, found):
    """The rates of each: {(cache, jobs): {system: [rate]}}."""
    rates = {}
    for number in range(1, given.rounds + 1):
        # The machine's speed drifts within a round.
        for system in found if number % 2 else reversed(found):
            say(f"round {number}: {system.name}")
            words = (system.mountpoint + "/file", "--block-sizes", "4096", "--duration", f"{given.seconds}s", "--json")
            done = subprocess.run([f"{given.binaries}/vaultfs", "bench", *words], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
            for result in json.loads(done.stdout)["results"]:
                kinds = rates.setdefault((result["cache"], result["jobs"]), {})
                kinds.setdefault(system.name, []).append(result["iops"])
    return rates


def read_through(given, film):
    """The seconds that `cat` takes for the film, and for the plain file: (film, plain)."""
    seconds = {"file": [], "plain": []}
    for number in range(THROUGH * given.rounds):
        # In turns, each on a mount of its own: the first reader of a mount pays for its threads and buffers.
        for name in sorted(seconds, reverse=number % 2 == 1):
            film.remount()
            start = time.monotonic()
            subprocess.run(["cat", f"{film.mountpoint}/{name}"], stdout=subprocess.DEVNULL, check=True)
            seconds[name].append(time.monotonic() - start)
    return median(seconds["file"]), median(seconds["plain"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", required=True, help="the directory of vaultfs")
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--work", default="/dev/shm", help="where the files are made")
    given = parser.parse_args()
    with workspace(given.work) as work:
        found = make(given, work)
        try:
            rates = measure(given, found)
            film, plain = read_through(given, found[-1])
            for system in found:
                system.unmount()
        finally:
            for system in found:
                system.abandon()
    print("random 4 KiB reads per second, medians, and as parts of the vault's")
    print(f"{'cache':<12}{'jobs':>5}{'vault':>10}" + "".join(f"{system.name:>12}{'':>7}" for system in found[1:]))
    for (cache, jobs), kinds in rates.items():
        vault, *views = (median(kinds[system.name]) for system in found)
        print(f"{cache:<12}{jobs:>5}{vault:>10,.0f}" + "".join(f"{view:>12,.0f}{view / vault:>7.2f}" for view in views))
    print(f"cat of the film: {given.mebibytes / film:,.0f} MiB/s, {plain / film:.2f} of a plain file's")


if __name__ == "__main__":
    main()
