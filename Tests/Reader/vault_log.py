"""The redo log of format 1 (FileFormat, Log), read-only. Written from the format document alone, like vault_format.py.

Requirements that the code follows are named where they are met: Log-3, Log-8, Log-10, Log-11, Log-12, Log-15."""

import os
import stat
import struct

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305

from vault_format import OVERHEAD, Damage, plaintext_length

NAME = b"vaultfs.log"
LOCK_NAME = b"vaultfs.lock"
MAGIC = b"vaultfs log 1\n\0\0"
AREA = 4096
ALIGNMENT = 64
HEADER_SIZE = 64
FIELDS_SIZE = 64
TAG_SIZE = 16
HEAD_SIZE = FIELDS_SIZE + TAG_SIZE
RECORDS, LENGTH, HOLE, LOST = 1, 2, 3, 4


def aligned(offset):
    return -(-offset // ALIGNMENT) * ALIGNMENT


class Entry:
    """One entry, by its head. `body` is None if it is damaged."""

    def __init__(self, head, place):
        (self.sequence, self.file_id, self.first, self.end, self.length, self.time, state, distance,
         self.body_size) = struct.unpack("<Q8sQQQQQII", head)
        self.place = place
        self.seal_counter = state & (1 << 56) - 1
        self.kind, self.is_exact = state >> 56 & 127, bool(state >> 63)
        self.distance = distance
        self.durable = self.sequence - distance
        self.body = None

    @property
    def next_place(self):
        """The first place where the next entry may be."""
        return aligned(self.place + self.size)

    @property
    def size(self):
        return HEAD_SIZE + (self.body_size + TAG_SIZE if self.body_size else 0)

    @property
    def is_lost(self):
        """True if the entry had records that are not there any more."""
        return self.kind == LOST or self.body is None

    def is_possible(self, chunk_size, log_size):
        """True if the fields go together as the table says. Lost records were in the log."""
        if self.distance < 1 or self.length and not self.is_exact:
            return False
        if self.kind == RECORDS:
            return self.end == 0 and are_records(self.body_size, chunk_size)
        if self.body_size:
            return False
        if self.kind == LENGTH:
            return self.is_exact and self.first == self.end == 0
        if self.kind == HOLE:
            return self.first < self.end
        return self.kind == LOST and self.end <= log_size and are_records(self.end, chunk_size)

    def record_sizes(self, chunk_size):
        """[(chunk, size of its record)] of an entry of records, also lost ones."""
        whole, rest = divmod(self.body_size if self.kind == RECORDS else self.end, chunk_size + OVERHEAD)
        sizes = [chunk_size + OVERHEAD] * whole + ([rest] if rest else [])
        return [(self.first + number, size) for number, size in enumerate(sizes)]


def are_records(size, chunk_size):
    """True if adjacent records, all full but perhaps the last, can have this size."""
    rest = size % (chunk_size + OVERHEAD)
    return size > 0 and (rest == 0 or rest > OVERHEAD)


class FileChanges:
    """The changes of one file in the log: its records by chunk, None for a lost one; its holes; its exact length."""

    def __init__(self):
        self.records, self.holes, self.exact = {}, [], None
        self.lost_reach = 0

    def apply(self, entry, chunk_size):
        if entry.kind == HOLE:
            chunks = range(entry.first, entry.end)
            self.records = {c: r for c, r in self.records.items() if c not in chunks}
            self.holes.append(chunks)
        elif entry.kind != LENGTH:
            start = 0
            for chunk, size in entry.record_sizes(chunk_size):
                self.records[chunk] = None if entry.is_lost else entry.body[start:start + size]
                start += size
        if entry.is_exact:
            count = -(-entry.length // chunk_size)
            self.records = {c: r for c, r in self.records.items() if c < count}
            self.holes = [range(h.start, min(h.stop, count)) for h in self.holes if h.start < count]
            self.exact, self.lost_reach = entry.length, 0
        elif entry.is_lost:
            last, size = entry.record_sizes(chunk_size)[-1]
            self.lost_reach = max(self.lost_reach, last * chunk_size + size - OVERHEAD)

    def length(self, backing, chunk_size):
        """The file's length with these changes, over a backing file of this size."""
        length = plaintext_length(backing, chunk_size) if self.exact is None else self.exact
        ends = [c * chunk_size + len(r) - OVERHEAD for c, r in self.records.items() if r is not None]
        return max([length, self.lost_reach] + (ends if self.exact is None else []))

    def is_lost(self, chunk):
        return self.records.get(chunk, b"") is None

    def record(self, chunk, stored):
        """The record of a chunk that is not lost: the log's, zeros for a hole, or the stored one."""
        if chunk in self.records:
            return self.records[chunk]
        if any(chunk in hole for hole in self.holes):
            return bytes(len(stored))
        return stored


class Log:
    """The entries that count, by file id, and `damage`: what is wrong with the log as a whole, a line each."""

    def __init__(self, data=b"", keys=None, is_after_clean_end=False):
        self.damage = []
        self.entries = {}
        if not any(data[:HEADER_SIZE]) and len(data) <= AREA:
            return
        self.data, self.chunk_size = data, keys.chunk_size
        self.parse_header(data)
        if self.salt == 0 or len(data) <= AREA:
            return
        for self.log_key in keys.log_keys:
            if self.is_authentic(data[:48], 1 << 63 | self.start, data[48:HEADER_SIZE]):
                break
        else:
            raise Damage("its header's tag is wrong")
        found, gaps = self.search()
        if is_after_clean_end:
            # Log-12.
            if found:
                self.damage.append(f"{len(found)} entries after a clean end: not applied")
            return
        self.judge(found, gaps)

    @classmethod
    def of_vault(cls, root, keys):
        """The log of a vault. One that cannot be used is reported, and the vault is read without it (Store-31)."""
        log = cls()
        try:
            lock = read_regular(os.path.join(root, LOCK_NAME))
        except (Damage, FileNotFoundError):
            lock = b""
        try:
            return cls(read_regular(os.path.join(root, NAME)), keys, lock == b"\n")
        except FileNotFoundError:
            # Log-15, with the unclean end of Store-38.
            if lock not in (b"", b"\n"):
                log.damage.append("missing after an unclean end: it may have had entries")
        except Damage as damage:
            log.damage.append(str(damage))
        return log

    def parse_header(self, data):
        """Log-8."""
        self.size, self.salt, self.start, self.place = struct.unpack_from("<QQQQ", data.ljust(HEADER_SIZE, b"\0"), 16)
        least = max(1 << 20, 8 * (self.chunk_size + OVERHEAD))
        if len(data) < HEADER_SIZE or data[:16] != MAGIC or not least <= self.size <= 1 << 30 \
                or not AREA <= self.place <= self.size or self.place % ALIGNMENT or not 0 < self.start < 1 << 62:
            raise Damage("it does not begin with a header")
        if self.salt == 0 and (len(data) > AREA or self.start != 1 or self.place != AREA or any(data[48:HEADER_SIZE])):
            raise Damage("its header is damaged")

    # Entries

    def entry(self, place, sequence):
        """The entry with this number at a place. None if its head is not there."""
        head = self.data[place:place + HEAD_SIZE]
        if len(head) < HEAD_SIZE:
            return None
        entry = Entry(head[:FIELDS_SIZE], place)
        if entry.sequence != sequence or place + entry.size > self.size \
                or not entry.is_possible(self.chunk_size, self.size) \
                or not self.is_authentic(head[:FIELDS_SIZE], 1 << 62 | sequence, head[FIELDS_SIZE:]):
            return None
        end = place + HEAD_SIZE + entry.body_size
        body, tag = self.data[place + HEAD_SIZE:end], self.data[end:end + TAG_SIZE]
        if not entry.body_size or self.is_authentic(body, sequence, tag):
            entry.body = body
        return entry

    def is_authentic(self, message, number, tag):
        """True if the tag of a head, a body or the header is right."""
        nonce = struct.pack("<QQ", number, self.salt)
        one_time = Cipher(algorithms.AES(self.log_key[32:64]), modes.ECB()).encryptor().update(nonce)
        try:
            Poly1305.verify_tag(self.log_key[64:80] + one_time, bytes(message) + struct.pack("<Q", number), bytes(tag))
        except InvalidSignature:
            return False
        return True

    def at_its_place(self, sequence, place):
        """The next entry, at the end of the one before or at the beginning of the area."""
        return self.entry(place, sequence) or self.entry(AREA, sequence)

    # Search

    def search(self):
        """(the entries that are there, in order; the ranges of numbers between them)"""
        found, gaps, candidates = [], [], None
        sequence, place = self.start, self.place
        while True:
            entry = self.at_its_place(sequence, place)
            if entry is None:
                if candidates is None:
                    candidates = self.candidates(sequence)
                entry = self.later_entry(sequence, candidates)
                if entry is None:
                    return found, gaps
                gaps.append(range(sequence, entry.sequence))
            found.append(entry)
            sequence, place = entry.sequence + 1, entry.next_place

    def candidates(self, sequence):
        """[(number, place)] of what may be heads of later entries, by number."""
        # There is no more than one entry at each place.
        numbers = range(sequence + 1, sequence + 1 + self.size // ALIGNMENT)
        end = min(len(self.data), self.size) // ALIGNMENT * ALIGNMENT
        firsts = memoryview(self.data[:end]).cast("Q")[AREA // 8::ALIGNMENT // 8]
        return sorted((n, AREA + i * ALIGNMENT) for i, n in enumerate(firsts) if n in numbers)

    def later_entry(self, sequence, candidates):
        for number, place in candidates:
            if number > sequence:
                entry = self.entry(place, number)
                if entry is not None:
                    return entry
        return None

    # Judgement

    def judge(self, found, gaps):
        """Log-3 and Log-10: ends at the torn tail. What is missing or torn before it was durable, and so it is damage."""
        durable = max((entry.durable for entry in found), default=0)
        not_there = [number for numbers in gaps for number in numbers]
        not_there += [entry.sequence for entry in found if entry.body is None]
        tail = min((number for number in not_there if number > durable), default=1 << 62)
        count = sum(1 for number in not_there if number < tail)
        if count:
            self.damage.append(f"{count} entries of it cannot be read")
        for entry in found:
            if entry.sequence < tail:
                self.entries.setdefault(entry.file_id, []).append(entry)

    def changes(self, file_id, seal_counter):
        """(the changes of the file whose header has this counter, or None; the number of entries that it refuses)"""
        entries = self.entries.get(file_id, [])
        # Log-11. A later entry shows that the file was sealed since, as its header does.
        state = max([seal_counter] + [e.seal_counter for e in entries])
        refused = [e for e in entries if e.seal_counter < state]
        changes = FileChanges() if len(refused) < len(entries) else None
        for entry in entries:
            if entry.seal_counter == state:
                changes.apply(entry, self.chunk_size)
        return changes, len(refused)


def read_regular(path):
    """The bytes of a regular file with one name, or Damage."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise Damage("it is not a regular file with one name")
    with open(path, "rb") as file:
        return file.read()
