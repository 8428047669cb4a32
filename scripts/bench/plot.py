"""The comparison as an SVG: a panel for each test, a bar for each system, vaultfs' in bold. Readable on a light and on
a dark page.

usage: plot.py RESULTS PROJECT: draws docs/benchmark.svg from the results.json of a run, and puts its figures into
the table of the manual"""

import json
import os
import sys
from xml.sax.saxutils import escape

from pages import filled
from table import rate, title

# They store nothing, or encrypt nothing in user space: their bars would hide the differences of the others.
LEFT_OUT = ("plain", "null")
COLUMNS, PANEL, HEADING, BAR, GAP, MARGIN = 3, 300, 22, 15, 18, 12
NAME, VALUE = 68, 62
STYLE = """
text { font: 12px system-ui, "Helvetica Neue", Arial, sans-serif; fill: #24292f }
.heading { font-size: 11px; font-weight: 600 }
.vaultfs text { font-weight: 700 }
.note { font-size: 11px; fill: #57606a }
rect { fill: #9aa7b4 }
.bindfs rect { fill: #d3d9df }
.vaultfs rect { fill: #1f6feb }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .note { fill: #9198a1 }
  rect { fill: #6e7681 }
  .bindfs rect { fill: #3d444d }
  .vaultfs rect { fill: #58a6ff }
}
"""


def svg(results):
    names = [name for name in results["medians"] if name not in LEFT_OUT]
    height = HEADING + BAR * len(names) + GAP
    tests = results["tests"]
    lines = -(-len(tests) // COLUMNS)
    parts = []
    for number, (test, about) in enumerate(tests.items()):
        medians = {name: results["medians"][name][test] for name in names}
        x, y = MARGIN + number % COLUMNS * PANEL, MARGIN + number // COLUMNS * height
        parts += panel(x, y, f"{about['name']}, {about['unit']}", medians)
    foot = MARGIN + lines * height
    parts += [text(MARGIN, foot + 14 * number, words, "note") for number, words in enumerate(notes(results), 1)]
    width, height = 2 * MARGIN + COLUMNS * PANEL - GAP, foot + 14 * len(notes(results)) + MARGIN
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-label="Speed of vaultfs beside other encrypted file systems">')
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def panel(x, y, heading, medians):
    """The bars of one test. The longest has the full length."""
    parts = [text(x, y + 13, heading, "heading")]
    most = max((value for value in medians.values() if value is not None), default=0)
    for line, (name, value) in enumerate(medians.items()):
        top = y + HEADING + BAR * line
        length = (PANEL - GAP - NAME - VALUE) * (value or 0) / (most or 1)
        parts += [
            f'<g class="{name}">' + text(x, top + 11, title(name))
            + f'<rect x="{x + NAME}" y="{top + 2}" width="{length:.1f}" height="{BAR - 4}" rx="1"/>'
            + text(x + NAME + length + 5, top + 11, rate(value)) + "</g>"]
    return parts


def notes(results):
    machine, settings = results["machine"], results["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return [
        f"More is better. Medians of {settings['rounds']} interleaved rounds; {machine['cores']} cores, kernel "
        f"{machine['kernel']}, {machine['filesystem']}, {machine['date']}.",
        f"{versions}. bindfs encrypts nothing.",
    ]


def text(x, y, words, kind=None):
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{kind}>{escape(words)}</text>'


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    source, project = sys.argv[1:]
    try:
        with open(source, encoding="utf-8") as file:
            results = json.load(file)
        written = {f"{project}/docs/benchmark.svg": svg(results)}
        page = f"{project}/Manual/Performance.md"
        with open(page, encoding="utf-8") as file:
            written[page] = filled(file.read(), results)
        for path, words in written.items():
            with open(path, "w", encoding="utf-8") as file:
                file.write(words)
            print(path)
    except OSError as error:
        sys.exit(f"bench: {error.filename}: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError):
        sys.exit(f"bench: {source} has no results of scripts/bench/run")


if __name__ == "__main__":
    main()
