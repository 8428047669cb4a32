"""Kills the daemon at random moments while two writers work, mounts again, and checks every acknowledged byte, name and
length. The operation in flight at the kill may or may not have happened, and so may each of its chunks.

crash.py --binary VAULTFS --directory DIR [--kills N] [--seed N] [--reader-every N]"""

import argparse
import errno
import json
import os
import random
import signal
import sys
import time

from crash_model import Model, check_tree
from mounting import Mount

# Errors of system calls on a mount whose daemon has died.
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.EINTR)


def choose(rng, sizes, names):
    """The next operation on one writer's directory: (name of the operation, arguments)."""
    path = "f%d" % rng.randrange(3)
    size = sizes.get(path, 0)
    kind = rng.randrange(20)
    # Mostly long overwrites: only a kill between two pages of one pwrite tears a record.
    if kind < 8:
        length = rng.choice([1, 100, 4096, 30000, 262_144, 1 << 20, 1 << 20])
        return "write", [path, rng.randrange(max(1, size - length)), length, rng.randrange(1 << 30)]
    if kind < 11:
        length = rng.choice([7, 4096, 5000, rng.randrange(1, 60000), 500_000])
        return "write", [path, size, length, rng.randrange(1 << 30)]
    if kind == 11:
        return "write", [path, size + rng.randrange(20000), rng.randrange(1, 9000), rng.randrange(1 << 30)]
    if kind == 12 or size > 3_000_000:
        return "truncate", [path, rng.choice([0, rng.randrange(max(1, size)), rng.randrange(max(1, size)), size // 4096 * 4096])]
    if kind == 13:
        return "truncate", [path, max(0, size - rng.randrange(1, 8000))]
    if kind == 14:
        return "truncate", [path, size + rng.choice([1, 5000, 30000])]
    if kind == 15:
        return "truncate", [path, size + (1 << 20) + rng.randrange(5000)]
    if kind == 16:
        return "fsync", [path]
    name = "n%d" % rng.randrange(6) + "x" * rng.choice([0, 200])
    if kind == 17:
        return ("unlink", [name]) if name in names else ("create", [name])
    if kind == 18:
        directory = "d%d" % rng.randrange(3)
        return ("rmdir", [directory]) if directory in names else ("mkdir", [directory])
    return ("rename", [name, "f%d" % rng.randrange(3)]) if name in names else ("create", [name])


def data(seed, size):
    """`size` bytes in which no two chunks are equal: a block of an odd length, repeated."""
    block = random.Random(seed).randbytes(min(size, 4099))
    return (block * (size // len(block) + 1))[:size] if block else b""


def perform(base, operation, arguments):
    path = os.path.join(base, arguments[0])
    if operation == "write":
        fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
        try:
            block, at = data(arguments[3], arguments[2]), arguments[1]
            while block:
                n = os.pwrite(fd, block, at)
                block, at = block[n:], at + n
        finally:
            os.close(fd)
    elif operation == "truncate":
        os.close(os.open(path, os.O_CREAT, 0o644))
        os.truncate(path, arguments[1])
    elif operation == "fsync":
        fd = os.open(path, os.O_CREAT, 0o644)
        os.fsync(fd)
        os.close(fd)
    elif operation == "create":
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))
    elif operation == "rename":
        os.rename(path, os.path.join(base, arguments[1]))
    else:
        {"unlink": os.unlink, "mkdir": os.mkdir, "rmdir": os.rmdir}[operation](path)


def writer(base, log, seed, model):
    """Works until the mount ends. `log` gets a line before each operation and a dot after it. Never returns."""
    rng = random.Random(seed)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    status = 0
    while True:
        operation, arguments = choose(rng, model.sizes(), model.names())
        os.write(fd, json.dumps([operation] + arguments).encode() + b"\n")
        try:
            perform(base, operation, arguments)
        except OSError as error:
            if error.errno not in GONE:
                os.write(fd, f"! {operation} {arguments}: {error}\n".encode())
                status = 1
            os._exit(status)
        os.write(fd, b".\n")
        model.apply(operation, arguments, data)


def replay(model, log):
    """Applies the operations that `log` acknowledges. Returns the operation in flight, or None."""
    pending = None
    with open(log) as lines:
        for line in lines:
            if line == ".\n":
                model.apply(pending[0], pending[1:], data)
                pending = None
            elif line.startswith("!"):
                sys.exit(f"unexpected error: {line}")
            else:
                pending = json.loads(line)
    return pending


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--reader-every", type=int, default=3)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    mount = Mount(options.binary, options.directory)
    mount.initialise()
    models = [Model(), Model()]
    rng, torn, flying = random.Random(options.seed), 0, 0
    try:
        for kill in range(options.kills + 1):
            mount.mount()
            for number, model in enumerate(models):
                base = os.path.join(mount.mountpoint, "w%d" % number)
                if kill == 0:
                    os.mkdir(base)
                else:
                    torn += check_tree(base, model)
            if kill == options.kills:
                break
            round_(mount, models, rng, kill, options)
            flying += sum(m.in_flight is not None for m in models)
        mount.unmount()
        mount.read("--require-sealed")
    finally:
        mount.abandon()
    print(f"kills {options.kills}, operations in flight {flying}, torn tails {torn}: nothing acknowledged was lost")


def round_(mount, models, rng, kill, options):
    """Runs two writers, kills at a random moment, and checks against their logs."""
    logs = [os.path.join(mount.directory, "log%d" % n) for n in range(len(models))]
    kids = []
    for number, model in enumerate(models):
        pid = os.fork()
        if pid == 0:
            base = os.path.join(mount.mountpoint, "w%d" % number)
            writer(base, logs[number], options.seed * 1000003 + kill * 2 + number, model)
        kids.append(pid)
    time.sleep(rng.uniform(0.01, 0.2))
    os.kill(mount.daemon, signal.SIGKILL)
    failed = [os.waitpid(pid, 0)[1] for pid in kids]
    mount.detach()
    for model, log in zip(models, logs):
        model.in_flight = replay(model, log)
    if any(failed):
        sys.exit(f"a writer failed: {failed}")
    if options.reader_every and kill % options.reader_every == 0:
        mount.read("--allow-torn-tail")


if __name__ == "__main__":
    main()
