"""The contents that a file may have after a power cut."""

CHUNK = 4096
SECTOR = 512


class FileModel:
    """Every version of each chunk, and every length, since the last acknowledged fsync, that one first."""

    def __init__(self):
        self.chunks, self.sizes = [], [0]
        self.durable = self.removed = False

    def write(self, offset, data):
        end = offset + len(data)
        self._grow(end)
        for number in range(offset // CHUNK, (end - 1) // CHUNK + 1):
            start = number * CHUNK
            part = data[max(0, start - offset):start + CHUNK - offset]
            at = max(0, offset - start)
            old = self.chunks[number][-1]
            self.chunks[number].append(old[:at].ljust(at, b"\0") + part + old[at + len(part):])
        self.sizes.append(max(end, self.sizes[-1]))

    def truncate(self, size):
        for number, versions in enumerate(self.chunks):
            kept = max(0, size - number * CHUNK)
            if kept < len(versions[-1]):
                versions.append(versions[-1][:kept])
        self.sizes.append(size)

    def fsync(self):
        self.chunks = [versions[-1:] for versions in self.chunks]
        self.sizes = self.sizes[-1:]
        self.durable = True

    def _grow(self, size):
        while len(self.chunks) * CHUNK < size:
            self.chunks.append([b""])

    def differences(self, size, read, plain):
        """The faults of the file. `read` returns a chunk by its number, None after an error. A plain file system may
        tear a chunk that is not durable, and end the file anywhere."""
        if not min(self.sizes) <= size <= max(self.sizes):
            yield f"the length is {'less' if size < min(self.sizes) else 'more'} than any it had since its fsync"
        elif size not in self.sizes and size % CHUNK and not plain:
            yield "the length is neither one it had nor whole records"
        found = set()
        for number, versions in enumerate(self.chunks):
            chunk = read(number)
            if chunk is None or not chunk_allowed(chunk, versions, plain):
                state = ("a new chunk" if not versions[0] or not self.durable else
                         "a fsynced chunk" if len(versions) == 1 else "a chunk overwritten after its fsync")
                found.add(f"{state} {'cannot be read' if chunk is None else 'has bytes that were never written'}")
        yield from sorted(found)


def chunk_allowed(found, versions, plain):
    if any(version[:len(found)].ljust(len(found), b"\0") == found for version in versions):
        return True
    return plain and len(versions) > 1 and all(
        start + SECTOR > len(versions[0]) or any(
            version[start:start + SECTOR].ljust(SECTOR, b"\0")[:len(found) - start] == found[start:start + SECTOR]
            for version in versions)
        for start in range(0, len(found), SECTOR))
