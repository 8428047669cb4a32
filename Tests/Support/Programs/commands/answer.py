"""Runs a command on its own terminal and types an answer to the prompt "[y/N]". Passes on its output and exit code.

answer.py ANSWER COMMAND…"""

import os
import pty
import sys

answer, command = sys.argv[1], sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(command[0], command)
shown = b""
answered = False
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:  # EIO: the command has closed its terminal
        break
    if not data:
        break
    shown += data
    if not answered and b"[y/N]" in shown:
        os.write(terminal, os.fsencode(answer) + b"\n")
        answered = True
sys.stdout.buffer.write(shown)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
