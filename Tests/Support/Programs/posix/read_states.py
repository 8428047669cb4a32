"""Runs read_states.c on a new vault, and ends the mount properly.

read_states.py --binary VAULTFS --directory DIR --seconds N --chunk-size SIZE --mode direct|buffered --seed N
"""

import argparse
import os
import subprocess
import sys

from mounting import Mount

parser = argparse.ArgumentParser()
for name in ("binary", "directory", "mode"):
    parser.add_argument(f"--{name}", required=True)
parser.add_argument("--seconds", type=int, default=20)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--chunk-size", default="4K")
options = parser.parse_args()

program = os.path.join(options.directory, "read_states")
subprocess.run(["gcc", "-O2", "-Wall", "-pthread", "-o", program, __file__.replace(".py", ".c")], check=True)
mount = Mount(options.binary, options.directory)
mount.initialise("--chunk-size", options.chunk_size)
mount.mount("--lock-file", os.path.join(options.directory, "run", "lock"))
command = [program, os.path.join(mount.mountpoint, "f"), str(options.seconds), options.mode, str(options.seed)]
if options.seed % 2:
    command.append(os.path.join(mount.vault, "vaultfs.log"))
try:
    code = subprocess.run(command, timeout=options.seconds + 120).returncode
finally:
    mount.run(options.binary, "unmount", mount.mountpoint)
sys.exit(code)
