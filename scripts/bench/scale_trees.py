"""The cost of one file in trees of different sizes, and the time of a mount until its first answer."""

import os
import random
import shutil
import statistics
import time

TREES = {"empty": 0, "10 files": 10, "1,000 files": 1_000, "100,000 files": 100_000}
MILLION = {"1,000,000 files": 1_000_000}
FLAT = {"100,000 files in one directory": 100_000}
IN_ONE_DIRECTORY = 1_000
CONTENT = b"a small file\n" * 5
SAMPLE = 100


def make(vault, name, count):
    """Makes the vault and its tree. Leaves it unmounted. Returns a directory of files, or the mountpoint."""
    vault.make()
    vault.mount()
    in_one = count if name in FLAT else IN_ONE_DIRECTORY
    for index in range((count + in_one - 1) // in_one):
        os.mkdir(f"{vault.mountpoint}/directory{index}")
    template = f"{vault.mountpoint}/directory0"
    # The directory to be copied is the one in the store that is not empty.
    for index in range(min(count, in_one)):
        with open(f"{template}/file{index}", "wb") as file:
            file.write(CONTENT)
    vault.unmount()
    if count > in_one:
        copy_directory(vault.store)
    return template if count else vault.mountpoint


def copy_directory(store):
    """Fills every directory of the store with the content of the one that has files. The format allows that: a
    directory's keys are in it, and it may be copied whole. So a million files take seconds."""
    directories = [entry.path for entry in os.scandir(store) if entry.is_dir()]
    full = max(directories, key=lambda path: len(os.listdir(path)))
    for path in directories:
        if path != full:
            shutil.copytree(full, path, dirs_exist_ok=True)


def measure(vaults, rounds, say):
    """Medians in milliseconds of the mount, and in microseconds of stat and of open, read and close of one file that
    was not used since the mount. `vaults` maps names to (vault, directory, count of files). The vaults take turns,
    so that other load of the machine affects all alike."""
    times = {name: {"mount": [], "stat": [], "read": []} for name in vaults}
    numbers = random.Random(1)
    for number in range(1, rounds + 1):
        say(f"trees: round {number} of {rounds}")
        looks = []
        for name, (vault, directory, count) in vaults.items():
            start = time.perf_counter()
            vault.mount()
            os.stat(f"{directory}/file0" if count else directory)
            times[name]["mount"].append((time.perf_counter() - start) * 1000)
            others = range(1, count if name in FLAT else min(count, IN_ONE_DIRECTORY))
            looks += [(name, f"{directory}/file{index}") for index in numbers.sample(others, min(SAMPLE, len(others)))]
        numbers.shuffle(looks)
        for name, path in looks:
            look(path, times[name])
        for vault, _, _ in vaults.values():
            vault.unmount()
    return {name: {what: statistics.median(taken) if taken else None for what, taken in each.items()}
            for name, each in times.items()}


def look(path, times):
    start = time.perf_counter_ns()
    os.stat(path)
    middle = time.perf_counter_ns()
    descriptor = os.open(path, os.O_RDONLY)
    content = os.read(descriptor, 4096)
    os.close(descriptor)
    end = time.perf_counter_ns()
    times["stat"].append((middle - start) / 1000)
    times["read"].append((end - middle) / 1000)
    if content != CONTENT:
        raise OSError(f"{path} is not what was written")
