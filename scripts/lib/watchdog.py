"""Runs a command and ends it if it blocks: a test's own time limit cannot stop a synchronous call that never returns.

usage: watchdog.py [--silent SECONDS] [--total SECONDS] COMMAND...

The command's output is passed on. If it writes nothing for --silent seconds (600), or runs longer than --total seconds
(5400), the stacks of all threads of all processes that it started, daemons included, are written to the output; then
these processes are killed and their mounts detached, and the exit code is 124. Otherwise it is the command's.
"""

import argparse
import os
import pathlib
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time

# Daemons leave the process group and the session, but keep the environment.
MARK = "VAULTFS_TEST_RUN"


def say(text):
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def read(path):
    try:
        return pathlib.Path(path).read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError as error:
        return f"({error.strerror})"


def run(arguments, seconds):
    """Returns the output of a helper program. A process stuck in the kernel may block it, hence the limit."""
    helper = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        return helper.communicate(timeout=seconds)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        helper.kill()
        return f"({arguments[0]} did not end within {seconds} s)"


def started(mark):
    """The processes whose environment contains the mark."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for directory in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if entry in (directory / "environ").read_bytes().split(b"\0"):
                found.append(int(directory.name))
        except OSError:
            continue
    return sorted(found)


def kernel_stacks(pid):
    """Thread by thread: its name, state, system call, and its stack in the kernel. Reading these never blocks."""
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*"), key=lambda path: int(path.name)):
        fields = {name: read(task / name) for name in ("comm", "wchan", "syscall", "stack")}
        state = read(task / "stat").rpartition(")")[2].split()[:1]
        say(f"  thread {task.name} {fields['comm']}: state {''.join(state)}, wchan {fields['wchan']}, "
            f"syscall {fields['syscall']}")
        if not fields["stack"].startswith("("):
            say("    " + fields["stack"].replace("\n", "\n    "))


def user_stacks(pid):
    if shutil.which("gdb"):
        command = ["gdb", "-p", str(pid), "-batch", "-nx", "-iex", "set debuginfod enabled off",
                   "-ex", "thread apply all backtrace 40"]
    elif shutil.which("eu-stack"):
        command = ["eu-stack", "-n", "40", "-p", str(pid)]
    elif shutil.which("lldb"):
        command = ["lldb", "-p", str(pid), "--batch", "-o", "thread backtrace all"]
    else:
        return say("  no stacks of the program itself: gdb, eu-stack and lldb are missing")
    noise = ("During symbol reading", "[New LWP", "warning: ", "Reading symbols", "[Thread debugging", "Using host lib")
    lines = [line for line in run(command, 120).split("\n") if line.strip() and not line.startswith(noise)]
    text = "".join(f"  {line}\n" for line in lines)
    if shutil.which("swift"):
        plain = subprocess.run(["swift", "demangle", "--simplified"], input=text, capture_output=True, text=True)
        text = plain.stdout or text
    say(text)


def dump(mark):
    processes = started(mark)
    # First everything that cannot block.
    for pid in processes:
        say(f"process {pid}: {read(f'/proc/{pid}/cmdline')}")
        kernel_stacks(pid)
    # The rest (swift, shells) only waits for these.
    names = ("vaultfs", "swiftpm-testing", "null-server")
    for pid in processes:
        program = os.path.basename(read(f"/proc/{pid}/cmdline").split(" ")[0])
        if program.startswith(names):
            say(f"stacks of process {pid}, {program}:")
            user_stacks(pid)


def end(mark):
    """Kills all started processes, and detaches the mounts of daemons, which name their mountpoints on the command
    line."""
    points = set()
    mounts = [line.split(" ")[1] for line in pathlib.Path("/proc/mounts").read_text().split("\n") if " fuse." in line]
    for pid in started(mark):
        words = read(f"/proc/{pid}/cmdline").split(" ")
        points.update(point for point in mounts if point in words)
    for _ in range(5):
        remaining = started(mark)
        if not remaining:
            break
        for pid in remaining:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.5)
    for point in sorted(points):
        run(["fusermount3", "-uz", point], 10)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--silent", type=float, default=600)
    parser.add_argument("--total", type=float, default=5400)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    mark = secrets.token_hex(8)
    process = subprocess.Popen(
        options.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, MARK: mark}, start_new_session=True)

    def stop(number, _):
        end(mark)
        sys.exit(128 + number)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    descriptor = process.stdout.fileno()
    os.set_blocking(descriptor, False)
    begun = heard = time.monotonic()
    while True:
        # A process that outlives the command may keep the pipe open, so the command's end counts, not the pipe's.
        ended = process.poll() is not None
        if select.select([descriptor], [], [], 0 if ended else 0.5)[0]:
            data = os.read(descriptor, 1 << 16)
            if data:
                heard = time.monotonic()
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
                continue
            if not ended:
                time.sleep(0.1)
        if ended:
            sys.exit(process.returncode if process.returncode >= 0 else 128 - process.returncode)
        now = time.monotonic()
        if now - heard > options.silent or now - begun > options.total:
            why = (f"no output for {options.silent:g} s" if now - heard > options.silent
                   else f"not done after {options.total:g} s")
            say(f"\nwatchdog: {why}; the stacks of what runs:")
            dump(mark)
            say(f"watchdog: {why}: aborting")
            end(mark)
            sys.exit(124)


main()
