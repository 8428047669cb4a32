#!/usr/bin/env python3
"""manual.py VAULTFS CHAPTERS DIRECTORY: writes the manual pages: one for vaultfs, one for each of its commands, and one
for each chapter.

The descriptions come from the commands themselves (--experimental-dump-help). The Markdown files in the directory
CHAPTERS become pages of section 7 (lowdown(1)). ArgumentParser's own generate-manual loses the lists and
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
# The chapters in the order of vaultfs(1): the names of each page, and its line for apropos(1). The figures of
# Performance.md are no page.
CHAPTERS = {
    "FirstHour": (("vaultfs-first-hour",), "make, use, lock and back up a first vault"),
    "Locking": (("vaultfs-locking",), "lock a vault while it stays mounted"),
    "Keys": (("vaultfs-keys",), "slots, secrets, leases and rekeying"),
    "Transfer": (("vaultfs-transfer",), "import and export"),
    "Views": (("vaultfs-views",), "files of other programs, mounted as plaintext"),
    "Sync": (("vaultfs-backup", "vaultfs-sync"), "back up and synchronize vaults"),
    "Recovery": (("vaultfs-recovery",), "when something is lost: checking and repairing"),
    "System": (("vaultfs-system",), "fstab, mount options and systemd"),
    "AtLogin": (("vaultfs-at-login",), "mount a vault at login: the desktop's keyring, pam_mount"),
    "Network": (("vaultfs-network",), "vaults on network storage"),
    "Protection": (("vaultfs-protection",), "what a vault protects, and what it does not"),
    "Limits": (("vaultfs-limits",), "known limits"),
    "Files": (("vaultfs-files",), "files, environment and signals"),
    "Questions": (("vaultfs-questions",), "questions and answers"),
}
# The chapters for each command.
RELATED = {
    "init": ("FirstHour", "Keys"), "mount": ("System", "AtLogin", "Keys", "Network"), "view": ("Views",), "unmount": ("Recovery", "System"),
    "lock": ("Locking",), "unlock": ("Locking", "Keys"), "sync": ("Sync",), "status": ("Locking", "System"),
    "events": ("Locking", "System"), "protect": ("Locking",), "slot": ("Keys",), "rekey": ("Keys",), "info": ("Keys", "Views"),
    "verify": ("Recovery",), "import": ("Transfer",), "export": ("Transfer",),
}
SEE_ALSO = (".SH SEE ALSO", ".BR vaultfs-agent (1),", ".BR vaultfs-fido2 (1),", ".BR vaultfs-keyring (1),", ".BR vaultfs-reader (1),", ".BR vaultfs-tpm2 (1),", ".BR vaultfs-tray (1),", ".BR fusermount3 (1),", ".BR fuse (8),", ".BR mount (8),", ".BR fstab (5)")
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
    """The page above, those below, and those of the chapters. The first page has its own sections instead."""
    names = ([path[:-1]] if len(path) > 1 else []) + [path + [command["commandName"]] for command in below]
    pages = [("-".join(name), 1) for name in names] + [(CHAPTERS[name][0][0], 7) for name in RELATED.get(path[1], ())]
    return [rf"\fB{escape(name)}\fR({section})" for name, section in pages]


def chapter(path):
    """man(7) source of a Markdown file: the headings below its title are the sections."""
    with open(path, encoding="utf-8") as file:
        text = file.read().partition("\n")[2]
    # A terminal shows no pictures.
    text = re.sub(r"^!\[.*\]\(.*\)\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^#(# .*)", lambda heading: heading[1].upper(), text, flags=re.MULTILINE)
    text = re.sub(r"^##(# .*)", r"#\1", text, flags=re.MULTILINE)
    yield from roff("# DESCRIPTION\n" + text, os.path.dirname(path))


def reference(link, chapters):
    """A link as text: the page or file that it leads to, after the link's own words if these are not its title."""
    words, target = link[1], link[2].partition("#")[0]
    name = os.path.basename(target).removesuffix(".md")
    if target == f"{name}.md" and name in CHAPTERS:
        with open(os.path.join(chapters, target), encoding="utf-8") as file:
            title = file.readline().strip("# \n")
        place = f"`{CHAPTERS[name][0][0]}(7)`"
    elif target == f"{name}.md":
        title, place = f"{name}.md", f"`{DIRECTORY}/Manual/{name}.md`"
    elif target.endswith(".md"):
        title, place = f"{name}.md", f"`{DIRECTORY}/{name}.md.gz`"
    else:
        return words
    return place if words.lower() == title.lower() else f"{words} ({place})"


def roff(text, chapters):
    """man(7) source of Markdown."""
    text = re.sub(r"\[([^]]+)\]\(([^)]+)\)", lambda link: reference(link, chapters), text)
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


def listed(names):
    """Commands or chapters, as (page, section, abstract): a list with a line for each."""
    for name, section, abstract in names:
        yield from (".TP", rf"\fB{escape(name)}\fR({section})", line(escape(abstract)))


def page(path, command, version, date):
    name = "-".join(path)
    below = pages_below(command)
    abstract = command.get("abstract", "")
    yield from head([name], 1, date, version, abstract[:1].lower() + abstract[1:].rstrip("."), False)
    yield from (".SH SYNOPSIS", *synopsis(path, command))
    if command.get("aliases"):
        yield from (".PP", escape("Also called: " + ", ".join(command["aliases"])))
    text, _, codes = command.get("discussion", "").partition("Exit codes:\n")
    yield from (".SH DESCRIPTION", line(escape(abstract)), *discussion(text.strip("\n")))
    if below:
        yield ".SH COMMANDS"
        yield from listed(("-".join(path + [each["commandName"]]), 1, each.get("abstract", "")) for each in below)
    if len(path) == 1:
        yield ".SH CHAPTERS"
        yield from listed((names[0], 7, abstract) for names, abstract in CHAPTERS.values())
    yield from options(command)
    if codes:
        yield from (f'.SH "{SUMMARY_SECTION}"', *discussion(codes))
    yield from (*SEE_ALSO, *DOCUMENTS) if len(path) == 1 else (".SH SEE ALSO", ",\n".join(see_also(path, below)))


def write(directory, path, command, version, date):
    text = "\n".join(page(path, command, version, date)) + "\n"
    with open(os.path.join(directory, "-".join(path) + ".1"), "w", encoding="ascii") as file:
        file.write(text)
    for below in pages_below(command):
        write(directory, path + [below["commandName"]], below, version, date)


def write_chapters(directory, chapters, version, date):
    """A page is in a file for each of its names."""
    for chapter_name, (names, abstract) in CHAPTERS.items():
        rows = [*head(names, 7, date, version, abstract, True), *chapter(os.path.join(chapters, f"{chapter_name}.md")),
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
    write(directory, ["vaultfs"], command, version, date)
    write_chapters(directory, chapters, version, date)


main()
