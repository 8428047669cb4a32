"""The documented differences between a vault and the file system below it. Each function has the sentence of
Manual/Limits.md. It returns true if the sentence explains the results of a call, after it has made the plain tree like
the vault."""

import errno
import fcntl
import os
import stat

NOT_SUPPORTED = errno.errorcode[errno.EOPNOTSUPP]


def close_both(beside, slot):
    """Makes a slot free, after only one of the trees has opened it."""
    for calls in beside.plain, beside.vault:
        if slot in calls.handles:
            calls.close(slot)


def temporary_file(beside, context, name, arguments, expected, found):
    """`O_TMPFILE` is refused (`EOPNOTSUPP`)."""
    if name != "open" or arguments[2] & os.O_TMPFILE != os.O_TMPFILE or found != NOT_SUPPORTED:
        return False
    if not isinstance(expected, str):
        close_both(beside, arguments[0])
    return True


def long_attribute(beside, context, name, arguments, expected, found):
    """A single extended attribute needs up to 32 bytes more than on the store. The name of a `user.*` attribute has at
    most 165 bytes after `user.`."""
    if name not in ("setxattr", "fsetxattr") or found not in ("ENOSPC", "E2BIG", "ERANGE"):
        return False
    target, attribute = arguments[:2]
    if found == "ERANGE" and len(attribute) <= 170:
        return False
    if expected is None:
        with beside.plain.opened(context, target) as plain, beside.vault.opened(context, target) as vault:
            # ext4 has one block for all attributes of a file.
            if found != "ERANGE" and stored_size(plain) < os.fstatvfs(plain).f_bsize - 300:
                return False
            if attribute in os.listxattr(vault):
                os.setxattr(plain, attribute, os.getxattr(vault, attribute))
            else:
                os.removexattr(plain, attribute)
            # An ACL has changed it.
            os.fchmod(plain, stat.S_IMODE(os.fstat(vault).st_mode))
            beside.trees.unknown_times.add(os.fstat(plain).st_ino)
    return True


def stored_size(fd):
    """The space that a vault needs for the attributes of a file, about."""
    return sum(len(name) * 4 // 3 + len(os.getxattr(fd, name)) + 64 for name in os.listxattr(fd))


def without_name(beside, context, name, arguments, expected, found):
    """fstat(2) of a descriptor of a FIFO, a device or a socket, or of one that was opened with O_PATH, fails (`ESTALE`)
    once the file has no name and nobody has it open."""
    if found != "ESTALE":
        return False
    slots = {context.start, *beside.operations.handles_of(name, arguments)} - {None}
    if not any(is_without_name(beside.plain.handles[slot]) for slot in slots):
        return False
    if name in ("open", "reopen"):
        close_both(beside, arguments[0])
    return True


def is_without_name(fd):
    status = os.fstat(fd)
    is_open = stat.S_IFMT(status.st_mode) in (stat.S_IFREG, stat.S_IFDIR)
    return status.st_nlink == 0 and (not is_open or fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_PATH)


def listed_twice(beside, context, name, arguments, expected, found):
    """tmpfs lists some names twice while others are removed, and so does a vault on it."""
    is_tmpfs = "zero" not in beside.operations.modes
    return is_tmpfs and name == "list_changing" and not isinstance(expected, str) and expected[::2] == found[::2]


DOCUMENTED = [without_name, temporary_file, long_attribute, listed_twice]
