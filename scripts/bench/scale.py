"""Measures if the cost of a read grows with its length only, not with the file's size or the tree's. Also measures the
time of a mount until its first answer, and that of an empty vault with the same key derivation. scripts/bench/run
builds and calls this.

Prints two tables; writes scale.json and scale.md."""

import argparse
import json
import os
import pathlib

import machine
import scale_files
import scale_trees
from systems import BenchError, prepare, say, vaultfs, workspace

# Small, so that it does not hide the time of the mount itself.
KEY_DERIVATION = ("--scrypt-logn", "10")
ROOM_FOR_A_FILE = 8192
RESULTS = pathlib.Path(__file__).resolve().parents[2] / "bench-results"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", required=True, help="the directory of vaultfs")
    parser.add_argument("--million", action="store_true", help="a tree of 1,000,000 files too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default="/dev/shm", help="where the vaults are made")
    parser.add_argument("--out", default=RESULTS)
    return parser.parse_args()


def measure(given, work):
    prepare(work)
    trees = scale_trees.TREES | scale_trees.FLAT
    if given.million:
        trees |= scale_trees.MILLION
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
        files = scale_files.measure(vault("files"), given.rounds, say)
        vaults = {}
        for number, (name, count) in enumerate(trees.items()):
            say(f"making a vault: {name}")
            made = vault(f"tree{number}")
            vaults[name] = (made, scale_trees.make(made, name, count), count)
        return files, scale_trees.measure(vaults, given.rounds, say)
    finally:
        for each in mounted:
            each.abandon()


def tables(files, trees, about):
    """Two Markdown tables, and a description of the machine."""
    lengths = list(scale_files.LENGTHS)
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
    lines += ["", f"{about['cpu']}, {about['cores']} cores; kernel {about['kernel']}; vaults on "
              f"{about['filesystem']}; {about['date']}; load at the end {about['load']}."]
    return "\n".join(lines) + "\n"


def main():
    given = arguments()
    with workspace(given.work) as work:
        files, trees = measure(given, work)
        about = machine.description(work)
        say("removing the vaults")
    shown = tables(files, trees, about)
    os.makedirs(given.out, exist_ok=True)
    with open(f"{given.out}/scale.json", "w") as file:
        reads = [{"file": name, "read": kind, "microseconds": times} for (name, kind), times in files.items()]
        json.dump({"machine": about, "reads": reads, "trees": trees}, file, indent=1)
    with open(f"{given.out}/scale.md", "w") as file:
        file.write(shown)
    print(shown, end="")


if __name__ == "__main__":
    main()
