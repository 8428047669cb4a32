"""Delivers files into a locked inbox over many locks, and kills the daemon at random moments. Everything that was acknowledged
must be there, and nothing can be read while it is locked.

inbox_crash.py --binary VAULTFS --directory DIR [--policy refuse|forget] [--rounds N] [--seed N]

A round is one lock, with up to 32 files. Half of the rounds end with a kill."""

import errno
import os
import random
import signal
import time

from locking import GONE, ended, finish, fork, main, mounted, noise, stop, until

DELIVERIES = 4
FILES = 8


def content(name):
    rng = random.Random(name)
    return noise(name, rng.choice([0, 1, 300, 4096, 5000, rng.randrange(200_000)]))


def deliver(mount, number, log):
    """Delivers files one after another, and logs each that has its last name: with `!` if it was synced before."""
    with open(log, "w", buffering=1) as lines:
        try:
            for count in range(FILES):
                name = f"{number}-{count}"
                data, rng = content(name), random.Random(f"{name} way")
                directory = mount.path("inbox", rng.choice(("", "there", f"made{number}")))
                try:
                    os.mkdir(directory)
                except FileExistsError:
                    pass
                synced = rng.random() < 0.5
                fd = os.open(os.path.join(directory, name + ".part"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                for start in range(0, len(data), 70_000):
                    os.write(fd, data[start:start + 70_000])
                if synced:
                    os.fsync(fd)
                os.close(fd)
                os.utime(os.path.join(directory, name + ".part"), ns=(10**18, 10**18))
                if rng.random() < 0.3:
                    os.link(os.path.join(directory, name + ".part"), os.path.join(directory, name))
                    os.unlink(os.path.join(directory, name + ".part"))
                else:
                    os.rename(os.path.join(directory, name + ".part"), os.path.join(directory, name))
                lines.write(os.path.relpath(os.path.join(directory, name), mount.mountpoint) + "\n")
                try:
                    os.open(os.path.join(directory, name), os.O_RDONLY)
                    stop(f"{name} was opened")
                except OSError as error:
                    if error.errno != errno.ENOKEY:
                        raise
        except OSError as error:
            if error.errno not in GONE:
                raise


def check(mount, acknowledged):
    for path in acknowledged:
        with open(mount.path(path), "rb") as file:
            if file.read() != content(os.path.basename(path)):
                stop(f"{path} is not what was delivered")
        if os.stat(mount.path(path)).st_mtime_ns != 10**18:
            print(f"{path}: its time was lost with the daemon", flush=True)


def crash(mount, options):
    rng, acknowledged, kills = random.Random(options.seed), [], 0
    mount.initialise()
    mount.mount()
    os.makedirs(mount.path("inbox/there"))
    mount.run(mount.binary, "protect", "-q", "inbox", mount.mountpoint)
    mount.run(mount.binary, "protect", "-q", "-R", "inbox", mount.path("inbox"))
    for number in range(options.rounds):
        mount.lock()
        logs = [os.path.join(mount.directory, f"log{number}-{n}") for n in range(DELIVERIES)]
        kids = [fork(deliver, mount, f"{options.seed}-{number}-{n}", log) for n, log in enumerate(logs)]
        if killed := rng.random() < 0.5:
            kills += 1
            time.sleep(rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.2)]))
            os.kill(mount.daemon, signal.SIGKILL)
            until("the daemon's end", lambda: ended(mount.daemon))
        finish(kids, "a delivery")
        for log in logs:
            with open(log) as lines:
                acknowledged += lines.read().split("\n")[:-1]
        if killed:
            if mounted(mount):
                mount.detach()
            mount.mount()
        elif rng.random() < 0.3:
            # Unmounted while locked.
            mount.unmount()
            mount.mount()
        else:
            mount.unlock()
        check(mount, acknowledged[-DELIVERIES * FILES:])
    check(mount, acknowledged)
    mount.verify(with_reader=False)
    mount.read()
    print(f"{options.rounds} locks, {kills} kills, {len(acknowledged)} files")


main(crash)
