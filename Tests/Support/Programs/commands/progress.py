"""progress.py SLOWNESS COLUMNS VAULT -- COMMAND...

Runs a command on its own terminal, and stops it for SLOWNESS seconds once it has a file of the vault open (so that
it takes long enough for a progress line, on any machine). From then on the terminal has COLUMNS columns. Prints the
terminal's output, one line for each time that a line was restarted, then "exit N"."""

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
import threading
import time

PATIENCE = 60


def has_file_open(pid, vault):
    """Returns true if the process has a file of the vault open, except vaultfs's own files. Temporary files count."""
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            path = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            name = os.path.basename(path)
            is_own = name.startswith("vaultfs.") and not name.startswith("vaultfs.tmp.")
            if os.path.dirname(path) == vault and not is_own and not os.path.isdir(path):
                return True
    except OSError:
        pass
    return False


def hold(pid, terminal, slowness, columns, vault):
    end = time.monotonic() + PATIENCE
    while not has_file_open(pid, vault):
        if time.monotonic() > end:
            return
        time.sleep(0.0005)
    os.kill(pid, signal.SIGSTOP)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    time.sleep(slowness)
    os.kill(pid, signal.SIGCONT)


def main():
    slowness, columns, vault = float(sys.argv[1]), int(sys.argv[2]), os.path.realpath(sys.argv[3])
    command = sys.argv[sys.argv.index("--") + 1 :]
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    holding = threading.Thread(target=hold, args=(child, terminal, slowness, columns, vault), daemon=True)
    holding.start()
    shown = bytearray()
    try:
        while data := os.read(terminal, 65536):
            shown += data
    except OSError:
        # The command has closed the terminal.
        pass
    _, status = os.waitpid(child, 0)
    print(shown.decode().replace("\r", "\n").replace("\x1b[K", ""))
    print(f"exit {os.waitstatus_to_exitcode(status)}")


main()
