"""Prints the content of a tree and the places where reading it fails: one line per entry, tab-separated, sorted by
path.

look.py DIRECTORY [--xattrs] [--no-content]
`file`, size, SHA-256 or `EIO FIRST-LAST …` (byte ranges of 4096) or `open: EIO`, path. Links show their target; what cannot
be read shows the error. Bytes below 0x20, 0x7f and backslashes are written \\xNN, as the independent reader does."""

import errno
import hashlib
import os
import stat
import sys

STEP = 4096
KINDS = {stat.S_IFIFO: b"fifo", stat.S_IFSOCK: b"socket", stat.S_IFCHR: b"char", stat.S_IFBLK: b"block"}


def shown(path):
    return b"".join(b"\\x%02x" % c if c < 0x20 or c in (0x5c, 0x7f) else bytes([c]) for c in path)


def name_of(error):
    return errno.errorcode.get(error.errno, str(error.errno)).encode()


def content(path, size):
    """The SHA-256 of a file, or the bytes of it that cannot be read. One big read first: it must stop at the same
    byte as the small ones."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        return b"open: " + name_of(error)
    try:
        return read(fd, size)
    finally:
        os.close(fd)


def read(fd, size):
    digest, bad = hashlib.sha256(), []
    try:
        big = os.pread(fd, 1 << 20, 0)
    except OSError:
        big = b""
    at = 0
    while at < size:
        try:
            part = os.pread(fd, STEP, at)
            if not part:
                return b"end at %d of %d" % (at, size)
            digest.update(part)
            if not bad and at < 1 << 20 and big[at:at + len(part)] != part[:len(big[at:at + len(part)])]:
                return b"the big read differs at %d" % at
            # A read that ends early stops before the bytes that fail.
            at += len(part)
        except OSError as error:
            end = min(at - at % STEP + STEP, size)
            if bad and bad[-1][2] == name_of(error) and bad[-1][1] == at:
                bad[-1][1] = end
            else:
                bad.append([at, end, name_of(error)])
            at = end
    if bad and len(big) > bad[0][0]:
        return b"the big read went past %d" % bad[0][0]
    return b" ".join(b"%s %d-%d" % (e, a, b - 1) for a, b, e in bad) or digest.hexdigest().encode()


def attributes(path, shown_path, lines):
    for name in sorted(os.fsencode(n) for n in os.listxattr(path, follow_symlinks=False)):
        if name.startswith(b"user."):
            try:
                value = os.getxattr(path, name, follow_symlinks=False)
                fields = (b"xattr", shown(name), b"%d" % len(value), hashlib.sha256(value).hexdigest().encode(), shown_path)
            except OSError as error:
                fields = (b"xattr", shown(name), b"-", name_of(error), shown_path)
            lines.append(fields)


def walk(directory, prefix, lines, options):
    try:
        names = os.listdir(directory)
    except OSError as error:
        lines.append((b"list", b"-", name_of(error), shown(prefix.rstrip(b"/") or b".")))
        return
    for name in names:
        path, label = os.path.join(directory, name), shown(prefix + name)
        try:
            entry(path, prefix + name, label, lines, options)
        except OSError as error:
            lines.append((b"stat", b"-", name_of(error), label))


def entry(path, plain, label, lines, options):
    found = os.lstat(path)
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        lines.append((b"dir", b"0", b"-", label))
        walk(path, plain + b"/", lines, options)
    elif kind == stat.S_IFREG:
        digest = b"-" if "--no-content" in options else content(path, found.st_size)
        lines.append((b"file", b"%d" % found.st_size, digest, label))
    elif kind == stat.S_IFLNK:
        try:
            lines.append((b"link", b"%d" % found.st_size, shown(os.readlink(path)), label))
        except OSError as error:
            lines.append((b"link", b"-", name_of(error), label))
    else:
        lines.append((KINDS[kind], b"0", b"-", label))
    if "--xattrs" in options and kind in (stat.S_IFREG, stat.S_IFDIR):
        attributes(path, label, lines)


def main():
    root, options, lines = os.fsencode(sys.argv[1]), sys.argv[2:], []
    walk(root, b"", lines, options)
    if "--xattrs" in options:
        attributes(root, b".", lines)
    for line in sorted(lines, key=lambda fields: (fields[-1], fields[0] == b"xattr", fields[1])):
        sys.stdout.buffer.write(b"\t".join(line) + b"\n")


if __name__ == "__main__":
    main()
