"""Describes the machine of a measurement, and the resources that a daemon has used so far."""

import datetime
import os
import platform
import re


def description(directory):
    """The machine and the day, for later readers of the figures."""
    return {
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "mebibytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"),
        "filesystem": filesystem(directory),
        "date": datetime.date.today().isoformat(),
        "load": round(os.getloadavg()[0], 2),
    }


def processor():
    with open("/proc/cpuinfo") as file:
        found = re.search(r"^(?:model name|Model)\s*:\s*(.*)$", file.read(), re.M)
    return found[1] if found else platform.machine()


def filesystem(path):
    """The type of the file system that contains `path`: that of the longest mountpoint above it, the last of equals
    (proc_pid_mountinfo(5))."""
    path, best = os.path.realpath(path), ("", "?")
    with open("/proc/self/mountinfo") as file:
        for line in file:
            words = line.split()
            point = words[4].encode().decode("unicode_escape")
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best[0]):
                best = (point, words[words.index("-") + 1])
    return best[1]


def processor_seconds(pids):
    """Processor time of processes, with that of their threads that have ended (proc_pid_stat(5))."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def work_done(pids):
    """Nanoseconds of CPU time, and the number of times that a thread gave up the CPU to wait, over all threads of
    the processes (/proc/PID/task/TID/schedstat, and status)."""
    nanoseconds = waits = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                nanoseconds += int(file.read().split()[0])
            with open(f"/proc/{pid}/task/{task}/status") as file:
                waits += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", file.read(), re.M)[1])
    return nanoseconds, waits
