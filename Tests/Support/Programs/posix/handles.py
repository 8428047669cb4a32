"""Takes a file handle (name_to_handle_at(2)) of everything below TREE and prints "ready". When a program has opened the
FIFO GO to write, opens each handle (open_by_handle_at(2) with O_PATH) and prints its path and size without a request to
the daemon, or the error. Needs root.

handles.py TREE GO"""

import ctypes
import errno
import os
import sys

AT_FDCWD, AT_STATX_DONT_SYNC, AT_EMPTY_PATH, STATX_SIZE = -100, 0x4000, 0x1000, 0x200
libc = ctypes.CDLL(None, use_errno=True)


class Handle(ctypes.Structure):
    """struct file_handle of fcntl.h."""

    _fields_ = [("size", ctypes.c_uint), ("type", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]


def take(path):
    handle, mount = Handle(size=128), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at", path)
    return handle


def look(tree, handle):
    fd = libc.open_by_handle_at(tree, ctypes.byref(handle), os.O_PATH)
    if fd < 0:
        return errno.errorcode[ctypes.get_errno()]
    status = ctypes.create_string_buffer(256)
    error = libc.statx(fd, b"", AT_STATX_DONT_SYNC | AT_EMPTY_PATH, STATX_SIZE, status)
    # stx_size is at offset 40 of struct statx.
    size = "unknown" if error else int.from_bytes(status.raw[40:48], sys.byteorder)
    path = os.readlink(f"/proc/self/fd/{fd}")
    os.close(fd)
    return f"{path} {size}"


tree, go = sys.argv[1:]
top = os.open(tree, os.O_RDONLY)
handles = [take(os.path.join(at, name)) for at, directories, files in os.walk(tree) for name in directories + files]
os.mkfifo(go)
print("ready", flush=True)
open(go).close()
for handle in handles:
    print(look(top, handle))
