"""A file of the model: its content, the ranges that threads work on, and the states in which a kill may leave it."""

import collections
import contextlib
import os
import threading
import time

PAGE = 4096
# The unit of an operation that is done byte by byte.
BYTE = 1
# Beyond every file: a range that ends here also protects the length.
END = 1 << 62
# No thread waits this long for a range, unless another one hangs. Seconds.
LONGEST_WAIT = 120


class Difference(Exception):
    """A file is not as the model says."""

    def __init__(self, what, at=None, expected=b"", found=b""):
        super().__init__(what)
        self.what, self.at, self.expected, self.found = what, at, bytes(expected), bytes(found)

    @classmethod
    def between(cls, what, start, expected, found):
        """The first difference of two byte strings that begin at the offset `start`."""
        shared = min(len(expected), len(found))
        at = next((i for i in range(shared) if expected[i] != found[i]), shared)
        what = f"{what}, {len(found)} bytes of {len(expected)} at {start}"
        return cls(what, start + at, expected[at:at + 32], found[at:at + 32])


class Closed(Exception):
    """Another thread has closed the file meanwhile."""


class Descriptors(dict):
    """The open descriptors of a file, by kind."""

    def __missing__(self, kind):
        raise Closed


class Ranges:
    """A lock of ranges of bytes. Readers share a range, a writer has it alone."""

    def __init__(self):
        self.condition, self.used = threading.Condition(), []

    @contextlib.contextmanager
    def use(self, start, end, writing):
        mine = (start, end, writing)
        with self.condition:
            if not self.condition.wait_for(lambda: not any(self.meet(mine, other) for other in self.used), LONGEST_WAIT):
                raise Difference(f"waited {LONGEST_WAIT} s for {mine}, which others use: {self.used}")
            self.used.append(mine)
        try:
            yield
        finally:
            with self.condition:
                self.used.remove(mine)
                self.condition.notify_all()

    @staticmethod
    def meet(one, other):
        return (one[2] or other[2]) and one[0] < other[1] and other[0] < one[1]


class Change:
    """An operation in flight: the bytes `data` at `at`, and the file's length after it. A kill leaves each `unit` of it old
    or new."""

    def __init__(self, at, data, length, unit):
        self.at, self.data, self.length, self.unit = at, data, length, unit

    def units(self, end):
        """The parts that are old or new as a whole: the intersections with chunks or pages."""
        at, stop = self.at, min(self.at + len(self.data), end if self.unit != BYTE else 0)
        while at < stop:
            after = min(at - at % self.unit + self.unit, stop)
            yield at, after
            at = after


class Image(bytearray):
    """Bytes of a page before a mapped write, which has happened when `is_stored` is true."""

    is_stored = False


