"""The table of figures in the manual, filled with the results of a run. A row keeps its own words. The
best encrypted file system of a row is bold, whichever it is."""

from goals import ENCRYPTED
from table import rate

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
COLUMNS = ("null", "bindfs", "gocryptfs", "securefs", "encfs", "vaultfs")


def filled(page, results):
    """The page with new figures in this table. A row whose test was not run stays as it is."""
    lines = page.split("\n")
    inside = False
    for number, line in enumerate(lines):
        # Another table can have a row of the same name.
        inside = line.startswith("| | FUSE |") or inside and line.startswith("|")
        if line.startswith("| | FUSE |"):
            lines[number] = "| | " + " | ".join(heading(name, results["versions"]) for name in COLUMNS) + " |"
        words = line.split(" | ")[0].removeprefix("| ")
        if inside and ROWS.get(words) in results["tests"]:
            lines[number] = f"| {words} | " + " | ".join(cells(ROWS[words], results["medians"])) + " |"
    return "\n".join(lines)


def cells(test, medians):
    """A row's figures."""
    rates = {name: medians.get(name, {}).get(test) for name in COLUMNS}
    best = max((rates[name] for name in (*ENCRYPTED, "vaultfs") if rates[name] is not None), default=None)
    return [f"**{rate(value)}**" if name in (*ENCRYPTED, "vaultfs") and value is not None and value == best else rate(value)
            for name, value in rates.items()]


def heading(name, versions):
    """A column's name. A peer that other people make has its version."""
    short = ".".join(versions.get(name, "").split(".")[:2])
    return "FUSE" if name == "null" else name if name in ("bindfs", "vaultfs") else f"{name} {short}".strip()


def self_test():
    """Fails if a row of another table gets figures."""
    page = "| | FUSE |\n|---|--:|\n| untar, files/s | 1 |\n\n| | plain |\n|---|--:|\n| untar, files/s | 2 |"
    results = {"tests": {"untar": {}}, "medians": {"vaultfs": {"untar": 3}}, "versions": {}}
    lines = filled(page, results).split("\n")
    assert lines[2].endswith("| **3** |") and lines[6] == "| untar, files/s | 2 |", lines
