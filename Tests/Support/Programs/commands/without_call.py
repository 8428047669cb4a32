"""Runs a program for which a system call does not exist (ENOSYS). Needs root, so that the program keeps its privileges.

Without memfd_secret its keys lie in locked memory, which root can read through /proc/PID/mem. Without unshare no worker of a
mount can serve a request. Without listxattrat it is a kernel before 6.13.

without_call.py memfd_secret|unshare|listxattrat PROGRAM ARGUMENT..."""

import ctypes
import errno
import os
import platform
import struct
import sys

NUMBERS = {"memfd_secret": 447, "unshare": 272 if platform.machine() == "x86_64" else 97, "listxattrat": 465}
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
# linux/bpf_common.h, linux/seccomp.h
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000


class Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = [("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


# The number of the call is the first word of struct seccomp_data. The architecture needs no check, because this is no sandbox.
instructions = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in [
        (LOAD_WORD, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, NUMBERS[sys.argv[1]]),
        (RETURN, 0, 0, FAIL | errno.ENOSYS),
        (RETURN, 0, 0, ALLOW),
    ]
)
libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(instructions) // 8, instructions)
if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
    sys.exit(f"without_call: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[2], sys.argv[2:])
