#!/usr/bin/env python3
"""Measures if the cost of a read grows with its length only, not with the file's size or the tree's. Also measures the
time of a mount until its first answer, and that of an empty vault with the same key derivation. scripts/bench-scale
builds and calls this.

Prints two tables; writes scale.json and scale.md."""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile

import bench_machine
import bench_scale_files
import bench_scale_trees
from bench_systems import BenchError, prepare, vaultfs

# Small, so that it does not hide the time of the mount itself.
KEY_DERIVATION = ("--scrypt-logn", "10")
ROOM_FOR_A_FILE = 8192


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", required=True, help="the directory of vaultfs")
    parser.add_argument("--million", action="store_true", help="a tree of 1,000,000 files too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default="/dev/shm", help="where the vaults are made")
    parser.add_argument("--out", default="bench-results")
    return parser.parse_args()


def say(text):
    print(text, file=sys.stderr, flush=True)


def measure(given, work):
    prepare(work)
    trees = bench_scale_trees.TREES | bench_scale_trees.FLAT
    if given.million:
        trees |= bench_scale_trees.MILLION
    space = os.statvfs(work)
    need = sum(trees.values())
    if space.f_bavail * space.f_frsize < need * ROOM_FOR_A_FILE or 0 < space.f_favail < need:
        raise BenchError(f"{given.work} has no room for {need:,} small files")
    mounted = []

    def vault(name):
        mounted.append(vaultfs(work, given.binaries, name, KEY_DERIVATION))
        return mounted[-1]

    try:
        say("making the files")
        files = bench_scale_files.measure(vault("files"), given.rounds, say)
        vaults = {}
        for number, (name, count) in enumerate(trees.items()):
            say(f"making a vault: {name}")
            made = vault(f"tree{number}")
            vaults[name] = (made, bench_scale_trees.make(made, name, count), count)
        return files, bench_scale_trees.measure(vaults, given.rounds, say)
    finally:
        for each in mounted:
            each.abandon()


def tables(files, trees, machine):
    """Two Markdown tables, and a description of the machine."""
    lengths = list(bench_scale_files.LENGTHS)
    lines = [
        "Median microseconds of a read (O_DIRECT) of what is in no cache of vaultfs's:", "",
        "| file | what is read | " + " | ".join(lengths) + " |", "|---|---|" + "--:|" * len(lengths)]
    for (name, kind), times in files.items():
        cells = [f"{times[length]:.1f}" if length in times else "–" for length in lengths]
        lines.append(f"| {name} | {kind} | " + " | ".join(cells) + " |")
    base = trees["empty"]["mount"]
    lines += [
        "", "A file that was not looked at since the mount, µs (medians); mount and first stat, ms, the key derivation "
        "included, and what that is above an empty vault's:", "",
        "| tree | stat | open, read, close | mount to first answer | above empty |", "|---|--:|--:|--:|--:|"]
    for name, times in trees.items():
        cells = ["–" if times[what] is None else f"{times[what]:.1f}" for what in ("stat", "read", "mount")]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {times['mount'] - base:+.1f} |")
    lines += ["", f"{machine['cpu']}, {machine['cores']} cores; kernel {machine['kernel']}; vaults on "
              f"{machine['filesystem']}; {machine['date']}; load at the end {machine['load']}."]
    return "\n".join(lines) + "\n"


def main():
    given = arguments()
    # Mounts and directories are removed in every case.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    work = tempfile.mkdtemp(prefix="vaultfs-scale.", dir=given.work)
    try:
        files, trees = measure(given, work)
        machine = bench_machine.description(work)
    except (BenchError, OSError) as error:
        sys.exit(f"bench-scale: {error}")
    finally:
        say("removing the vaults")
        shutil.rmtree(work, ignore_errors=True)
    shown = tables(files, trees, machine)
    os.makedirs(given.out, exist_ok=True)
    with open(f"{given.out}/scale.json", "w") as file:
        reads = [{"file": name, "read": kind, "microseconds": times} for (name, kind), times in files.items()]
        json.dump({"machine": machine, "reads": reads, "trees": trees}, file, indent=1)
    with open(f"{given.out}/scale.md", "w") as file:
        file.write(shown)
    print(shown, end="")


if __name__ == "__main__":
    main()
