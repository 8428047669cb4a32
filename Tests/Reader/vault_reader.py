#!/usr/bin/env python3
"""Reads a vault of format 1 without vaultfs: verifies every tag, name, length, link and attribute and prints what is in it.

One line per entry on standard output, tab-separated, sorted by path: kind, class, plaintext size, SHA-256 of the content
(the target, for a link; `-` for others), path. With --xattrs also `xattr`, attribute name, size, SHA-256 of the value,
path. Bytes below 0x20, 0x7f and backslashes in names are written \\xNN. Damage goes to standard error, one line each,
saying what and where, and the exit code is 1."""

import argparse
import hashlib
import os
import stat
import sys

import vault_log
from vault_format import (HEADER_SIZE, OVERHEAD, Configuration, Damage, DirectoryRecord, FileHeader, backing_size,
                          open_attribute, open_link, open_pack, plaintext_length, recovery_secret)

KINDS = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "char", stat.S_IFBLK: "block"}
PACK = b"user.vaultfs.pack"
EMPTY = hashlib.sha256().hexdigest()


def shown(path):
    return b"".join(b"\\x%02x" % c if c < 0x20 or c in (0x5c, 0x7f) else bytes([c]) for c in path)


def read_whole(path, limit=None):
    with open(path, "rb") as file:
        return file.read() if limit is None else file.read(limit)


