"""Opens many files of a tree at once for reading, reads each, closes all.

hold_open.py DIRECTORY COUNT"""

import os
import resource
import sys

resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held, refused = [], 0
for path, _, names in os.walk(sys.argv[1]):
    for name in names:
        if len(held) + refused < int(sys.argv[2]):
            try:
                held.append(os.open(os.path.join(path, name), os.O_RDONLY))
            except OSError:
                # The daemon may run out of descriptors. That is an error, and the mount continues.
                refused += 1
for fd in held:
    if not os.pread(fd, 1, 0):
        sys.exit("nothing to read")
    os.close(fd)
os.listdir(sys.argv[1])
print(len(held), refused)
