"""terminal.py ERRORS [PROMPT=ANSWER ...] -- COMMAND...

Runs a command on its own terminal, with standard error in the file ERRORS. Waits for each prompt in turn and answers
it: with a line, with "^C" or "^D", or with "gone". For "gone" the terminal disappears, and the command ignores the
hangup. Prints the terminal's output, its echo state afterwards, and the command's end: "exit N", or 128 + the number
of the signal that ended it.
"""

import os
import pty
import select
import signal
import sys
import termios

PATIENCE = 60


def until(terminal, prompt, shown):
    start = len(shown)
    while prompt not in shown[start:]:
        if not select.select([terminal], [], [], PATIENCE)[0]:
            sys.exit(f"waited for {prompt!r}; the terminal showed {bytes(shown)!r}")
        shown += os.read(terminal, 4096)


def rest(terminal, shown):
    """The output until the command closes the terminal (EIO)."""
    try:
        while select.select([terminal], [], [], PATIENCE)[0]:
            data = os.read(terminal, 4096)
            if not data:
                return
            shown += data
    except OSError:
        pass


def main():
    arguments = sys.argv[1:]
    errors, answers = arguments[0], arguments[1 : arguments.index("--")]
    command = arguments[arguments.index("--") + 1 :]
    is_gone = any(answer.endswith("=gone") for answer in answers)
    # Kept open here too, so that its state can be read after the command's end.
    terminal, side = pty.openpty()
    child = os.fork()
    if child == 0:
        os.setsid()
        attach(side)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        os.close(terminal)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if is_gone else signal.SIG_DFL)
        os.execvp(command[0], command)
    shown = bytearray()
    for answer in answers:
        prompt, text = answer.split("=", 1)
        until(terminal, prompt.encode(), shown)
        if text == "gone":
            os.close(side)
            os.close(terminal)
        else:
            os.write(terminal, {"^C": b"\x03", "^D": b"\x04"}.get(text, os.fsencode(text) + b"\n"))
    _, status = os.waitpid(child, 0)
    if not is_gone:
        echoes = bool(termios.tcgetattr(side)[3] & termios.ECHO)
        os.close(side)
        rest(terminal, shown)
        print(shown.decode(errors="replace").replace("\r", ""))
        print("echo on" if echoes else "echo off")
    code = os.waitstatus_to_exitcode(status)
    print(f"exit {128 - code if code < 0 else code}")


def attach(side):
    """login_tty(3), which Python has only since 3.11."""
    import fcntl

    fcntl.ioctl(side, termios.TIOCSCTTY, 0)
    for descriptor in range(3):
        os.dup2(side, descriptor)


main()
