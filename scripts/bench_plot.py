"""The comparison as an SVG: a group of bars for each test, relative to the best encrypted peer."""

from xml.sax.saxutils import escape

from bench_goals import best_peer
from bench_table import notes, rate, title

LABELS, WIDTH, RIGHT = 250, 560, 150
BAR, GAP, TOP = 11, 14, 50
# Longer bars are cut, and labelled so.
LONGEST = 4.0
COLOURS = {
    "plain": "#c9c9c9", "null": "#8f8f8f", "bindfs": "#b39b7d", "gocryptfs": "#7fb2d9", "securefs": "#4f86b8",
    "encfs": "#a9c9e2", "vaultfs": "#d1495b",
}


def svg(results):
    names = list(results["medians"])
    parts, y = legend(names), TOP
    for test, about in results["tests"].items():
        medians = {name: results["medians"][name][test] for name in names}
        y = group(parts, y, about, medians, results["goals"][test])
    grid = [line(LABELS + multiple * WIDTH / LONGEST, TOP - 6, y, "#e4e4e4") for multiple in range(int(LONGEST) + 1)]
    grid += [text(LABELS + multiple * WIDTH / LONGEST, TOP - 10, f"{multiple}×", "middle")
             for multiple in range(int(LONGEST) + 1)]
    foot = [text(10, y + 14 * (number + 1), note) for number, note in enumerate(notes(results))]
    height = y + 14 * (len(foot) + 1)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABELS + WIDTH + RIGHT}" height="{height}" '
            'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>')
    return "\n".join([head, *grid, *parts, *foot, "</svg>"]) + "\n"


def legend(names):
    parts, x = [], LABELS
    for name in names:
        parts += [bar(x, 8, 11, name), text(x + 15, 17, title(name))]
        x += 30 + 7 * len(title(name))
    return parts + [line(x + 4, 7, 20, "#000000"), text(x + 10, 17, "goal")]


def group(parts, y, about, medians, goal):
    """Adds a test's bars. Returns the position of the next group."""
    peer = best_peer(medians)
    # Without an encrypted peer, relative to vaultfs.
    unit = medians[peer] if peer else medians["vaultfs"]
    shown = {name: value for name, value in medians.items() if value is not None and unit}
    middle = y + BAR * len(shown) / 2
    parts.append(text(LABELS - 10, middle, about["name"], "end"))
    start = y
    for name, value in shown.items():
        multiple = value / unit
        length = min(multiple, LONGEST) * WIDTH / LONGEST
        cut = f" ({multiple:.0f}×, cut)" if multiple > LONGEST else ""
        parts.append(bar(LABELS, y, length, name))
        parts.append(text(LABELS + length + 4, y + BAR - 2, f"{rate(value)} {about['unit']}{cut}"))
        y += BAR
    if goal and unit and goal["value"] / unit <= LONGEST:
        parts.append(line(LABELS + goal["value"] / unit * WIDTH / LONGEST, start - 2, y + 2, "#000000"))
    return y + GAP


def bar(x, y, length, name):
    return f'<rect x="{x}" y="{y}" width="{length:.1f}" height="{BAR - 1}" fill="{COLOURS[name]}"/>'


def line(x, top, bottom, colour):
    return f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>'


def text(x, y, words, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
