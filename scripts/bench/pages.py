"""The tables of figures in the README and the manual, filled with the results of a run. A row keeps its own words."""

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
    """The page with new figures, vaultfs' in bold. A row whose test was not run stays as it is."""
    lines = page.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("| | FUSE |"):
            lines[number] = "| | " + " | ".join(heading(name, results["versions"]) for name in COLUMNS) + " |"
        words = line.split(" | ")[0].removeprefix("| ")
        if ROWS.get(words) in results["tests"]:
            cells = [rate(results["medians"].get(name, {}).get(ROWS[words])) for name in COLUMNS]
            lines[number] = f"| {words} | " + " | ".join([*cells[:-1], f"**{cells[-1]}**"]) + " |"
    return "\n".join(lines)


def heading(name, versions):
    """A column's name. A peer that other people make has its version."""
    short = ".".join(versions.get(name, "").split(".")[:2])
    return "FUSE" if name == "null" else name if name in ("bindfs", "vaultfs") else f"{name} {short}".strip()
