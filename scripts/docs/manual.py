#!/usr/bin/env python3
"""manual.py VAULTFS CHAPTERS DIRECTORY: writes the manual pages: one for vaultfs, one for each of its commands, and one
for each task.

The descriptions come from the commands themselves (--experimental-dump-help). The Markdown files in the directory
CHAPTERS become sections at the end of vaultfs(1) (lowdown(1)), or pages of section 7. ArgumentParser's own generate-manual loses the lists and
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
# The chapters that are pages of section 7: the names of each, and its line for apropos(1).
TASKS = {
    "FirstHour": (("vaultfs-first-hour",), "make, use, lock and back up a first vault"),
    "Sync": (("vaultfs-backup", "vaultfs-sync"), "back up and synchronize vaults"),
}
SEE_ALSO = (".SH SEE ALSO", ".BR vaultfs-first-hour (7),", ".BR vaultfs-backup (7),", ".BR vaultfs-agent (1),", ".BR vaultfs-fido2 (1),", ".BR vaultfs-reader (1),", ".BR vaultfs-tpm2 (1),", ".BR fusermount3 (1),", ".BR fuse (8),", ".BR mount (8),", ".BR fstab (5)")
DIRECTORY = "/usr/share/doc/vaultfs"
DOCUMENTS = (".PP", rf"Documents and examples are in \fI{DIRECTORY}\fR.")


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
        title, _, text = file.read().partition("\n")
    yield from roff(title.upper() + "\n" + text, os.path.dirname(path), "")


def task(path):
    """The same for a page of its own: the headings below the title are the sections."""
    with open(path, encoding="utf-8") as file:
        text = file.read().partition("\n")[2]
    text = re.sub(r"^#(# .*)", lambda heading: heading[1].upper(), text, flags=re.MULTILINE)
    yield from roff("# DESCRIPTION\n" + text, os.path.dirname(path), " in `vaultfs(1)`")


def reference(link, chapters, suffix):
    """A link as text: the section, page or file that it leads to, after the link's own words if these are not its title."""
    words, target = link[1], link[2].partition("#")[0]
    name = os.path.basename(target).removesuffix(".md")
    if target == f"{name}.md" and name in (*TASKS, *CHAPTERS):
        with open(os.path.join(chapters, target), encoding="utf-8") as file:
            title = file.readline().strip("# \n")
        place = f"`{TASKS[name][0][0]}(7)`" if name in TASKS else title.upper() + suffix
    elif target.endswith(".md"):
        title, place = f"{name}.md", f"`{DIRECTORY}/{name}.md.gz`"
    else:
        return words
    return place if words.lower() == title.lower() else f"{words} ({place})"


def roff(text, chapters, suffix):
    """man(7) source of Markdown.

    suffix: follows the title of a section of vaultfs(1)."""
    text = re.sub(r"\[([^]]+)\]\(([^)]+)\)", lambda link: reference(link, chapters, suffix), text)
    source = subprocess.run(["lowdown", "-Tman"], check=True, input=text, stdout=subprocess.PIPE, text=True, encoding="utf-8").stdout
    for row in "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in source).rstrip("\n").split("\n"):
        yield row
        if row == ".TE":
            yield ".sp"


def head(names, section, date, version, abstract, tables):
    # The first line informs man(1) that there are tables (tbl(1)).
    if tables:
        yield "'\\\" t"
    manual = "User Commands" if section == 1 else "Miscellaneous Information Manual"
    yield f'.TH "{names[0].upper()}" {section} {date} "vaultfs {version}" "{manual}"'
    # Names are not broken at the end of a line.
    yield from (".nr HY 0", ".nh", ".ad l")
    yield from (".SH NAME", ", ".join(map(escape, names)) + r" \- " + escape(abstract))


def page(path, command, version, date, sections):
    name = "-".join(path)
    below = pages_below(command)
    abstract = command.get("abstract", "")
    yield from head([name], 1, date, version, abstract[:1].lower() + abstract[1:].rstrip("."), bool(sections))
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


def write_tasks(directory, chapters, version, date):
    """A page is in a file for each of its names."""
    for chapter_name, (names, abstract) in TASKS.items():
        rows = [*head(names, 7, date, version, abstract, True), *task(os.path.join(chapters, f"{chapter_name}.md")),
                ".SH SEE ALSO", ".BR vaultfs (1)", *DOCUMENTS]
        for name in names:
            with open(os.path.join(directory, f"{name}.7"), "w", encoding="ascii") as file:
                file.write("\n".join(rows) + "\n")


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
    write(directory, ["vaultfs"], command, version, date, [*sections, *SEE_ALSO, *DOCUMENTS])
    write_tasks(directory, chapters, version, date)


main()
