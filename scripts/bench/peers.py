"""Runs the same work on vaultfs, on a FUSE server that does nothing, on the plain directory, and on the installed ones
of bindfs, gocryptfs, securefs and encfs: interleaved, with medians over the rounds. scripts/bench/run builds and calls
this.

The backing store's page cache stays warm. The mount's own cache is cold, because it is mounted again before each
test that reads. Prints a table, and writes results.json, table.md, plot.svg and micro.txt."""

import argparse
import json
import os
import pathlib
import shutil
import time

import machine
import pages
import plot
import table
from goals import goal, self_test
from systems import BenchError, median, prepare, run, say, systems, workspace
from work import MEBIBYTE, TESTS, Work

IDLE_SECONDS = 5
TREE_ROOM = 300 * MEBIBYTE
RESULTS = pathlib.Path(__file__).resolve().parents[2] / "bench-results"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", help="the directory of vaultfs, null-server and vaultfs-micro")
    parser.add_argument("--size", type=int, default=512, metavar="MIB", help="the big file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="how long each random test runs")
    parser.add_argument("--work", default="/dev/shm", help="where the stores are made; on tmpfs no disk hides differences")
    parser.add_argument("--out", default=RESULTS)
    parser.add_argument("--tests", default=",".join(TESTS), help="some of: %(default)s")
    parser.add_argument("--self-test", action="store_true", help="check goals and the manual's table, and end")
    given = parser.parse_args()
    given.tests = given.tests.split(",")
    unknown = [name for name in given.tests if name not in TESTS]
    if unknown:
        parser.error(f"no test {', '.join(unknown)}: there are {', '.join(TESTS)}")
    if not given.self_test and not given.binaries:
        parser.error("--binaries is missing: start scripts/bench/run")
    if min(given.size, given.rounds, given.seconds) < 1:
        parser.error("size, rounds and seconds are at least 1")
    return given


def measure(given, work, compared):
    """Runs every test on every system, round by round. Returns {system: {test: [rate or None]}}, and the same with
    the processor time of daemon and programs for each unit, in microseconds."""
    rates, costs = ({system.name: {test: [] for test in given.tests} for system in compared} for _ in range(2))
    for number in range(1, given.rounds + 1):
        for test in given.tests:
            # Alternates the direction, so that no system is always the first to use memory, or the last.
            for system in compared if number % 2 else reversed(compared):
                work.system = system
                try:
                    rate = getattr(work, test)(system)
                    costs[system.name][test].append(work.cost(rate))
                except BenchError as error:
                    rate = None
                    say(f"{system.name}, {test}: {error}")
                rates[system.name][test].append(rate)
                say(f"round {number} of {given.rounds}  {test:20s} {system.name:10s} {table.rate(rate):>10s}")
    return rates, costs


def touch(path, size):
    """Makes a virtual machine request the memory for the files from its host, because its first use is slow."""
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    os.unlink(path)


def idle(system):
    """CPU time (ms) of the daemon, and the number of times that it runs at all, while nobody uses the mount."""
    system.remount()
    os.listdir(system.mountpoint)
    # The work that the mount itself causes afterwards.
    time.sleep(2)
    before = machine.work_done(system.daemons)
    time.sleep(IDLE_SECONDS)
    after = machine.work_done(system.daemons)
    return {"seconds": IDLE_SECONDS, "milliseconds": (after[0] - before[0]) / 1e6, "wakeups": after[1] - before[1]}


def compare(given, directory):
    prepare(directory)
    compared, absent = systems(directory, given.binaries)
    if absent:
        say(f"not installed, left out: {', '.join(absent)}")
    need = (len(compared) * (given.size * MEBIBYTE + TREE_ROOM)) + given.size * MEBIBYTE
    free = shutil.disk_usage(directory).free
    if free < need:
        raise BenchError(f"{given.work} has {free >> 20} MiB left and {need >> 20} are needed: choose a smaller --size")
    touch(f"{directory}/touched", need)
    say("making the file and the tree")
    work = Work(directory, given.size, given.seconds)
    try:
        for system in compared:
            system.make()
            system.mount()
        rates, costs = measure(given, work, compared)
        ours = compared[-1]
        at_rest = idle(ours)
        ours.note_memory()
        for system in compared:
            system.unmount()
    finally:
        for system in compared:
            system.abandon()
    medians = {name: {test: median(values) for test, values in tests.items()} for name, tests in rates.items()}
    costs = {
        name: {test: list(map(median, zip(*values))) for test, values in tests.items()} for name, tests in costs.items()}
    on_disk = machine.filesystem(directory) != "tmpfs"
    goals = {
        test: goal(test, {name: medians[name][test] for name in medians}, on_disk) for test in given.tests
    }
    return {
        "machine": machine.description(directory),
        "versions": {system.name: system.version for system in compared if system.version},
        "settings": {
            "fileMebibytes": given.size, "rounds": given.rounds, "seconds": given.seconds,
            "treeEntries": work.entries, "treeMebibytes": round(work.tree_bytes / MEBIBYTE)},
        "tests": {test: {"name": TESTS[test][0], "unit": TESTS[test][1]} for test in given.tests},
        "rates": rates, "medians": medians, "costs": costs, "goals": goals,
        "daemon": {"peakResidentMebibytes": round(ours.peak_kibibytes / 1024, 1), "idle": at_rest},
    }


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    given = arguments()
    if given.self_test:
        self_test()
        pages.self_test()
        return
    os.makedirs(given.out, exist_ok=True)
    say("measuring cryptography and the cache by themselves")
    micro = run(f"{given.binaries}/vaultfs-micro")
    print(micro)
    with workspace(given.work) as directory:
        results = compare(given, directory)
    write(f"{given.out}/micro.txt", micro)
    write(f"{given.out}/results.json", json.dumps(results, indent=1) + "\n")
    write(f"{given.out}/table.md", table.markdown(results))
    write(f"{given.out}/plot.svg", plot.svg(results))
    print(table.text(results))
    say(f"written: results.json, table.md, plot.svg and micro.txt in {given.out}")


if __name__ == "__main__":
    main()