class Reader:
    """Walks the vault at `root` (bytes). `damage` collects (path, what); `notes` what a crash may leave."""

    def __init__(self, root, options):
        self.root = root
        self.options = options
        self.lines = []
        self.damage = []
        self.notes = []
        self.backing_paths = {}
        configuration = Configuration(read_whole(os.path.join(root, b"vaultfs.json")))
        self.keys = configuration.open(*options.secret)
        self.chunk_size = self.keys.chunk_size
        if configuration.previous is not None and os.path.lexists(os.path.join(root, b"vaultfs.rekey")):
            raise Damage("vaultfs.rekey: a step of a rekey is half done")
        self.log = vault_log.Log.of_vault(root, self.keys)
        for what in self.log.damage:
            self.bad(vault_log.NAME, what)

    def run(self):
        self.directory(self.root, b"")
        # Sorted by path, an attribute after the entry it belongs to.
        self.lines.sort(key=lambda line: (line[-1], line[0] == b"xattr", line[1]))

    def bad(self, path, what):
        self.damage.append((path or b".", what))

    def emit(self, kind, protection_class, size, digest, path):
        fields = (kind, protection_class, size, digest)
        self.lines.append(tuple(f if isinstance(f, bytes) else str(f).encode() for f in fields) + (path,))

    # Directories

    def directory(self, backing, path):
        try:
            record = DirectoryRecord(read_whole(os.path.join(backing, b"vaultfs.dir"), 65), self.keys, path == b"")
        except FileNotFoundError:
            return self.bad(path, "vaultfs.dir: missing")
        except Damage as damage:
            return self.bad(path, str(damage))
        if path:
            self.emit("dir", record.protection_class, 0, "-", path)
        self.attributes(backing, record.xattr_key, path)
        entries = set(os.listdir(backing))
        for entry in sorted(entries):
            if not self.is_ours(entry, entries, path):
                self.entry(backing, entry, record, path)

    def is_ours(self, entry, entries, path):
        """True for what is not a name: vaultfs.dir and the like, sidecars, and what does not belong, which is noted."""
        if not entry.startswith(b"vaultfs."):
            return False
        if entry == b"vaultfs.dir" or (path == b"" and entry in (b"vaultfs.json", b"vaultfs.log", b"vaultfs.lock", b"vaultfs.rekey")):
            return True
        if entry.startswith(b"vaultfs.long."):
            if not entry.endswith(b".name"):
                return False
            if entry[:-5] not in entries:
                self.notes.append((path, f"sidecar without its entry: {entry.decode()}"))
            return True
        if entry.startswith(b"vaultfs.tmp."):
            self.notes.append((path, f"temporary left: {entry.decode(errors='replace')}"))
        else:
            self.bad(path, f"unknown entry {entry!r}")
        return True

    def entry(self, directory, entry, record, parent):
        backing = os.path.join(directory, entry)
        sidecar = None
        if entry.startswith(b"vaultfs.long.") and os.path.exists(backing + b".name"):
            sidecar = read_whole(backing + b".name", 4096)
        try:
            name = record.decode(entry, sidecar)
        except Damage as damage:
            return self.bad(parent, f"{damage} (entry {entry.decode(errors='replace')})")
        path = parent + b"/" + name if parent else name
        self.backing_paths[path] = backing
        found = os.lstat(backing)
        try:
            if stat.S_ISDIR(found.st_mode):
                self.directory(backing, path)
            elif stat.S_ISREG(found.st_mode):
                self.file(backing, path)
            elif stat.S_ISLNK(found.st_mode):
                protection_class, target = open_link(os.readlink(backing), self.keys)
                self.emit("link", protection_class, len(target), shown(target), path)
            else:
                self.emit(KINDS[stat.S_IFMT(found.st_mode)], "-", 0, "-", path)
        except Damage as damage:
            self.bad(path, str(damage))

    # Files

    def file(self, backing, path):
        with open(backing, "rb", buffering=1 << 18) as file:
            size = os.fstat(file.fileno()).st_size
            if size < HEADER_SIZE:
                raise Damage(f"no header: {size} bytes")
            header = FileHeader(file.read(HEADER_SIZE), self.keys)
            if self.options.require_sealed and not header.sealed:
                self.bad(path, "not sealed")
            length, digest = self.content(file, header, size, path)
        self.emit("file", header.protection_class, length, digest, path)
        self.attributes(backing, header.xattr_key, path)

    def content(self, file, header, size, path):
        """(length, SHA-256); damage is reported with its plaintext offset and the chunk left out."""
        chunk, record_size = self.chunk_size, self.chunk_size + OVERHEAD
        logged, refused = self.log.changes(header.file_id, header.seal_counter)
        if refused:
            self.bad(path, f"{refused} entries of vaultfs.log are from before its last seal: not applied")
        if logged is not None:
            length = logged.length(size, chunk)
            size = backing_size(length, chunk)
            header.sealed = header.sealed and header.length == length
            header.sparse = header.sparse or bool(logged.holes)
        laid_out = plaintext_length(size, chunk)
        if header.sealed and laid_out != header.length:
            self.bad(path, f"sealed at {header.length} bytes, the backing file holds {laid_out}")
        if header.sealed and size > backing_size(header.length, chunk):
            laid_out = min(laid_out, header.length)
        digest, length = hashlib.sha256(), 0
        count = (max(0, size - HEADER_SIZE) + record_size - 1) // record_size
        for index in range(count):
            record = file.read(record_size)
            if logged is not None:
                if logged.is_lost(index):
                    self.bad(path, f"chunk {index} at {index * chunk}: lost with its entry of vaultfs.log")
                    continue
                due = min(record_size, size - HEADER_SIZE - index * record_size)
                record = logged.record(index, record[:due].ljust(due, b"\0"))
            plain = self.chunk(header, index, record)
            if plain is None:
                if index == count - 1 and len(record) <= OVERHEAD:
                    break  # a trailing fragment counts for nothing
                if index == count - 1 and not header.sealed and self.options.allow_torn_tail:
                    self.notes.append((path, f"torn tail: chunk {index} at {index * chunk} does not verify"))
                    break
                self.bad(path, f"chunk {index} at {index * chunk}: tag does not verify")
                continue
            if header.sealed:
                plain = plain[:max(0, header.length - index * chunk)]
            digest.update(plain)
            length += len(plain)
        if header.sealed and length < header.length:
            self.bad(path, f"{length} of {header.length} bytes verify")
        return length, digest.hexdigest()

    def chunk(self, header, index, record):
        """The record's plaintext; zeros for a hole; or None."""
        if len(record) > OVERHEAD:
            if record == bytes(len(record)):
                if header.sparse:
                    return bytes(len(record) - OVERHEAD)
            else:
                plain = header.open_record(index, record)
                if plain is not None:
                    return plain
        return None

    def attributes(self, backing, key, path):
        if not self.options.xattrs:
            return
        found = {}
        # The pack comes first, because a value stored on its own takes precedence.
        names = [os.fsencode(n) for n in os.listxattr(backing, follow_symlinks=False)]
        for name in sorted(names, key=lambda name: (name != PACK, name)):
            if not name.startswith(b"user."):
                continue
            if not name.startswith(b"user.vaultfs."):
                self.bad(path, f"attribute {name!r} in the clear")
                continue
            try:
                stored = os.getxattr(backing, name, follow_symlinks=False)
                found.update(open_pack(stored, key) if name == PACK else [open_attribute(name, stored, key)])
            except Damage as damage:
                self.bad(path, str(damage))
        for plain, value in sorted(found.items()):
            self.emit("xattr", shown(plain), len(value), hashlib.sha256(value).hexdigest(), path or b".")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vault")
    secret = parser.add_mutually_exclusive_group(required=True)
    secret.add_argument("--passphrase")
    secret.add_argument("--passfile")
    secret.add_argument("--keyfile")
    secret.add_argument("--recovery-key")
    parser.add_argument("--xattrs", action="store_true", help="print user.* extended attributes too")
    parser.add_argument("--require-sealed", action="store_true", help="a file that is not sealed is damage")
    parser.add_argument("--allow-torn-tail", action="store_true",
                        help="in an unsealed file a last record that does not verify is a note, not damage")
    options = parser.parse_args()
    if options.keyfile:
        options.secret = ("keyfile", read_whole(options.keyfile))
    elif options.recovery_key:
        options.secret = ("recovery", recovery_secret(options.recovery_key))
    else:
        phrase = read_whole(options.passfile) if options.passfile else os.fsencode(options.passphrase)
        options.secret = ("passphrase", phrase[:-1] if phrase.endswith(b"\n") else phrase)
    return options


def main():
    options = arguments()
    try:
        reader = Reader(os.fsencode(options.vault), options)
        reader.run()
    except (Damage, OSError) as error:
        print(f"damage: {error}", file=sys.stderr)
        return 1
    for line in reader.lines:
        sys.stdout.buffer.write(b"\t".join(line[:-1] + (shown(line[-1]),)) + b"\n")
    for kind, list_ in [("note", reader.notes), ("damage", reader.damage)]:
        for path, what in list_:
            sys.stderr.buffer.write(f"{kind}: ".encode() + shown(path) + f": {what}\n".encode())
    return 1 if reader.damage else 0


if __name__ == "__main__":
    sys.exit(main())
