"""Every operation that a program can try on a locked mount: by path, and by descriptors, mappings, links and working
directories that it already has. Each probe returns its result. On a locked vault that must be ENOKEY (or the
corresponding signal)."""

import ctypes
import errno
import mmap
import os
import random
import signal
import socket
import stat
import struct

from cached_pages import Mapping, check, libc, syscall

AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW, AT_FDCWD = 0x1000, 0x800, 0x100, -100
STATX, EXECVEAT, GETDENTS64, FACCESSAT2, PREADV2 = 332, 322, 217, 439, 327
NAME_TO_HANDLE_AT, OPEN_BY_HANDLE_AT, PROCESS_VM_READV = 303, 304, 310
IO_SETUP, IO_SUBMIT, IO_GETEVENTS = 206, 209, 208
POPULATE_READ = 22
LINK = b"target of the link"
SMALL = b"content of a small file\n" * 400


def block(index):
    """The big file's content, in blocks of 4 KiB."""
    return struct.pack("<Q", index * 2654435761 + 1) * 512


def make(mountpoint, mebibytes):
    """The tree that the probes use."""
    os.chdir(mountpoint)
    os.makedirs("dir/sub/quiet")
    os.mkdir("dir/asked")
    os.mkdir("dir/empty")
    with open("big", "wb") as file:
        for start in range(0, mebibytes * 256, 256):
            file.write(b"".join(block(i) for i in range(start, start + 256)))
    for path in ("small", "dir/file", "dir/gone", "dir/sub/deep", "dir/mapped", "written"):
        with open(path, "wb") as file:
            file.write(SMALL)
    for i in range(300):
        os.close(os.open(f"dir/entry {i}", os.O_CREAT | os.O_WRONLY))
    os.symlink(LINK, "dir/link")
    os.symlink("dir/file", "way")
    os.mkfifo("dir/fifo")
    with open("/bin/true", "rb") as source, open("program", "wb") as file:
        file.write(source.read())
    os.chmod("program", 0o755)
    os.setxattr("dir/file", "user.color", b"green")
    # An access ACL with a named user, because the kernel caches those.
    entries = [(1, 6, -1), (2, 4, 1), (4, 4, -1), (16, 4, -1), (32, 0, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr("dir/file", "system.posix_acl_access", acl)


class Held:
    """Objects of the tree that a program has open before the lock."""

    def __init__(self, mountpoint, shared):
        self.mountpoint = mountpoint
        self.size = os.stat("big").st_size
        self.big = os.open("big", os.O_RDONLY)
        self.file = os.open("dir/file", os.O_RDWR)
        self.appended = os.open("dir/file", os.O_WRONLY | os.O_APPEND)
        self.gone = os.open("dir/gone", os.O_RDWR)
        os.unlink("dir/gone")
        self.directory = os.open("dir", os.O_RDONLY | os.O_DIRECTORY)
        self.listing = os.open("dir", os.O_RDONLY | os.O_DIRECTORY)
        self.begun = getdents(self.listing, 4096)
        self.linkPath = os.open("dir/link", os.O_PATH | os.O_NOFOLLOW)
        self.filePath = os.open("dir/file", os.O_PATH)
        self.fifo = os.open("dir/fifo", os.O_RDWR)
        self.program = os.open("program", os.O_RDONLY)
        self.direct = os.open("big", os.O_RDONLY | os.O_DIRECT)
        self.mapping = Mapping(self.big, self.size, private=not shared)
        for offset in range(0, self.size, 4096):
            self.mapping.read(offset, 1)
        self.small = Mapping(self.file, len(SMALL), private=not shared)
        self.small.read(0, 1)
        self.root = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY)
        self.pipe = os.pipe()
        self.outside = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
        self.sockets = socket.socketpair()
        self.aligned = mmap.mmap(-1, 4096)
        self.handle = name_to_handle(self.file) if os.geteuid() == 0 else None
        self.ring = ctypes.c_ulong(0)
        syscall(IO_SETUP, 4, ctypes.byref(self.ring))
        # Attributes, names, missing names, link targets and ACLs, all in the kernel's caches.
        for path in ("dir/file", "dir/link", "dir/none", "none", "dir/sub/deep", "program"):
            if os.path.lexists(path):
                os.lstat(path)
        os.readlink("dir/link")
        os.getxattr("dir/file", "system.posix_acl_access")
        os.listdir("dir")

    def offset(self):
        return random.randrange(self.size // 4096) * 4096


def getdents(fd, size):
    buffer = ctypes.create_string_buffer(size)
    return buffer.raw[: syscall(GETDENTS64, fd, buffer, size)]


def statx(fd, path=b"", flags=AT_EMPTY_PATH, mask=0x7FF):
    buffer = ctypes.create_string_buffer(256)
    syscall(STATX, fd, path, flags, mask, buffer)
    return buffer.raw


def name_to_handle(fd):
    handle = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    syscall(NAME_TO_HANDLE_AT, fd, b"", handle, ctypes.byref(mount), AT_EMPTY_PATH)
    return handle


def signalled(action):
    """Runs `action` in a child. Returns the OSError for the signal that ended it (SIGBUS: ENOKEY)."""
    pid = os.fork()
    if pid == 0:
        action()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS:
        raise OSError(errno.ENOKEY, "SIGBUS")
    return status


def faulting(action, *arguments):
    """A system call that touches a page of the mapping. It returns EFAULT instead of a SIGBUS."""
    try:
        return action(*arguments)
    except OSError as error:
        raise OSError(errno.ENOKEY, "EFAULT") if error.errno == errno.EFAULT else error


def drained(fd, count):
    """Empties a pipe or socket, so that it does not fill up."""
    os.read(fd, 4096)
    return count


def vm_read(held):
    buffer = ctypes.create_string_buffer(16)
    local = struct.pack("<QQ", ctypes.addressof(buffer), 16)
    remote = struct.pack("<QQ", held.mapping.address + held.offset(), 16)
    return syscall(PROCESS_VM_READV, os.getpid(), local, 1, remote, 1, 0)


def asynchronous_read(held):
    """pread by io_submit(2)."""
    buffer = ctypes.create_string_buffer(4096)
    # struct iocb: data, key, rw flags, opcode 0 (pread), priority, descriptor, buffer, bytes, offset
    block = ctypes.create_string_buffer(
        struct.pack("<QIiHhIQQqQII", 0, 0, 0, 0, 0, held.big, ctypes.addressof(buffer), 4096, held.offset(), 0, 0, 0))
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    syscall(IO_SUBMIT, held.ring, 1, pointers)
    event = ctypes.create_string_buffer(32)
    syscall(IO_GETEVENTS, held.ring, 1, 1, event, None)
    result = struct.unpack("<QQqq", event.raw)[2]
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def run(path):
    """execve(2) of a path, in a child."""
    pid = os.posix_spawn(path, [path], {})
    return os.waitpid(pid, 0)[1]


def run_descriptor(held):
    """execveat(2) of a descriptor, in a child that reports the error."""
    pid = os.fork()
    if pid == 0:
        arguments = (ctypes.c_char_p * 2)(b"program", None)
        try:
            syscall(EXECVEAT, held.program, b"", arguments, (ctypes.c_char_p * 1)(None), AT_EMPTY_PATH)
        except OSError as error:
            os._exit(error.errno)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        raise OSError(status, os.strerror(status))
    return status


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as new:
        new.bind(path)


def opened(*arguments, **keywords):
    os.close(os.open(*arguments, **keywords))
    return "opened"


def reads(held):
    h = held
    return {
        "pread": lambda: os.pread(h.big, 4096, h.offset()),
        "read": lambda: (os.lseek(h.big, h.offset(), os.SEEK_SET), os.read(h.big, 100)),
        "read across the end": lambda: os.pread(h.big, 8192, h.size - 4096),
        "read past the end": lambda: os.pread(h.big, 10, h.size + 5000),
        "read of a removed file": lambda: os.pread(h.gone, 10, 0),
        "readv": lambda: os.preadv(h.big, [bytearray(10), bytearray(10)], h.offset()),
        "O_DIRECT": lambda: os.preadv(h.direct, [h.aligned], h.offset()),
        "aio": lambda: asynchronous_read(h),
        "mapping": lambda: signalled(lambda: h.mapping.read(h.offset(), 1)),
        "small mapping": lambda: signalled(lambda: h.small.read(0, 1)),
        "mapping in write(2)": lambda: faulting(
            lambda: drained(h.pipe[0], check(libc.write(h.pipe[1], ctypes.c_void_p(h.mapping.address + h.offset()), 1)))),
        "process_vm_readv": lambda: faulting(vm_read, h),
        "MADV_POPULATE_READ": lambda: faulting(
            lambda: check(libc.madvise(ctypes.c_void_p(h.mapping.address + h.offset()), 4096, POPULATE_READ))),
        "sendfile to a socket": lambda: drained(
            h.sockets[1].fileno(), os.sendfile(h.sockets[0].fileno(), h.big, h.offset(), 100)),
        "sendfile to a file": lambda: os.sendfile(h.outside, h.big, h.offset(), 100),
        "splice": lambda: drained(h.pipe[0], os.splice(h.big, h.pipe[1], 100, h.offset())),
        "copy_file_range": lambda: os.copy_file_range(h.big, h.file, 100, h.offset(), 0),
        "SEEK_DATA": lambda: os.lseek(h.big, 0, os.SEEK_DATA),
        "SEEK_HOLE": lambda: os.lseek(h.big, 0, os.SEEK_HOLE),
        "SEEK_END": lambda: os.lseek(h.big, 0, os.SEEK_END),
        "execve": lambda: run("program"),
        "execveat": lambda: run_descriptor(h),
    }


def attributes(held):
    """Not included: AT_STATX_DONT_SYNC, an empty mask and FIONREAD on a descriptor. The kernel answers them from its
    inode (size, mode, owner, times) without a request, and a daemon cannot make it forget those."""
    h = held
    probes = {
        "stat": lambda: os.stat("dir/file"),
        "lstat": lambda: os.lstat("dir/link"),
        "fstat": lambda: os.fstat(h.big),
        "fstat of a removed file": lambda: os.fstat(h.gone),
        "fstat of a directory": lambda: os.fstat(h.directory),
        "fstat of a fifo": lambda: os.fstat(h.fifo),
        "fstat by O_PATH": lambda: os.fstat(h.linkPath),
        "statx": lambda: statx(AT_FDCWD, b"dir/file", 0),
        "statx by path, cached": lambda: statx(AT_FDCWD, b"dir/file", 0x4000),
        "access": lambda: check(libc.access(b"dir/file", os.R_OK)),
        "faccessat2 by descriptor": lambda: syscall(FACCESSAT2, h.file, b"", os.R_OK, AT_EMPTY_PATH),
        "readlink": lambda: os.readlink("dir/link"),
        "readlink by O_PATH": lambda: check(libc.readlinkat(h.linkPath, b"", ctypes.create_string_buffer(99), 99)),
        "getxattr": lambda: os.getxattr("dir/file", "user.color"),
        "getxattr of the class": lambda: os.getxattr("dir/file", "user.vaultfs.class"),
        "getxattr of the root": lambda: os.getxattr(h.mountpoint, "user.color"),
        "fgetxattr": lambda: os.getxattr(h.file, "user.color"),
        "ACL": lambda: os.getxattr("dir/file", "system.posix_acl_access"),
        "ACL by descriptor": lambda: os.getxattr(h.file, "system.posix_acl_access"),
        "listxattr": lambda: os.listxattr("dir/file"),
        "flistxattr": lambda: os.listxattr(h.file),
        "/proc/self/fd: stat": lambda: os.stat(f"/proc/self/fd/{h.file}"),
        "/proc/self/fd: open": lambda: opened(f"/proc/self/fd/{h.file}", os.O_RDONLY),
        "/proc/self/fd: read a link": lambda: opened(f"/proc/self/fd/{h.directory}/file", os.O_RDONLY),
    }
    if h.handle is not None:
        probes["open_by_handle_at"] = lambda: os.close(
            syscall(OPEN_BY_HANDLE_AT, h.root, h.handle, os.O_RDONLY))
    return probes


def names(held):
    h = held
    return {
        "open": lambda: opened("dir/file", os.O_RDONLY),
        "open with O_PATH": lambda: opened("dir/file", os.O_PATH),
        "open through a link": lambda: opened("way", os.O_RDONLY),
        "openat": lambda: opened("file", os.O_RDONLY, dir_fd=h.directory),
        "a directory where somebody works": lambda: os.stat("asked", dir_fd=h.directory),
        "opendir": lambda: opened("dir", os.O_RDONLY | os.O_DIRECTORY),
        "a name that was not there": lambda: os.stat("none"),
        "a name that was not there, below": lambda: os.stat("dir/none"),
        "a name never asked for": lambda: os.stat(f"dir/{random.random()}"),
        "an entry never asked for": lambda: os.stat("dir/entry 17"),
        "listing": lambda: os.listdir("dir"),
        "listing of the root": lambda: os.listdir(h.mountpoint),
        "listing by descriptor": lambda: os.listdir(h.directory),
        "listing that had begun": lambda: getdents(h.listing, 4096),
        "statfs below": lambda: os.statvfs("dir/file"),
        "chdir": lambda: (os.chdir("dir"), os.chdir(h.mountpoint)),
    }


def changes(held):
    h = held
    here = h.directory
    return {
        "write": lambda: os.pwrite(h.file, b"x", 0),
        "append": lambda: os.write(h.appended, b"x"),
        "create": lambda: opened("new", os.O_CREAT | os.O_WRONLY),
        "create below": lambda: opened("new", os.O_CREAT | os.O_WRONLY | os.O_EXCL, dir_fd=here),
        "truncate": lambda: os.truncate("dir/file", 0),
        "ftruncate": lambda: os.ftruncate(h.file, 0),
        "O_TRUNC": lambda: opened("dir/file", os.O_WRONLY | os.O_TRUNC),
        "fallocate": lambda: check(libc.fallocate(h.file, 0, ctypes.c_long(0), ctypes.c_long(1 << 20))),
        "punch": lambda: check(libc.fallocate(h.file, 3, ctypes.c_long(0), ctypes.c_long(4096))),
        "rename": lambda: os.rename("dir/file", "dir/other"),
        "rename by descriptor": lambda: os.rename("file", "other", src_dir_fd=here, dst_dir_fd=here),
        "unlink": lambda: os.unlink("dir/file"),
        "rmdir": lambda: os.rmdir("dir/empty"),
        "mkdir": lambda: os.mkdir("dir/new"),
        "link": lambda: os.link("dir/file", "dir/new"),
        "link by descriptor": lambda: os.link(f"/proc/self/fd/{h.file}", "dir/new", follow_symlinks=True),
        "symlink": lambda: os.symlink("x", "dir/new"),
        "mkfifo": lambda: os.mkfifo("dir/new"),
        "mknod": lambda: os.mknod("dir/new", 0o644 | stat.S_IFREG),
        "socket": lambda: unix_socket("dir/new"),
        "chmod": lambda: os.chmod("dir/file", 0o600),
        "fchmod": lambda: os.chmod(h.file, 0o600),
        "chown": lambda: os.chown("dir/file", os.geteuid(), os.getegid()),
        "utimensat": lambda: os.utime("dir/file"),
        "futimens": lambda: os.utime(h.file, ns=(1, 2)),
        "setxattr": lambda: os.setxattr("dir/file", "user.color", b"red"),
        "fsetxattr": lambda: os.setxattr(h.file, "user.color", b"red"),
        "removexattr": lambda: os.removexattr("dir/file", "user.color"),
    }


def all_probes(held):
    return reads(held) | attributes(held) | names(held) | changes(held)


def outcome(probe):
    """Returns `ENOKEY`, another error's name, or the start of the result."""
    try:
        result = probe()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return repr(result)[:60]
