"""Adds up the xunit files of a test run: names what failed, with why, and what was skipped, then one line
`N passed, N failed`.
Exits 1 on a failure, on no test at all, and on a skipped test unless --allow-skips is given."""

import glob
import sys
import xml.etree.ElementTree as ElementTree

directory, allow_skips = sys.argv[1], "--allow-skips" in sys.argv[2:]
passed, failed, skipped, why = 0, [], [], {}
for path in sorted(glob.glob(f"{directory}/*.xml")):
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        troubles = case.findall("failure") + case.findall("error")
        if troubles:
            failed.append(name)
            why[name] = [trouble.get("message", "") for trouble in troubles]
        elif case.find("skipped") is not None:
            skipped.append(name)
        else:
            passed += 1

for name in failed:
    print(f"failed: {name}")
    # Whoever sees only the end of a log sees it here.
    for message in why[name][:5]:
        print("    " + message[:500].replace("\n", "\n    "))
for name in skipped:
    print(f"skipped: {name}")
if skipped and not allow_skips:
    print(f"{len(skipped)} skipped, and a skipped test counts as failed without --allow-skips")
    failed += skipped
print(f"{passed} passed, {len(failed)} failed" + (f", {len(skipped)} skipped" if skipped and allow_skips else ""))
sys.exit(1 if failed or not passed else 0)
