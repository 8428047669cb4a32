"""The tables of figures in the manual, filled with the results of a run. A row keeps its own words. The
best encrypted file system of a row is bold, whichever it is."""

from goals import ENCRYPTED
from table import cost, rate

# A row's first cell, and the test that it shows.
ROWS = {
    "sequential write, MiB/s": "seqwrite",
    "sequential read, 1 MiB at a time, MiB/s": "seqread",
    "sequential read, `cat`, MiB/s": "catread",
    "random 4 KiB reads past the page cache, per second": "rand4k_direct",
    "the same from 4 processes": "rand4k_direct_4jobs",
    "random 4 KiB reads through the page cache": "rand4k_buffered",
    "random 4 KiB writes": "randwrite4k",
    "untar, files/s": "untar",
    "`ls -lR`, cold, files/s": "lsr",
    "reading a tree with tar, cold, files/s": "readtree",
    "`rm -rf`, files/s": "rmtree",
}
# The same of the table of processor time.
COSTS = {
    "MiB of a sequential write": "seqwrite",
    "MiB of a sequential read, 1 MiB at a time": "seqread",
    "MiB of a sequential read, `cat`": "catread",
    "random 4 KiB read past the page cache": "rand4k_direct",
    "the same from 4 processes": "rand4k_direct_4jobs",
    "random 4 KiB read through the page cache": "rand4k_buffered",
    "random 4 KiB write": "randwrite4k",
    "file of `untar`": "untar",
    "file of `ls -lR`, cold": "lsr",
    "file of a tree read with tar, cold": "readtree",
    "file of `rm -rf`": "rmtree",
}
# How each table's head begins: its rows, and the figures in its cells.
TABLES = {"| |": (ROWS, "medians"), "| µs |": (COSTS, "costs")}
COLUMNS = ("null", "bindfs", "gocryptfs", "securefs", "encfs", "vaultfs")


def filled(page, results):
    """The page with new figures in these tables. A row whose test was not run stays as it is."""
    lines = page.split("\n")
    inside = None
    for number, line in enumerate(lines):
        # Another table can have a row of the same name.
        begun = next((head for head in TABLES if line.startswith(f"{head} FUSE |")), None)
        inside = begun or (inside if line.startswith("|") else None)
        if begun:
            lines[number] = f"{begun} " + " | ".join(heading(name, results["versions"]) for name in COLUMNS) + " |"
        elif inside:
            rows, figures = TABLES[inside]
            words = line.split(" | ")[0].removeprefix("| ")
            if rows.get(words) in results["tests"]:
                lines[number] = f"| {words} | " + " | ".join(cells(rows[words], figures, results)) + " |"
    return "\n".join(lines)


def cells(test, figures, results):
    """A row's figures."""
    found = {name: results[figures].get(name, {}).get(test) for name in COLUMNS}
    measured = [found[name] for name in (*ENCRYPTED, "vaultfs") if found[name]]
    show, best = (cost, min) if figures == "costs" else (rate, max)
    # Of two processor times, the sum counts.
    key = sum if figures == "costs" else None
    best = best(measured, key=key) if measured else None
    return [f"**{show(value)}**" if name in (*ENCRYPTED, "vaultfs") and value and value == best else show(value)
            for name, value in found.items()]


def heading(name, versions):
    """A column's name. A peer that other people make has its version."""
    short = ".".join(versions.get(name, "").split(".")[:2])
    return "FUSE" if name == "null" else name if name in ("bindfs", "vaultfs") else f"{name} {short}".strip()


def self_test():
    """Fails if a row of another table gets figures."""
    page = ("| | FUSE |\n|---|--:|\n| untar, files/s | 1 |\n\n| | plain |\n|---|--:|\n| untar, files/s | 2 |\n\n"
            "| µs | FUSE |\n|---|--:|\n| file of `untar` | 1 |")
    results = {"tests": {"untar": {}}, "medians": {"vaultfs": {"untar": 3}}, "versions": {},
               "costs": {"vaultfs": {"untar": [200, 4]}, "securefs": {"untar": [100, 105]}}}
    lines = filled(page, results).split("\n")
    assert lines[2].endswith("| **3** |") and lines[6] == "| untar, files/s | 2 |", lines
    assert lines[10].endswith("| 100 + 105 | – | **200 + 4.0** |"), lines
