#!/bin/bash
# locks.sh MOUNT SCRATCH: flock and fcntl locks exclude between processes
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
cd "$1"
python3 - <<'PY'
import errno, fcntl, os

def refused(action, *arguments):
    try:
        action(*arguments)
        return False
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)

def in_child(check):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if check() else 1)
    return os.waitpid(pid, 0)[1] == 0

held = open("f", "w+")
fcntl.flock(held, fcntl.LOCK_EX)
assert in_child(lambda: refused(fcntl.flock, open("f"), fcntl.LOCK_EX | fcntl.LOCK_NB))
fcntl.flock(held, fcntl.LOCK_UN)
assert in_child(lambda: not refused(fcntl.flock, open("f"), fcntl.LOCK_EX | fcntl.LOCK_NB))
fcntl.lockf(held, fcntl.LOCK_EX, 10, 5)
assert in_child(lambda: refused(fcntl.lockf, open("f", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 8))
assert in_child(lambda: not refused(fcntl.lockf, open("f", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 20))
PY
