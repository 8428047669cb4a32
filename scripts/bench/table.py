"""The comparison as a table: for the terminal, and in Markdown."""

TITLES = {"null": "null server"}


def rate(value):
    """A rate for people."""
    return "–" if value is None else f"{value:,.0f}"


def title(system):
    return TITLES.get(system, system)


def rows(results):
    """The table's cells, the head first. Of vaultfs the spread is shown too."""
    names = list(results["medians"])
    table = [["test", "unit", *map(title, names), "least…most", "goal", "least term", "vaultfs/goal", "reached"]]
    for test, about in results["tests"].items():
        medians = {name: results["medians"][name][test] for name in names}
        measured = [value for value in results["rates"]["vaultfs"][test] if value is not None]
        spread = f"{rate(min(measured))}…{rate(max(measured))}" if measured else "–"
        table.append([about["name"], about["unit"], *map(rate, medians.values()), spread,
                      *verdict(results["goals"][test], medians["vaultfs"])])
    return table


def cost(pair):
    """Processor time of a daemon and of its programs for each unit, in microseconds."""
    return " + ".join(f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in pair) if pair else "–"


def costs(results):
    """The cells of a table of processor time, the head first."""
    names = [name for name in results["costs"] if name != "plain"]
    table = [["processor time for each", "µs", *map(title, names)]]
    for test, about in results["tests"].items():
        unit = about["unit"].removesuffix("/s")
        table.append([about["name"], unit, *(cost(results["costs"][name][test]) for name in names)])
    return table


def verdict(goal, ours):
    if not goal:
        return ["–", "–", "–", "–"]
    reached = {True: "yes", False: "no", None: "–"}[goal["reached"]]
    if goal["above_bindfs"] is False:
        reached += ", below bindfs"
    share = "–" if ours is None else f"{ours / goal['value']:.2f}"
    return [rate(goal["value"]), goal["term"], share, reached]


def notes(results):
    """Lines about the machine, the settings and the daemon."""
    machine, settings, daemon = results["machine"], results["settings"], results["daemon"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    resting = daemon["idle"]
    return [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['mebibytes'] // 1024} GiB; {machine['system']}, kernel "
        f"{machine['kernel']}; stores on {machine['filesystem']}; {machine['date']}; load at the end {machine['load']}.",
        f"{versions}.",
        f"A file of {settings['fileMebibytes']} MiB; a tree of {settings['treeEntries']:,} entries, "
        f"{settings['treeMebibytes']} MiB; medians of {settings['rounds']} interleaved rounds; random tests of "
        f"{settings['seconds']} s each.",
        f"Peak resident memory of vaultfs's daemon: {daemon['peakResidentMebibytes']} MiB, its block cache included. At rest, in "
        f"{resting['seconds']} s: {resting['milliseconds']:.2f} ms of CPU time, {resting['wakeups']} wake-ups.",
    ]


def aligned(table):
    """The table's lines. The first two columns are words, the others figures."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) if column < 2 else cell.rjust(width)
                      for column, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in table]


def text(results):
    return "\n".join([*aligned(rows(results)), "", *aligned(costs(results)), "", *notes(results)])


def markdown(results):
    parts = []
    for table in (rows(results), costs(results)):
        lines = ["| " + " | ".join(row) + " |" for row in table]
        lines.insert(1, "|" + "|".join("---" if column < 2 else "--:" for column in range(len(table[0]))) + "|")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, *notes(results)]) + "\n"
