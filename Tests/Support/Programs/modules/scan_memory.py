"""Searches all readable memory of a process for byte strings. Run it as root, if the process is not dumpable.

scan_memory.py PID < one byte string a line, in hexadecimal

One line for each: the number of occurrences, the string, and the mappings that contain it with their counts. Exits 0
whether anything is found or not, 1 if the memory cannot be read. Memory of memfd_secret cannot be read: such
mappings are named."""

import os
import sys

READ_SIZE = 4 << 20


def mappings(pid):
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            fields = line.rstrip("\n").split(None, 5)
            start, end = (int(address, 16) for address in fields[0].split("-"))
            if fields[1].startswith("r"):
                yield start, end, fields[5] if len(fields) > 5 else "anonymous"


def read(memory, start, size):
    try:
        return os.pread(memory, size, start)
    except OSError:
        return b""


def occurrences(block, needle):
    """The number that start within the block proper, which the next block does not count again."""
    count, place = 0, block.find(needle)
    while 0 <= place < READ_SIZE:
        count, place = count + 1, block.find(needle, place + 1)
    return count


def main():
    pid = int(sys.argv[1])
    needles = [bytes.fromhex(line) for line in sys.stdin.read().split()]
    if not needles:
        sys.exit("scan_memory: nothing to look for")
    overlap = max(map(len, needles)) - 1
    found = {needle: {} for needle in needles}
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    total = 0
    for start, end, name in mappings(pid):
        if name.startswith("/secretmem"):
            print(f"scan_memory: {end - start} bytes of memfd_secret cannot be read", file=sys.stderr)
        for place in range(start, end, READ_SIZE):
            block = read(memory, place, min(READ_SIZE + overlap, end - place))
            total += len(block)
            for needle in needles:
                count = occurrences(block, needle)
                if count:
                    found[needle][name] = found[needle].get(name, 0) + count
    if not total:
        sys.exit(f"scan_memory: no memory of process {pid} can be read")
    for needle in needles:
        places = ", ".join(f"{name} {count}" for name, count in sorted(found[needle].items()))
        print(f"{sum(found[needle].values())} {needle.hex()}" + (f" {places}" if places else ""))


main()