class File:
    """`content` changes only under a range of `ranges`, its length only under a range that ends at END."""

    def __init__(self, name, chunk):
        self.name, self.chunk = name, chunk
        self.content, self.ranges = bytearray(), Ranges()
        self.attributes, self.attribute_lock = {}, threading.Lock()
        self.fds, self.is_mappable = Descriptors(), True
        # Page → the bytes that it had before mapped writes that no msync has followed.
        self.unsynced = collections.defaultdict(list)
        self.in_flight, self.attribute_in_flight = [], None
        self.history = collections.deque(maxlen=40)
        self.mutex = threading.Lock()

    def note(self, *words):
        threading.current_thread().subject = self
        self.history.append(f"{time.monotonic():.4f} {threading.current_thread().name} " + " ".join(map(str, words)))

    def exclusive(self):
        return self.ranges.use(0, END, True)

    def close(self):
        fds, self.fds = self.fds, Descriptors()
        with contextlib.ExitStack() as stack:
            for fd in fds.values():
                stack.callback(os.close, fd)

    # The effects of operations

    def overwrite(self, at, data):
        """Bytes that were written, at or before the end."""
        self.content[at:at + len(data)] = data
        if not self.unsynced:
            return
        with self.mutex:
            for page in range(at // PAGE, (at + len(data) + PAGE - 1) // PAGE):
                for image in self.unsynced.get(page, ()):
                    start, end = max(at, page * PAGE), min(at + len(data), page * PAGE + len(image))
                    if start < end:
                        image[start - page * PAGE:end - page * PAGE] = data[start - at:end - at]

    def resize(self, length):
        if length > len(self.content):
            self.content.extend(bytes(length - len(self.content)))
        del self.content[length:]
        with self.mutex:
            for page in list(self.unsynced):
                if page * PAGE >= length:
                    del self.unsynced[page]
                for image in self.unsynced.get(page, ()):
                    # A page has its whole length again after a growth, with zeros.
                    del image[max(0, length - page * PAGE):]
                    image.extend(bytes(min(PAGE, length - page * PAGE) - len(image)))

    def apply(self, change):
        self.resize(max(len(self.content), change.at, change.length))
        self.overwrite(change.at, change.data)
        self.resize(change.length)

    @contextlib.contextmanager
    def store_mapped(self, at, data):
        """Bytes that a mapping has, and the store only after a writeback. They are stored inside of this context."""
        images = []
        with self.mutex:
            for page in range(at // PAGE, (at + len(data) + PAGE - 1) // PAGE):
                images.append(Image(self.content[page * PAGE:(page + 1) * PAGE]))
                self.unsynced[page].append(images[-1])
        self.content[at:at + len(data)] = data
        yield
        for image in images:
            image.is_stored = True

    def unsynced_now(self):
        """The images that a sync which begins now makes obsolete."""
        with self.mutex:
            return {page: [image for image in images if image.is_stored] for page, images in self.unsynced.items()}

    def synced(self, images, start=0, end=END):
        with self.mutex:
            for page, old in images.items():
                if start <= page * PAGE < end and page in self.unsynced:
                    left = [i for i in self.unsynced[page] if not any(i is o for o in old)]
                    if left:
                        self.unsynced[page] = left
                    else:
                        del self.unsynced[page]

    # After a kill

    def lengths(self):
        """The lengths that the operations in flight allow: least, greatest."""
        every = [len(self.content)] + [change.length for change in self.in_flight]
        return min(every), max(every)

    def settle(self, found):
        """Compares with the file that was found after a kill, and takes it as the content."""
        least, greatest = self.lengths()
        if not least <= len(found) <= greatest:
            raise Difference(f"after a kill the length is {len(found)}, not in {least}...{greatest}")
        expected, acknowledged = bytearray(self.content[:len(found)]), len(self.content)
        for change in self.in_flight:
            if len(expected) < len(found) and change.length >= len(found):
                # The end of a file that grew is a beginning of what it grew by.
                expected.extend(bytes(max(0, min(change.at, len(found)) - len(expected))))
                expected.extend(change.data[len(expected) - change.at:len(found) - change.at])
            for start, end in change.units(min(len(found), acknowledged)):
                new = change.data[start - change.at:end - change.at]
                if found[start:end] == new:
                    expected[start:end] = new
        for start in range(0, len(found), PAGE):
            if expected[start:start + PAGE] == found[start:start + PAGE]:
                continue
            for at in range(start, min(start + PAGE, len(found))):
                if expected[at] != found[at] and found[at] not in self.possible(at):
                    raise Difference(
                        "after a kill the content is neither old nor new", at, expected[at:at + 32], found[at:at + 32])
        self.content = bytearray(found)
        self.forget_in_flight()

    def possible(self, at):
        """The bytes that may be at an offset, beside the acknowledged one."""
        for image in self.unsynced.get(at // PAGE, ()):
            yield from image[at % PAGE:at % PAGE + 1]
        for change in self.in_flight:
            if change.unit == BYTE and at >= change.at:
                yield from change.data[at - change.at:at - change.at + 1]

    def forget_in_flight(self):
        self.in_flight = []
        self.unsynced.clear()

    def settle_attributes(self, found):
        allowed = [self.attributes] + ([self.attribute_in_flight] if self.attribute_in_flight is not None else [])
        if found not in allowed:
            raise Difference(f"after a kill the attributes are {found}, not one of {allowed}")
        self.attributes, self.attribute_in_flight = found, None
