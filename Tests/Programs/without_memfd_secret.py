"""Runs a program for which memfd_secret(2) does not exist (ENOSYS), so that its keys lie in locked memory, which root can
read through /proc/PID/mem. As root, so that the program keeps its privileges.

without_memfd_secret.py PROGRAM ARGUMENT..."""

import ctypes
import errno
import os
import struct
import sys

MEMFD_SECRET = 447
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
# linux/bpf_common.h, linux/seccomp.h
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000


class Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = [("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


# The number of the call is the first word of struct seccomp_data. Its architecture needs no look: 447 is memfd_secret
# on all, and this keeps nobody in.
instructions = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in [
        (LOAD_WORD, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, MEMFD_SECRET),
        (RETURN, 0, 0, FAIL | errno.ENOSYS),
        (RETURN, 0, 0, ALLOW),
    ]
)
libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(instructions) // 8, instructions)
if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
    sys.exit(f"without_memfd_secret: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
