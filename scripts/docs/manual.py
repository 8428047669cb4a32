#!/usr/bin/env python3
"""manual.py VAULTFS CHAPTERS DIRECTORY: writes the manual pages, one for vaultfs and one for each of its commands.

The descriptions come from the commands themselves (--experimental-dump-help). The Markdown files in the directory
CHAPTERS become sections at the end of vaultfs(1) (lowdown(1)). ArgumentParser's own generate-manual loses the lists and
examples of a discussion, and prints "exits 0 on success, and >0 if an error occurs" although the exit codes are listed.

The date is that of SOURCE_DATE_EPOCH, seconds since 1970, otherwise today.
"""

import json
import os
import re
import subprocess
import sys
import time

SUMMARY_SECTION = "EXIT STATUS"
# The chapters in the order of vaultfs(1).
CHAPTERS = ("Locking", "Keys", "Views", "Transfer", "System", "Network", "Protection", "Recovery", "Limits", "Files")
SEE_ALSO = (".SH SEE ALSO", ".BR vaultfs-agent (1),", ".BR vaultfs-reader (1),", ".BR vaultfs-tpm2 (1),", ".BR fusermount3 (1),", ".BR fuse (8),", ".BR mount (8),", ".BR fstab (5)", ".PP",
            r"Documents and examples are in \fI/usr/share/doc/vaultfs\fR.")


def escape(text):
    """Text for man(7), anywhere except at the beginning of a line."""
    plain = {"\\": r"\e", "-": r"\-", "~": r"\(ti", "^": r"\(ha", "`": r"\(ga", "'": r"\(aq", "…": "..."}
    return "".join(plain.get(c, c if c.isascii() else f"\\[u{ord(c):04X}]") for c in text)


def line(text):
    """A line of text that is no request, whatever its first character."""
    return "\\&" + text if text[:1] in (".", "'") else text


def blocks(text):
    """The paragraphs, lists and examples of a discussion, as (kind, lines). Indented text is a list if each line has
    a word, two spaces and an explanation, otherwise an example."""
    for group in re.split(r"\n\s*\n", text):
        run = []
        for row in group.split("\n"):
            kind = "text"
            if row.startswith(" "):
                kind = "list" if re.match(r" +\S+ {2,}\S", row) else "example"
            if run and run[-1][0] == kind:
                run[-1][1].append(row)
            else:
                run.append((kind, [row]))
        yield from run


def discussion(text):
    """man(7) source of a discussion."""
    for kind, rows in blocks(text) if text else []:
        if kind == "text":
            yield ".PP"
            yield from (line(escape(row.strip())) for row in rows)
        elif kind == "list":
            items = [re.split(r" {2,}", row.strip(), maxsplit=1) for row in rows]
            width = max(len(term) for term, _ in items) + 2
            for number, (term, meaning) in enumerate(items):
                yield from (f".TP {width}n", r"\fB" + escape(term) + r"\fR", line(escape(meaning)))
                if number == 0:
                    yield ".PD 0"
            yield ".PD"
        else:
            yield from (".PP", ".RS 4", ".nf")
            yield from (line(escape(row.strip())) for row in rows)
            yield from (".fi", ".RE")


def shown(arguments):
    return [argument for argument in arguments if argument["shouldDisplay"]]


def spelled(name):
    return ("-" if name["kind"] == "short" else "--") + name["name"]


def title(argument):
    """The line above an argument's description: all its names, and its value."""
    if argument["kind"] == "positional":
        return r"\fI" + escape(argument["valueName"].upper()) + r"\fR"
    names = ", ".join(r"\fB" + escape(spelled(name)) + r"\fR" for name in argument["names"])
    return names + (r" \fI" + escape(argument["valueName"].upper()) + r"\fR" if argument["kind"] == "option" else "")


def synopsis(path, command):
    arguments = shown(command.get("arguments", []))
    yield r".B " + escape(" ".join(path))
    if any(argument["kind"] != "positional" for argument in arguments):
        yield r"[\fIOPTION\fR]..."
    for argument in arguments:
        if argument["kind"] == "positional":
            text = title(argument) + ("..." if argument["isRepeating"] else "")
            yield f"[{text}]" if argument["isOptional"] else text
    if pages_below(command):
        yield r"\fICOMMAND\fR"


