"""System calls on one of the two trees. Each method is a call, and returns a value that must be the same on both."""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import struct

from locking import noise
from model_worker import check, libc, pages
from probe import fallocate, renameat2

MODES = {"keep": 1, "punch": 3, "zero": 16, "zero and keep": 17}
OFD_GETLK, OFD_SETLK = 36, 37
LOCK = "hhqqi4x"
UTIME_NOW, UTIME_OMIT, AT_SYMLINK_NOFOLLOW = (1 << 30) - 1, (1 << 30) - 2, 0x100
libc.utimensat.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int]
libc.getdents64.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]


def shown(status):
    """The parts of a status that are the same on any file system."""
    size = None if os.path.stat.S_ISDIR(status.st_mode) else status.st_size
    return oct(status.st_mode), status.st_uid, status.st_gid, status.st_nlink, size, status.st_rdev


def records(buffer, size):
    """The names of directory records, as getdents64(2) returns them."""
    at = 0
    while at < size:
        length = struct.unpack_from("H", buffer, at + 16)[0]
        yield os.fsdecode(ctypes.string_at(ctypes.addressof(buffer) + at + 19))
        at += length


class Calls:
    """`handles` are the open descriptors, by the number of their slot."""

    def __init__(self, path):
        self.path, self.base, self.handles = path, -1, {}
        self.memory = os.memfd_create("mapped")

    def begin(self):
        self.base = os.open(self.path, os.O_PATH | os.O_DIRECTORY)

    def end(self):
        for slot in list(self.handles):
            with contextlib.suppress(OSError):
                self.close(slot)
        os.close(self.base)

    def do(self, context, name, arguments):
        """Makes a call as a user, with a umask, in a directory. Returns its result, or the name of its error."""
        os.umask(context.umask)
        if context.user is not None:
            os.setgroups(context.groups)
            os.setegid(context.user)
            os.seteuid(context.user)
        try:
            os.fchdir(self.base if context.start is None else self.handles[context.start])
            return getattr(self, name)(*arguments)
        except OSError as error:
            return errno.errorcode[error.errno]
        finally:
            if context.user is not None:
                os.seteuid(0)
                os.setegid(0)

    @contextlib.contextmanager
    def opened(self, context, target):
        """A descriptor of a path, or of the file of a handle, as this program's user."""
        os.fchdir(self.base if context.start is None else self.handles[context.start])
        path = target if isinstance(target, str) else f"/proc/self/fd/{self.handles[target]}"
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            yield fd
        finally:
            os.close(fd)

    # Handles

    def open(self, slot, path, flags, mode):
        fd = os.open(path, flags, mode)
        self.put_handle(slot, fd)
        # The mode in which the file was made, also if another process has removed it.
        return shown(os.fstat(fd))

    def put_handle(self, slot, fd):
        if slot in self.handles:
            os.close(self.handles.pop(slot))
        self.handles[slot] = fd

    def reopen(self, slot, source, flags):
        self.put_handle(slot, os.open(f"/proc/self/fd/{self.handles[source]}", flags))

    def close(self, slot):
        os.close(self.handles.pop(slot))

    def fstat(self, slot):
        return shown(os.fstat(self.handles[slot]))

    def lseek(self, slot, offset, whence):
        return os.lseek(self.handles[slot], offset, whence)

    def seek_data(self, slot, at):
        return self.seek(slot, at, os.SEEK_DATA)

    def seek_hole(self, slot, at):
        return self.seek(slot, at, os.SEEK_HOLE)

    def seek(self, slot, at, whence):
        """A file system may show a hole as data. So only the errors count, and that nothing but zeros is skipped."""
        fd = self.handles[slot]
        if os.path.stat.S_ISDIR(os.fstat(fd).st_mode):
            # Its size depends on the file system.
            return None
        size, before = os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_CUR)
        try:
            found = os.lseek(fd, at, whence)
        except OSError as error:
            if error.errno != errno.ENXIO or at >= size or whence == os.SEEK_HOLE:
                raise
            found = size
        os.lseek(fd, before, os.SEEK_SET)
        if not at <= found <= size:
            return f"{found} is not in {at}...{size}"
        if whence == os.SEEK_DATA and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY:
            return not any(os.pread(fd, found - at, at))
        return True

    # Contents

    def read(self, slot, size):
        return os.read(self.handles[slot], size)

    def pread(self, slot, size, at):
        return os.pread(self.handles[slot], size, at)

    def preadv(self, slot, sizes, at):
        buffers = [bytearray(size) for size in sizes]
        return os.preadv(self.handles[slot], buffers, at), buffers

    def write(self, slot, seed, size):
        return os.write(self.handles[slot], noise(seed, size))

    def pwrite(self, slot, seed, size, at):
        return os.pwrite(self.handles[slot], noise(seed, size), at)

    def writev(self, slot, seed, sizes):
        return os.writev(self.handles[slot], [noise(seed + n, size) for n, size in enumerate(sizes)])

    def ftruncate(self, slot, length):
        os.ftruncate(self.handles[slot], length)

    def truncate(self, path, length):
        # At the same length tmpfs leaves the times as they are.
        os.truncate(path, length + 1 if os.stat(path).st_size == length else length)

    def fallocate(self, slot, mode, at, size):
        fallocate(self.handles[slot], MODES.get(mode, 0), at, size)

    def copy(self, source, target, size, at, to):
        """A kernel may copy less than it could, so this goes on until nothing is left. A file that is copied to its own end
        grows, so its length counts as it is now."""
        size = min(size, max(1, os.fstat(self.handles[source]).st_size - at))
        done = 0
        while done < size:
            n = os.copy_file_range(self.handles[source], self.handles[target], size - done, at + done, to + done)
            if not n:
                break
            done += n
        return done

    def fsync(self, slot):
        os.fsync(self.handles[slot])

    def fdatasync(self, slot):
        os.fdatasync(self.handles[slot])

    def map(self, slot, at, size, seed, flags):
        """Reads mapped bytes, or stores `noise(seed)` there. The system calls return EFAULT where an access would raise
        SIGBUS."""
        first, last = pages(at, at + size)
        access = mmap.PROT_READ if seed is None else mmap.PROT_READ | mmap.PROT_WRITE
        address = check(libc.mmap(None, last - first, access, mmap.MAP_SHARED, self.handles[slot], first))
        try:
            if seed is None:
                n = check(libc.pwrite(self.memory, address + at - first, size, 0))
                return os.pread(self.memory, n, 0)
            os.pwrite(self.memory, noise(seed, size), 0)
            n = check(libc.pread(self.memory, address + at - first, size, 0))
            if flags:
                check(libc.msync(address, last - first, flags))
            return n
        finally:
            check(libc.munmap(address, last - first))

    # Names

    def mkdir(self, path, mode):
        os.mkdir(path, mode)

    def mknod(self, path, mode, device):
        os.mknod(path, mode, device)

    def symlink(self, target, path):
        os.symlink(target, path)

    def readlink(self, path):
        return os.readlink(path)

    def link(self, path, new, follow):
        os.link(path, new, follow_symlinks=follow)

    def relink(self, slot, new):
        """Gives an open file one more name."""
        os.link(f"/proc/self/fd/{self.handles[slot]}", new, follow_symlinks=True)

    def rename(self, path, new, flags):
        renameat2(path, new, flags)

    def unlink(self, path):
        os.unlink(path)

    def rmdir(self, path):
        os.rmdir(path)

    def remove_tree(self, path):
        if os.path.islink(path):
            # os.walk would follow it, perhaps to the directory that has it.
            return os.unlink(path)
        for directory, _, _ in os.walk(path):
            os.chmod(directory, 0o700)
        for directory, names, files in os.walk(path, topdown=False):
            for name in files:
                os.unlink(os.path.join(directory, name))
            for name in names:
                inner = os.path.join(directory, name)
                (os.unlink if os.path.islink(inner) else os.rmdir)(inner)
        os.rmdir(path)

    def list(self, path):
        return sorted(os.listdir(path))

    def list_changing(self, path, size, made, removed):
        """Lists a directory a few records at a time, while names are made and removed. Those that were there all the
        time must come once."""
        fd = os.open(path, os.O_DIRECTORY)
        try:
            buffer, found, changes = ctypes.create_string_buffer(size), [], list(zip(made, removed))
            stable = set(os.listdir(fd)) - set(made) - set(removed)
            os.lseek(fd, 0, os.SEEK_SET)
            while n := check(libc.getdents64(fd, buffer, size)):
                found += records(buffer, n)
                self.change_names(fd, changes[:1])
                del changes[:1]
            self.change_names(fd, changes)
            os.lseek(fd, 0, os.SEEK_SET)
            twice = {name for name in stable if found.count(name) > 1}
            return sorted(stable - set(found)), sorted(twice), sorted(os.listdir(fd))
        finally:
            os.close(fd)

    @staticmethod
    def change_names(fd, changes):
        for new, old in changes:
            with contextlib.suppress(OSError):
                os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=fd))
            with contextlib.suppress(OSError):
                os.unlink(old, dir_fd=fd)

    # Attributes

    def stat(self, path, follow):
        return shown(os.stat(path, follow_symlinks=follow))

    def access(self, path, mode):
        return os.access(path, mode, effective_ids=True)

    def chmod(self, path, mode):
        os.chmod(path, mode)

    def fchmod(self, slot, mode):
        os.fchmod(self.handles[slot], mode)

    def chown(self, path, uid, gid, follow):
        os.chown(path, uid, gid, follow_symlinks=follow)

    def fchown(self, slot, uid, gid):
        os.fchown(self.handles[slot], uid, gid)

    def utimens(self, path, times, flags):
        """utimensat(2). `times` has seconds and nanoseconds of both times, or UTIME_NOW and UTIME_OMIT."""
        check(libc.utimensat(-100, os.fsencode(path), struct.pack("4q", *times), flags))
        # A time that was set stays until something reads the file. No later call can compare it.
        return None if times[1] >= UTIME_OMIT else os.stat(path, follow_symlinks=not flags).st_atime_ns

    def futimens(self, slot, times):
        check(libc.utimensat(self.handles[slot], None, struct.pack("4q", *times), 0))

    def setxattr(self, path, name, value, flags, follow):
        os.setxattr(path, name, value, flags, follow_symlinks=follow)

    def fsetxattr(self, slot, name, value, flags):
        os.setxattr(self.handles[slot], name, value, flags)

    def getxattr(self, path, name):
        return os.getxattr(path, name)

    def removexattr(self, path, name):
        os.removexattr(path, name)

    # Locks of files

    def flock(self, slot, kind):
        fcntl.flock(self.handles[slot], kind | fcntl.LOCK_NB)

    def lock_range(self, slot, command, kind, at, size):
        found = fcntl.fcntl(self.handles[slot], command, struct.pack(LOCK, kind, os.SEEK_SET, at, size, 0))
        return struct.unpack(LOCK, found)[0]
