"""Adds up the xunit files of a test run: names each test that failed, with the reason, and each that was skipped, then
prints one line `N passed, N failed`. Exits 1 on a failure, if no test ran, and on a skipped test unless --allow-skips
is given. --times adds a table of the 20 suites that took longest; it makes sense if the tests ran one at a time."""

import collections
import glob
import sys
import xml.etree.ElementTree as ElementTree

directory, options = sys.argv[1], sys.argv[2:]
passed, failed, skipped, why = 0, [], [], {}
seconds = collections.Counter()
for path in sorted(glob.glob(f"{directory}/*.xml")):
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except ElementTree.ParseError:
        failed.append(f"{path}: incomplete, since the run was ended")
        continue
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        seconds[case.get("classname")] += float(case.get("time") or 0)
        troubles = case.findall("failure") + case.findall("error")
        if troubles:
            failed.append(name)
            why[name] = [trouble.get("message", "") for trouble in troubles]
        elif case.find("skipped") is not None:
            skipped.append(name)
        else:
            passed += 1

if "--times" in options:
    for suite, time in seconds.most_common(20):
        print(f"{time:7.1f} s  {suite}")
for name in failed:
    print(f"failed: {name}")
    # Often only the end of a log is read, so the messages are repeated here. What a command has said is at their end.
    for message in why.get(name, [])[:5]:
        shown = message if len(message) <= 1000 else f"{message[:400]} … {message[-600:]}"
        print("    " + shown.replace("\n", "\n    "))
for name in skipped:
    print(f"skipped: {name}")
if not passed and not failed and not skipped:
    print("no test has this name, or none ran")
allowed = "--allow-skips" in options
if skipped and not allowed:
    print(f"{len(skipped)} skipped, and a skipped test counts as failed without --allow-skips")
    failed += skipped
print(f"{passed} passed, {len(failed)} failed" + (f", {len(skipped)} skipped" if skipped and allowed else ""))
sys.exit(1 if failed or not passed else 0)
