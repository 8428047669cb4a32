"""Set-id bits and capabilities: which users remove them by changing a file. Run by root it tests root, a member of
the file's group and a stranger. Run by others it tests themselves. On a mount it needs -o allow_other."""

import mmap
import os
import struct

from probe import as_user, case, err, fallocate, main, put

OWNER, MEMBER, STRANGER, GROUP = 20001, 20002, 20003, 30001
CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")
BITS = (0o6777, 0o4777, 0o2777, 0o2767, 0o6766, 0o4666, 0o777)



def acl(*entries):
    """An ACL as the attribute holds it (linux/posix_acl_xattr.h): version 2, then tag, permissions and id of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


# SHORT_ACL has USER_OBJ, GROUP_OBJ and OTHER, like a mode. LONG_ACL also has USER and MASK.
SHORT_ACL = acl((1, 7, -1), (4, 5, -1), (32, 5, -1))
LONG_ACL = acl((1, 7, -1), (2, 4, 20005), (4, 5, -1), (16, 5, -1), (32, 4, -1))

ACTORS = {"self": (None, ())} if os.geteuid() else {
    "root": (None, ()), "owner": (OWNER, ()), "owner in group": (OWNER, (GROUP,)), "member": (MEMBER, (GROUP,)),
    "stranger": (STRANGER, ())}


def opened(action, flags=os.O_RDWR):
    def run():
        fd = os.open("f", flags)
        result = action(fd)
        # By the descriptor and by the name, immediately afterwards.
        return result, oct(os.fstat(fd).st_mode), oct(os.stat("f").st_mode), os.close(fd)
    return run


def mapped(fd):
    with mmap.mmap(fd, 4096) as map:
        map[0] = 65
        map.flush()


def twice(fd):
    """A bit that is set again between two writes is removed again."""
    os.pwrite(fd, b"x", 0)
    first = oct(os.fstat(fd).st_mode)
    return first, err(os.fchmod, fd, 0o6777), os.pwrite(fd, b"x", 0)


ACTIONS = {
    "pwrite": opened(lambda fd: os.pwrite(fd, b"x", 1)),
    "pwrite of nothing": opened(lambda fd: os.pwrite(fd, b"", 1)),
    "append": opened(lambda fd: os.write(fd, b"x" * 5000), os.O_WRONLY | os.O_APPEND),
    "twice": opened(twice),
    "mmap": opened(mapped),
    "ftruncate": opened(lambda fd: os.ftruncate(fd, 10)),
    "ftruncate to the same": opened(lambda fd: os.ftruncate(fd, 8192)),
    "fallocate": opened(lambda fd: err(fallocate, fd, 0, 0, 20000)),
    "punch": opened(lambda fd: err(fallocate, fd, 3, 0, 4096)),
    "copy_file_range": opened(lambda fd: os.copy_file_range(os.open("source", os.O_RDONLY), fd, 4096)),
    "O_TRUNC": opened(lambda fd: None, os.O_WRONLY | os.O_TRUNC),
    "O_CREAT|O_TRUNC": opened(lambda fd: None, os.O_WRONLY | os.O_TRUNC | os.O_CREAT),
    "fsync": opened(os.fsync),
    "truncate": lambda: os.truncate("f", 1),
    # A stranger gets EPERM for these, or no error, but the bits stay.
    "chown -1": lambda: err(os.chown, "f", -1, -1) and None,
    "chown group": lambda: err(os.chown, "f", -1, GROUP if os.geteuid() == 0 or GROUP in os.getgroups() else os.getegid()),
    "chown user": lambda: err(os.chown, "f", 20009, -1),
    "utime": lambda: err(os.utime, "f"),
    "acl": lambda: err(os.setxattr, "f", "system.posix_acl_access", SHORT_ACL),
    "long acl": lambda: err(os.setxattr, "f", "system.posix_acl_access", LONG_ACL),
    "xattr": lambda: err(os.setxattr, "f", "user.x", b"1"),
    "link": lambda: err(os.link, "f", "g"),
}


def make(bits):
    for name in ("f", "g"):
        if os.path.lexists(name):
            os.unlink(name)
    put("f", b"c" * 8192)
    if os.geteuid() == 0:
        os.chown("f", OWNER, GROUP)
    os.chmod("f", bits)


def prepare():
    os.chmod(".", 0o777)
    put("source", b"s" * 4096, 0o644)


@case
def set_id_bits():
    prepare()
    result = []
    for actor, (uid, groups) in ACTORS.items():
        for action, run in ACTIONS.items():
            for bits in BITS:
                if action == "mmap" and os.geteuid():
                    # The daemon is not root, and its own write to the store removes them.
                    continue
                make(bits)
                done = as_user(uid, groups, run)
                result.append(f"\n{actor}, {action}, {bits:o}: {done} {os.stat('f').st_mode:o}")
    return "".join(result)


@case
def set_id_bits_of_new_files():
    prepare()
    result = []
    for bits in BITS:
        os.close(os.open("new", os.O_CREAT | os.O_EXCL | os.O_WRONLY, bits))
        os.mknod("node", 0o100000 | bits)
        result += [oct(os.stat(name).st_mode) for name in ("new", "node")]
        os.unlink("new")
        os.unlink("node")
    return result


@case
def set_group_id_of_directory():
    """An access ACL of an owner outside the group removes it, a default ACL does not."""
    prepare()
    result = []
    for actor, (uid, groups) in ACTORS.items():
        for name in ("system.posix_acl_access", "system.posix_acl_default"):
            os.mkdir("d")
            if os.geteuid() == 0:
                os.chown("d", OWNER, GROUP)
            os.chmod("d", 0o2777)
            done = as_user(uid, groups, lambda: err(os.setxattr, "d", name, SHORT_ACL))
            result.append(f"\n{actor}, {name}: {done} {os.stat('d').st_mode:o}")
            os.rmdir("d")
    return "".join(result)


@case
def capabilities():
    if os.geteuid():
        return None
    prepare()
    result = []
    for actor, (uid, groups) in ACTORS.items():
        for action, run in ACTIONS.items():
            # Pages that the kernel writes back are the daemon's write to the store, which removes it.
            if action == "mmap":
                continue
            make(0o777)
            os.setxattr("f", "security.capability", CAPABILITY)
            as_user(uid, groups, run)
            result.append(f"\n{actor}, {action}: {err(os.getxattr, 'f', 'security.capability')}")
    return "".join(result)


main()
