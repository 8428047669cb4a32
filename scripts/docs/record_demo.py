"""Types a story into a shell on a terminal of its own, and draws it. scripts/docs/record-demo calls this.

usage: record_demo.py PICTURE, with the shell's directory as the current one"""

import os
import pty
import select
import sys
import termios

import pyte
import terminal_svg

COLUMNS, LINES = 96, 60
TIMEOUT = 60
# Seconds: between two keys, before a command is started, after its output.
KEY, START, AFTER = 0.045, 0.35, 1.1
# The shell's prompt carries a mark that no terminal shows: an operating system command (xterm's control sequences).
MARK = b"\x1b]7;ready\x07"
# Shown instead of the temporary directory.
HOME = b"/home/ada"
PASSPHRASE = "correct horse battery"
LABEL = "A terminal: a vault is made, mounted, locked while a program has a file open, unlocked and unmounted"

# A line that is typed, the words that must be shown then, and the questions that are answered with the passphrase. A
# line that begins with # explains.
STORY = [
    ("# A vault is a directory of encrypted files.", ""),
    ("vaultfs init Vault", "Made a vault", "New passphrase: ", "The same again: "),
    ("vaultfs mount Vault Private", "", "Passphrase: "),
    ("printf 'Meet me at noon.\\nBring the map.\\n' >Private/letter", ""),
    ("ls Vault", "vaultfs.json"),
    ("# A program has the letter open. Then the vault is locked.", ""),
    ("exec 7<Private/letter; head -n 1 <&7", "Meet me at noon."),
    ("vaultfs lock Private", ""),
    ("head -n 1 <&7", "Required key not available"),
    ("ls Private", "Required key not available"),
    ("# The same open file works again after the unlock.", ""),
    ("vaultfs unlock Private", ""),
    ("head -n 1 <&7", "Bring the map."),
    ("exec 7<&-; vaultfs unmount Private", ""),
]


class Recording:
    """A shell on a terminal, and the screens that it has shown, by a clock of its own: a slow machine does not make the
    picture slower."""

    def __init__(self):
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.stream = pyte.ByteStream(self.screen)
        self.frames, self.clock = [], 0.0
        child, self.terminal = pty.fork()
        if child == 0:
            os.environ.update(PS1="\\[\\e]7;ready\\a\\e[32m\\]$\\[\\e[39m\\] ", TERM="xterm", LC_ALL="C.UTF-8")
            os.execvp("bash", ["bash", "--noprofile", "--norc"])
        termios.tcsetwinsize(self.terminal, (LINES, COLUMNS))

    def run(self):
        self.until(MARK)
        for words, result, *questions in STORY:
            self.type(words, "\x1b[90m" if words.startswith("#") else "")
            self.wait(START)
            self.press("\n")
            for question in questions:
                self.until(question.encode())
                # Nothing that is typed here is shown.
                self.wait(START + len(PASSPHRASE) * KEY)
                self.press(PASSPHRASE + "\n")
            self.stream.feed(b"\x1b[39m")
            shown = self.until(MARK)
            if result.encode() not in shown or b"vaultfs: " in shown:
                sys.exit(f"record-demo: {words}: instead of {result!r} the terminal showed {shown!r}")
            self.wait(KEY if words.startswith("#") else AFTER)
        os.close(self.terminal)

    def type(self, words, colour):
        self.stream.feed(colour.encode())
        for key in words:
            self.press(key)
            self.until(key.encode())
            self.wait(KEY)

    def press(self, keys):
        os.write(self.terminal, keys.encode())

    def wait(self, seconds):
        """The screen as it is now, shown for some seconds."""
        rows = [pieces(self.screen.buffer[line]) for line in range(LINES)]
        self.frames.append((self.clock, rows))
        self.clock += seconds

    def until(self, words):
        """Reads until the terminal has shown the words. Returns what it showed."""
        shown = b""
        while words not in shown:
            if not select.select([self.terminal], [], [], TIMEOUT)[0]:
                sys.exit(f"record-demo: waited for {words!r}, and the terminal showed {shown!r}")
            shown += os.read(self.terminal, 4096)
        self.stream.feed(shown.replace(os.fsencode(os.getcwd()), HOME))
        return shown


def pieces(line):
    """A row of the screen as runs of one colour, without the blanks at its end."""
    text = "".join(line[column].data for column in range(COLUMNS)).rstrip()
    runs = []
    for column, character in enumerate(text):
        kind = {"green": "prompt", "brightblack": "caption"}.get(line[column].fg, "")
        if runs and (runs[-1][2] == kind or character == " "):
            runs[-1][1] += character
        elif character != " ":
            runs.append([column, character, kind])
    return tuple((column, words.rstrip(), kind) for column, words, kind in runs)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    recording = Recording()
    recording.run()
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(terminal_svg.svg(recording.frames, LABEL))


main()
