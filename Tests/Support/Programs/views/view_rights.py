#!/usr/bin/env python3
"""view_rights.py SOURCE MOUNTPOINT SEED COUNT: makes COUNT files and directories in SOURCE, with random owners, groups, modes
and ACLs, and opens each as several users, in SOURCE and in the view of it. Prints each difference, and the
number of opens. The view must be mounted with -o allow_other, by root. SOURCE has the file f."""
import errno
import os
import random
import shutil
import struct
import sys

USERS = [(0, 0), (5, 60), (1234, 1234), (5678, 60), (65534, 65534)]
# Tags of an entry (include/uapi/linux/posix_acl.h), in the order in which the kernel wants them.
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32


def access_list(generator):
    entries = [(USER_OBJ, generator.randrange(8), 0xFFFFFFFF), (USER, generator.randrange(8), generator.choice([5, 1234])),
               (GROUP_OBJ, generator.randrange(8), 0xFFFFFFFF), (GROUP, generator.randrange(8), 60),
               (MASK, generator.randrange(8), 0xFFFFFFFF), (OTHER, generator.randrange(8), 0xFFFFFFFF)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def outcomes(directories, name, flags):
    """The results of an open in each directory, as each user."""
    found = []
    for uid, gid in USERS:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            for directory in directories:
                try:
                    os.close(os.open(name, flags, dir_fd=directory))
                    code = 0
                except OSError as error:
                    code = error.errno
                os.write(writing, bytes([code]))
            os._exit(0)
        os.waitpid(child, 0)
        found.append(tuple(os.read(reading, len(directories))))
        os.close(reading)
        os.close(writing)
    return found


def main(source, mountpoint, seed, count):
    generator = random.Random(seed)
    directories = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (source, mountpoint)]
    opens = 0
    for turn in range(count):
        # New names, of which the kernel has no attributes.
        shutil.copy(f"{source}/f", f"{source}/f{turn}")
        os.mkdir(f"{source}/d{turn}")
        for name, flags in ((f"f{turn}", os.O_RDONLY), (f"d{turn}", os.O_RDONLY | os.O_DIRECTORY)):
            path = f"{source}/{name}"
            os.chown(path, generator.choice(USERS)[0], generator.choice(USERS)[1])
            os.chmod(path, generator.randrange(0o1000) & 0o777)
            if generator.random() < 0.5:
                os.setxattr(path, "system.posix_acl_access", access_list(generator))
            for user, (own, viewed) in zip(USERS, outcomes(directories, name, flags)):
                opens += 1
                if own != viewed:
                    print(f"{name}, {oct(os.stat(path).st_mode)}, as {user}: "
                          f"{errno.errorcode.get(own, own)}, in the view {errno.errorcode.get(viewed, viewed)}")
    print(f"{opens} opens")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
