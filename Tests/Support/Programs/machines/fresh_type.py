"""Runs a command on its own terminal and types the passphrase at each prompt that asks for it, as a person does. Passes on
its output and exit code.

fresh_type.py PASSPHRASE COMMAND…"""

import os
import pty
import sys

passphrase, command = sys.argv[1], sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(command[0], command)
shown = line = b""
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:  # EIO: the command has closed its terminal
        break
    if not data:
        break
    shown += data
    line = (line + data).rpartition(b"\n")[2]
    if line.endswith((b"assphrase: ", b"The same again: ")):
        os.write(terminal, os.fsencode(passphrase) + b"\n")
        line = b""
sys.stdout.buffer.write(shown.replace(b"\r\n", b"\n"))
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