def options(command):
    """The arguments, by the sections that --help shows them in."""
    sections = {}
    for argument in shown(command.get("arguments", [])):
        default = "ARGUMENTS" if argument["kind"] == "positional" else "OPTIONS"
        sections.setdefault((argument.get("sectionTitle") or default).upper(), []).append(argument)
    # Common arguments, which ArgumentParser puts anywhere, and our arguments without a title come first.
    for section in sorted(sections, key=lambda name: ["ARGUMENTS", "OPTIONS"].index(name) if name in ("ARGUMENTS", "OPTIONS") else 2):
        yield f'.SH "{escape(section)}"'
        for argument in sections[section]:
            yield from (".TP", title(argument))
            text = argument.get("abstract", "")
            if argument.get("discussion"):
                text += " " + argument["discussion"]
            if argument.get("defaultValue"):
                text += f" Default: {argument['defaultValue']}."
            yield line(escape(text.strip())) or "\\&"


def pages_below(command):
    return [below for below in command.get("subcommands", []) if below["shouldDisplay"] and below["commandName"] != "help"]


def see_also(path, below):
    """The page above, and those below. The first page has its own SECTIONS instead."""
    names = ([path[:-1]] if len(path) > 1 else []) + [path + [command["commandName"]] for command in below]
    return [r"\fB" + escape("-".join(name)) + r"\fR(1)" for name in names]


def chapter(path):
    """man(7) source of a Markdown file: its title is the section."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    title, _, text = text.partition("\n")
    text = title.upper() + "\n" + text
    # Links lead to files beside this one. SEE ALSO names the place of the documents, so the link's text is enough.
    text = re.sub(r"\[([^]]+)\]\([^)]*?([^/)]+\.md)\)", r"\1 (`\2`)", text)
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
    roff = subprocess.run(["lowdown", "-Tman"], check=True, input=text, stdout=subprocess.PIPE, text=True, encoding="utf-8").stdout
    for row in "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in roff).rstrip("\n").split("\n"):
        yield row
        if row == ".TE":
            yield ".sp"


def page(path, command, version, date, sections):
    name = "-".join(path)
    below = pages_below(command)
    abstract = command.get("abstract", "")
    # The first line informs man(1) that there are tables (tbl(1)).
    if sections:
        yield "'\\\" t"
    yield f'.TH "{name.upper()}" 1 {date} "vaultfs {version}" "User Commands"'
    # Names are not broken at the end of a line.
    yield from (".nr HY 0", ".nh", ".ad l")
    yield from (".SH NAME", escape(name) + r" \- " + escape(abstract[:1].lower() + abstract[1:].rstrip(".")))
    yield from (".SH SYNOPSIS", *synopsis(path, command))
    if command.get("aliases"):
        yield from (".PP", escape("Also called: " + ", ".join(command["aliases"])))
    text, _, codes = command.get("discussion", "").partition("Exit codes:\n")
    yield from (".SH DESCRIPTION", line(escape(abstract)), *discussion(text.strip("\n")))
    if below:
        yield ".SH COMMANDS"
        for each in below:
            full = escape("-".join(path + [each["commandName"]]))
            yield from (".TP", rf"\fB{full}\fR(1)", line(escape(each.get("abstract", ""))))
    yield from options(command)
    if codes:
        yield from (f'.SH "{SUMMARY_SECTION}"', *discussion(codes))
    yield from sections
    if not sections:
        yield from (".SH SEE ALSO", ",\n".join(see_also(path, below)))


def write(directory, path, command, version, date, sections):
    text = "\n".join(page(path, command, version, date, sections)) + "\n"
    with open(os.path.join(directory, "-".join(path) + ".1"), "w", encoding="ascii") as file:
        file.write(text)
    for below in pages_below(command):
        write(directory, path + [below["commandName"]], below, version, date, [])


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: manual.py VAULTFS CHAPTERS DIRECTORY")
    binary, chapters, directory = sys.argv[1:]
    command = json.loads(output(binary, "--experimental-dump-help"))["command"]
    version = output(binary, "--version").split()[1]
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    sections = [row for name in CHAPTERS for row in chapter(os.path.join(chapters, f"{name}.md"))]
    write(directory, ["vaultfs"], command, version, date, [*sections, *SEE_ALSO])


main()
