"""An animated SVG of a terminal. Needs no script and no font: the rows are text, shown and hidden by CSS. Readable on a
light and on a dark page. Without animation, and where people asked for less motion, it shows the last screen."""

from xml.sax.saxutils import escape

COLUMN, ROW, MARGIN = 8.4, 19, 16
# How long the last screen stays before the animation begins again.
END = 6.0
STYLE = """
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace; fill: #24292f;
  white-space: pre }
rect { fill: #f6f8fa; stroke: #d0d7de }
.prompt { fill: #1a7f37; font-weight: 700 }
.caption { fill: #6e7781 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  rect { fill: #0d1117; stroke: #30363d }
  .prompt { fill: #3fb950 }
  .caption { fill: #9198a1 }
}
"""
STILL = "@media (prefers-reduced-motion: reduce) { g { animation: none !important } }\n"


def svg(frames, label):
    """The picture of `frames`: pairs of a time in seconds and a screen, the first at 0. A screen is a list of rows, a
    row a tuple of pieces (column, text, class)."""
    duration = frames[-1][0] + END
    shown = intervals(frames, duration)
    columns = max(column + len(words) for _, row, _, _ in shown for column, words, _ in row)
    lines = max(number for number, _, _, _ in shown) + 1
    width, height = round(2 * MARGIN + columns * COLUMN), 2 * MARGIN + lines * ROW
    motion, groups = [], []
    for number, row, start, end in shown:
        drawn = "".join(piece(number, *part) for part in row)
        if start == 0 and end == duration:
            groups.append(f"<g>{drawn}</g>")
            continue
        name = f"a{len(motion)}"
        motion.append(keyframes(name, start / duration, end / duration))
        # The attribute holds where nothing is animated.
        hidden = "" if end == duration else ' visibility="hidden"'
        groups.append(f'<g style="animation:{name} {duration:g}s step-end infinite"{hidden}>{drawn}</g>')
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{escape(label)}">')
    box = f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    style = "<style>" + STYLE + "\n".join(motion) + "\n" + STILL + "</style>"
    return "\n".join([head, style, box, *groups, "</svg>"]) + "\n"


def intervals(frames, duration):
    """The rows that are shown, each once for as long as it stays: (line, row, start, end). Empty rows are left out."""
    current, shown = {}, []
    for time, screen in [*frames, (duration, [])]:
        for number in range(max(len(screen), *(line + 1 for line in current), 0)):
            row = screen[number] if number < len(screen) else ()
            before, start = current.get(number, ((), 0))
            if row == before:
                continue
            if before and time > start:
                shown.append((number, before, start, time))
            current[number] = (row, time)
    return sorted(shown, key=lambda entry: (entry[2], entry[0]))


def keyframes(name, start, end):
    """Visible from `start` to `end`, which are parts of the whole."""
    steps = [(0, "hidden")] if start > 0 else []
    steps += [(start, "visible")] + ([(end, "hidden")] if end < 1 else [])
    return f"@keyframes {name} {{" + "".join(f"{at * 100:.3f}%{{visibility:{how}}}" for at, how in steps) + "}"


def piece(line, column, words, kind):
    """A run of characters. `textLength` keeps the columns, whatever font the reader has."""
    kind = f' class="{kind}"' if kind else ""
    x, y = MARGIN + column * COLUMN, MARGIN + (line + 0.75) * ROW
    return f'<text x="{x:.1f}" y="{y:g}" textLength="{len(words) * COLUMN:.1f}"{kind}>{escape(words)}</text>'
