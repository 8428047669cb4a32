"""Models the content of a writer's directory after the acknowledged operations, and decides if a directory found
after a crash is possible."""

import copy
import errno
import os
import sys

CHUNK = 4096


class Model:
    """Files (name → bytearray) and directories (name → None) of one directory. `in_flight`: an operation that has
    begun but is not acknowledged."""

    def __init__(self):
        self.entries = {}
        self.in_flight = None

    def sizes(self):
        return {n: len(c) for n, c in self.entries.items() if c is not None}

    def names(self):
        return set(self.entries)

    def apply(self, operation, arguments, data):
        name = arguments[0]
        if operation in ("write", "truncate", "fsync", "create"):
            content = self.entries.setdefault(name, bytearray())
        if operation == "write":
            at, size, seed = arguments[1:]
            if at > len(content):
                content.extend(bytes(at - len(content)))
            content[at:at + size] = data(seed, size)
        elif operation == "truncate":
            size = arguments[1]
            del content[size:]
            content.extend(bytes(size - len(content)))
        elif operation == "mkdir":
            self.entries[name] = None
        elif operation in ("unlink", "rmdir"):
            del self.entries[name]
        elif operation == "rename":
            self.entries[arguments[1]] = self.entries.pop(name)


def fail(what):
    sys.exit(f"LOST: {what}")


def read_found(path, model):
    """(content, offset of an unreadable tail or None). The tail is cut off, as the format allows."""
    fd = os.open(path, os.O_RDWR)
    size, parts, at = os.fstat(fd).st_size, [], 0
    while at < size:
        try:
            part = os.pread(fd, CHUNK, at)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            if at + CHUNK < size:
                acknowledged = model.entries.get(os.path.basename(path))
                fail(f"{path}: EIO at {at} of {size}, which is not the last chunk; acknowledged {len(acknowledged or b'')}, "
                     f"in flight {model.in_flight}")
            os.ftruncate(fd, at)
            os.close(fd)
            return bytearray(b"".join(parts)), at
        if len(part) != min(CHUNK, size - at):
            fail(f"{path}: {len(part)} bytes at {at} of {size}")
        parts.append(part)
        at += len(part)
    os.close(fd)
    return bytearray(b"".join(parts)), None


def acceptable(old, new, found):
    """None, or the error. Each chunk must be the old or the new one, the length must be between both, and the end of
    a file that grew must be a prefix of the new content."""
    if not min(len(old), len(new)) <= len(found) <= max(len(old), len(new)):
        return f"length {len(found)}, acknowledged {len(old)}, in flight {len(new)}"
    for at in range(0, len(found), CHUNK):
        was, to_be, is_ = (bytes(c[at:at + CHUNK]) for c in (old, new, found))
        if is_ in (was, to_be):
            continue
        longer, shorter = (to_be, was) if len(new) >= len(old) else (was, to_be)
        if not (longer.startswith(is_) and len(is_) >= len(shorter)):
            return f"chunk {at // CHUNK} at {at} is neither old nor new (length {len(found)}, acknowledged {len(old)})"
    return None


def check_tree(base, model):
    """Compares, takes the found state as the new one, and returns the number of torn tails."""
    from crash import data
    before, after = model, copy.deepcopy(model)
    if model.in_flight:
        try:
            after.apply(model.in_flight[0], model.in_flight[1:], data)
        except KeyError:
            fail(f"{base}: in flight {model.in_flight} on what does not exist")
    found_names = set(os.listdir(base))
    candidates = [m for m in (before, after) if m.names() == found_names]
    if not candidates:
        fail(f"{base}: names {sorted(found_names)}, acknowledged {sorted(before.names())}, in flight {model.in_flight}")
    torn, found = 0, {}
    for name in found_names:
        path = os.path.join(base, name)
        if os.path.isdir(path):
            if any(m.entries[name] is not None for m in candidates) or os.listdir(path):
                fail(f"{path}: a directory")
            found[name] = None
            continue
        found[name], tail = read_found(path, model)
        old, new = candidates[0].entries[name], candidates[-1].entries[name]
        if model.in_flight and model.in_flight[0] in ("write", "truncate") and name not in before.entries:
            # Created by the operation in flight, before its first byte.
            old = bytearray()
        if tail is not None:
            torn += 1
            if tail < len(old):
                fail(f"{path}: EIO at {tail}, acknowledged {len(old)}")
        wrong = acceptable(old, new, found[name])
        if wrong:
            fail(f"{path}: {wrong}; in flight {model.in_flight}")
    model.entries, model.in_flight = found, None
    return torn
