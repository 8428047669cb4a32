"""core_dump.py [--mount MOUNTPOINT SIGNAL | --reading SIGNAL] COMMAND...

Runs a command in the working directory with core dumps allowed, and prints how it ended: "exit N core False" or
"signal N core True". With --mount the command is a mount in the foreground, which gets the signal once it has
mounted. With --reading the command gets the name of a pipe as its last word, and the signal once it reads the pipe.
"""

import fcntl
import os
import resource
import signal
import subprocess
import sys

from locking import until


def main():
    words = sys.argv[1:]
    mountpoint = number = None
    if words[0] == "--mount":
        mountpoint, number, words = words[1], int(words[2]), words[3:]
    reading = writing = None
    if words[0] == "--reading":
        number, words = int(words[1]), words[2:]
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        os.set_inheritable(reading, True)
        words.append(f"/dev/fd/{reading}")
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execvp(words[0], words)
    if reading is not None:
        os.close(reading)
        # The last byte has no room before the command reads.
        os.write(writing, bytes(4097))
        os.kill(child, number)
    if mountpoint:
        until("the mount", lambda: os.path.ismount(mountpoint))
        os.kill(child, number)
    _, status = os.waitpid(child, 0)
    if mountpoint:
        subprocess.run(["fusermount3", "-u", "-z", mountpoint], check=False, stderr=subprocess.DEVNULL)
    ended = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
    print(ended, "core", os.WCOREDUMP(status))


main()
