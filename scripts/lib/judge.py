"""Judges rows of steps, for scripts/system/stores and network. usage: judge.py DIRECTORY ROW...

DIRECTORY has two files for each row: ROW.steps, the names of the steps that the row must have, a line each, and ROW.result, a
line for each verdict: the step's name, the result and a detail, with tabs between them. A row has passed when each of its
steps has one verdict, and that is "ok", "absent" or "unfit" (the store fails, and that is known). So a row that did not run,
ended early, or has no steps has failed.

The last line is "passed", or what failed. The exit code is 1 after a failure.
"""
import collections
import pathlib
import sys

PASSED = {"ok", "absent", "unfit"}


def lines(path):
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def faults(steps, verdicts):
    """The faults of a row, a text each."""
    if not steps:
        return ["has no steps"]
    results = [(name, result) for name, result, *_ in (verdict.split("\t") + [""] for verdict in verdicts)]
    found = [f"{name} ({result})" for name, result in results if result not in PASSED]
    counted, expected = collections.Counter(name for name, _ in results), collections.Counter(steps)
    missing, unknown = list((expected - counted).elements()), list((counted - expected).elements())
    if missing:
        found.append(f"no verdict of {len(missing)} of {len(steps)} steps: {', '.join(missing)}")
    if unknown:
        found.append(f"verdicts of no step: {', '.join(unknown)}")
    return found


def main():
    directory, rows = pathlib.Path(sys.argv[1]), sys.argv[2:]
    failed = [
        f"{row}: {fault}" for row in rows
        for fault in faults(lines(directory / f"{row}.steps"), lines(directory / f"{row}.result"))
    ] if rows else ["no rows"]
    print("failed: " + "; ".join(failed) if failed else "passed")
    return 1 if failed else 0


sys.exit(main())
