#!/usr/bin/env python3
"""Tests of the reader's log. They make vaults and logs themselves, from the format document, and need no vaultfs.

    python3 -m unittest discover -s Tests/Reader"""

import hashlib
import hmac
import json
import os
import random
import struct
import tempfile
import unittest
from types import SimpleNamespace

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305

import vault_log
from vault_format import OVERHEAD, Configuration, DirectoryRecord, b64u, hkdf, siv_seal
from vault_reader import Reader

CHUNK = 4096
RECORD = CHUNK + OVERHEAD
SECRET = b"k" * 32
NOTE = b"1 00000000-0000-0000-0000-000000000000 1 here 1 1\n"


def one_time(key, nonce):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(nonce)


class TinyFile:
    """A file of the vault: its keys and its header's state."""

    def __init__(self, vault, name, number):
        self.vault, self.path = vault, os.path.join(vault.root, vault.record.encode(name)[0])
        self.file_id = struct.pack("<Q", number)
        self.secret = hashlib.sha256(name).digest()
        derived = hkdf(self.secret, vault.id, "vaultfs 1 file", 176)
        self.cipher_key, self.mac_key, self.mac_r, self.state_key = \
            derived[:32], derived[32:64], derived[64:80], derived[80:112]

    def write(self, chunks, is_sealed=True, seal_counter=1):
        """Writes the backing file, with these plaintexts as its chunks."""
        start = b"VFSF" + bytes([1, 1, 0, 0]) + self.file_id
        wrap = siv_seal(self.vault.class_key, [start], self.secret)
        length = sum(map(len, chunks)) if is_sealed else 0
        head = start + wrap + bytes(32) + struct.pack("<QQ", length, seal_counter << 8 | is_sealed)
        state = hmac.digest(self.state_key, head, "sha256")[:16]
        with open(self.path, "wb") as file:
            file.write(head + state + b"".join(self.record(i, c) for i, c in enumerate(chunks)))

    def record(self, index, plaintext):
        iv = hashlib.sha256(b"%d" % index + plaintext).digest()[:16]
        whole = len(plaintext) // 16 * 16
        body = Cipher(algorithms.AES(self.cipher_key), modes.CBC(iv)).encryptor().update(plaintext[:whole])
        if len(plaintext) > whole:
            mask = one_time(self.cipher_key, body[-16:] or iv)
            body += bytes(a ^ b for a, b in zip(plaintext[whole:], mask))
        tag = Poly1305.generate_tag(self.mac_r + one_time(self.mac_key, iv), body + struct.pack("<Q", index))
        return iv + body + tag


class TinyVault:
    """A vault with a keyfile slot, in a temporary directory."""

    def __init__(self, test):
        directory = tempfile.TemporaryDirectory()
        test.addCleanup(directory.cleanup)
        self.root = os.fsencode(directory.name)
        self.id, master, salt = bytes(range(16)), bytes(32), bytes(32)
        head = f"vaultfs 1\nvault {self.id.hex()}\nchunk {CHUNK}\nfeatures -\n"
        sealed = b64u(siv_seal(hkdf(SECRET, salt, "vaultfs 1 kek", 64), [f"{head}slot 1 keyfile -\n".encode()],
                               master)).decode()
        created, salt = "2026-01-01T00:00:00Z", b64u(salt).decode()
        text = f"{head}generation 1\nslot 1 keyfile - {created} - hkdf-sha256,{salt} {sealed}\n".encode()
        mac = hmac.digest(hkdf(master, self.id, "vaultfs 1 config", 32), text, "sha256")
        slot = {"id": 1, "kind": "keyfile", "label": "", "created": created, "expires": None,
                "kdf": {"name": "hkdf-sha256", "salt": salt}, "sealed": sealed}
        configuration = json.dumps({
            "format": "vaultfs", "version": 1, "vault": self.id.hex(), "chunkSize": CHUNK, "features": [],
            "generation": 1, "slots": [slot], "mac": b64u(mac).decode()}).encode()
        self.put("vaultfs.json", configuration)
        self.keys = Configuration(configuration).open("keyfile", SECRET)
        self.class_key, self.log_key = self.keys.of_class[0][1], self.keys.log_keys[0]
        start = b"VFSD" + bytes([1, 1, 1, 0]) + bytes(8)
        record = start + siv_seal(self.class_key, [start], b"d" * 32)
        self.put("vaultfs.dir", record)
        self.record = DirectoryRecord(record, self.keys, True)
        self.put("vaultfs.lock", NOTE)

    def put(self, name, data):
        with open(os.path.join(self.root, os.fsencode(name)), "wb") as file:
            file.write(data)

    def read(self):
        """({name: SHA-256 of its content}, the damage as text)"""
        options = SimpleNamespace(secret=("keyfile", SECRET), xattrs=False, require_sealed=False, allow_torn_tail=False)
        reader = Reader(self.root, options)
        reader.run()
        damage = [f"{path.decode()}: {what}" for path, what in reader.damage]
        return {line[-1]: line[3] for line in reader.lines}, damage


class TinyLog:
    """Writes a log, entry by entry."""

    def __init__(self, vault, start=1, offset=4096, size=1 << 20):
        self.vault, self.size, self.sequence, self.offset = vault, size, start, offset
        header = vault_log.MAGIC + struct.pack("<QQQQ", size, 77, start, offset)
        header += self.tag(header, 1 << 63 | start)
        self.data = bytearray(header.ljust(vault_log.AREA, b"\0"))
        self.places = {}

    def add(self, file, kind=1, first=0, records=(), end=0, exact=None, seal_counter=1, distance=1, valid=True):
        """Appends an entry. Returns its number."""
        body = b"".join(records)
        if self.offset + 80 + (len(body) + 16 if body else 0) > self.size:
            self.offset = 4096
        head = struct.pack("<Q8sQQQQ", self.sequence, file.file_id, first, end, exact or 0, 10**18)
        head += seal_counter.to_bytes(7, "little") + bytes([kind | (128 if exact is not None else 0)])
        head += struct.pack("<II", distance, len(body))
        entry = head + (self.tag(head, 1 << 62 | self.sequence) if valid else bytes(16))
        if body:
            entry += body + self.tag(body, self.sequence)
        self.data += bytes(max(0, self.offset + len(entry) - len(self.data)))
        self.data[self.offset:self.offset + len(entry)] = entry
        self.places[self.sequence] = self.offset
        self.offset = vault_log.aligned(self.offset + len(entry))
        self.sequence += 1
        return self.sequence - 1

    def tag(self, message, number):
        key = one_time(self.vault.log_key[32:64], struct.pack("<QQ", number, 77))
        return Poly1305.generate_tag(self.vault.log_key[64:80] + key, message + struct.pack("<Q", number))

    def flip(self, number, at):
        """Changes a byte of an entry."""
        self.data[self.places[number] + at] ^= 1

    def save(self):
        self.vault.put("vaultfs.log", bytes(self.data))


HEAD, BODY = 0, 100


class LogTests(unittest.TestCase):
    def setUp(self):
        self.vault = TinyVault(self)
        self.chunks = [bytes([65 + i]) * CHUNK for i in range(3)]
        self.files = {}
        for number, name in enumerate([b"a", b"b"], 1):
            self.files[name] = TinyFile(self.vault, name, number)
            self.files[name].write(self.chunks)
        self.a, self.b = self.files[b"a"], self.files[b"b"]
        self.log = TinyLog(self.vault)

    def change(self, file, chunk, text, **fields):
        """Adds an entry that overwrites a chunk."""
        return self.log.add(file, first=chunk, records=[file.record(chunk, text * CHUNK)], **fields)

    def expect(self, damage=(), **chunks):
        """Expects these chunks in the files, others as they were; None is left out. `damage`: how each line begins."""
        self.log.save()
        found, lines = self.vault.read()
        lines.sort()
        for name, file in self.files.items():
            plain = list(self.chunks)
            for chunk, text in chunks.get(name.decode(), {}).items():
                plain[chunk] = text * CHUNK if text else b""
            self.assertEqual(found.get(name), hashlib.sha256(b"".join(plain)).hexdigest().encode(), (name, lines))
        self.assertEqual(len(lines), len(damage), lines)
        for line, words in zip(lines, sorted(damage)):
            self.assertTrue(line.startswith(words), line)

    def test_good(self):
        self.change(self.a, 1, b"x")
        self.change(self.b, 0, b"y")
        self.change(self.a, 1, b"z")
        self.log.add(self.b, kind=2, exact=2 * CHUNK)
        self.expect(a={1: b"z"}, b={0: b"y", 2: None})

    def test_no_entries(self):
        self.expect()
        self.log.data = bytearray()
        self.expect()

    def test_torn(self):
        self.change(self.a, 0, b"x")
        self.log.flip(self.change(self.a, 1, b"y"), BODY)
        self.expect(a={0: b"x"})

    def test_torn_with_later_entries(self):
        """Log-3: entries after the torn one do not count, if none of them knows that it was durable."""
        self.change(self.a, 0, b"x")
        self.log.flip(self.change(self.a, 1, b"y"), BODY)
        self.change(self.b, 0, b"z", distance=2)
        self.expect(a={0: b"x"})

    def test_damaged_body(self):
        self.change(self.a, 0, b"x")
        self.log.flip(self.change(self.a, 1, b"y"), BODY)
        self.change(self.b, 0, b"z")
        self.expect(["vaultfs.log: 1 entries", "a: chunk 1 at 4096: lost", "a: 8192 of 12288"], a={0: b"x", 1: None},
                    b={0: b"z"})

    def test_damaged_head(self):
        """A later entry is found by a search. The file of the lost one is unknown."""
        self.change(self.a, 0, b"x")
        self.log.flip(self.change(self.a, 1, b"y"), HEAD)
        self.change(self.b, 0, b"z")
        self.expect(["vaultfs.log: 1 entries"], a={0: b"x"}, b={0: b"z"})

    def test_damaged_beside_torn(self):
        """The last entry knows that the second was durable, and not the fourth."""
        self.change(self.a, 0, b"x")
        self.log.flip(self.change(self.a, 1, b"y"), BODY)
        self.change(self.a, 2, b"z", distance=3)
        self.log.flip(self.change(self.b, 0, b"x", distance=4), BODY)
        self.change(self.b, 1, b"y", distance=3)
        self.expect(["vaultfs.log: 1 entries", "a: chunk 1", "a: 8192 of"], a={0: b"x", 1: None, 2: b"z"})

    def test_two_damaged(self):
        """Two entries in a row are lost. Their heads lead to the one after them."""
        self.log.flip(self.change(self.a, 0, b"x"), BODY)
        self.log.flip(self.change(self.b, 1, b"y"), BODY)
        self.change(self.b, 0, b"z")
        self.expect(["vaultfs.log: 2 entries", "a: chunk 0", "a: 8192 of", "b: chunk 1", "b: 8192 of"], a={0: None},
                    b={0: b"z", 1: None})

    def test_damaged_then_written_again(self):
        self.log.flip(self.change(self.a, 1, b"y"), BODY)
        self.change(self.a, 1, b"z")
        self.expect(["vaultfs.log: 1 entries"], a={1: b"z"})

    def test_changed_length(self):
        """A head is authenticated on its own: a length that somebody has changed in it cuts no file."""
        number = self.log.add(self.a, first=1, records=[self.a.record(1, b"y" * CHUNK)], exact=3 * CHUNK)
        self.log.flip(number, 32 + 1)
        self.log.flip(number, BODY)
        self.change(self.b, 0, b"z")
        self.expect(["vaultfs.log: 1 entries"], b={0: b"z"})

    def test_damaged_cut(self):
        """The head of an entry whose body is damaged still gives the length."""
        self.log.flip(self.log.add(self.a, first=1, records=[self.a.record(1, b"y" * 100)], exact=CHUNK + 100), BODY)
        self.change(self.b, 0, b"z")
        self.expect(["vaultfs.log: 1 entries", "a: chunk 1"], a={1: None, 2: None}, b={0: b"z"})

    def test_lost(self):
        """Kind 4: an entry of records that could not be read again."""
        self.log.add(self.a, kind=4, first=2, end=RECORD)
        self.expect(["a: chunk 2 at 8192: lost", "a: 8192 of"], a={2: None})

    def test_lost_behind_the_end(self):
        self.log.add(self.a, kind=4, first=3, end=100 + OVERHEAD)
        self.expect(["a: chunk 3 at 12288: lost"])

    def test_wrong_fields(self):
        """An entry that the format does not allow ends the log like one with a wrong tag, although its tag is right."""
        self.change(self.a, 0, b"x")
        for fields in [{"kind": 5}, {"kind": 0}, {"kind": 2}, {"kind": 3, "first": 2, "end": 2}, {"kind": 4, "end": 20},
                       {"kind": 1, "records": [b"r" * 20]}, {"kind": 1, "records": [b"r" * 50], "distance": 0}]:
            log, self.log = self.log, TinyLog(self.vault)
            self.log.data, self.log.offset, self.log.sequence = bytearray(log.data), log.offset, log.sequence
            self.log.add(self.a, **fields)
            self.expect(a={0: b"x"})
            self.log = log

    def test_wrapped(self):
        """An entry that does not fit below the maximum size is at the beginning."""
        self.log = TinyLog(self.vault, start=9, offset=(1 << 20) - 4288)
        self.change(self.a, 0, b"x")
        self.change(self.a, 1, b"y")
        self.assertEqual(self.log.places[10], 4096)
        self.expect(a={0: b"x", 1: b"y"})
        self.log.flip(9, BODY)
        self.expect(["vaultfs.log: 1 entries", "a: chunk 0", "a: 8192 of"], a={0: None, 1: b"y"})

    def test_sealed_since(self):
        """Log-11: entries of an earlier state of the file are refused, as damage of the file."""
        self.a.write(self.chunks, seal_counter=2)
        self.change(self.a, 0, b"x")
        self.change(self.b, 0, b"y")
        self.expect(["a: 1 entries of vaultfs.log are from before its last seal"], b={0: b"y"})

    def test_older_header(self):
        """Log-11: a power cut took the header. A later entry's counter counts, also for the entries before it."""
        self.change(self.a, 0, b"x", seal_counter=2)
        self.expect(a={0: b"x"})
        self.change(self.a, 1, b"y", seal_counter=3)
        self.expect(["a: 1 entries of vaultfs.log"], a={1: b"y"})

    def test_clean_end(self):
        """Log-12: they may have been put there."""
        self.change(self.a, 0, b"x")
        self.vault.put("vaultfs.lock", b"\n")
        self.expect(["vaultfs.log: 1 entries after a clean end"])
        self.vault.put("vaultfs.lock", b"")
        self.expect(a={0: b"x"})

    def test_absent(self):
        """Log-15."""
        for lock, damage in [(NOTE, 1), (b"incomplete\n", 1), (b"\n", 0), (b"", 0)]:
            self.vault.put("vaultfs.lock", lock)
            lines = self.vault.read()[1]
            self.assertEqual(len(lines), damage, lines)
        os.unlink(os.path.join(self.vault.root, b"vaultfs.lock"))
        self.assertEqual(self.vault.read()[1], [])

    def test_no_log(self):
        """Log-8, Store-31: it is reported, and the vault is read without it."""
        self.change(self.a, 0, b"x")
        for data in [b"text", self.log.data[:63], b"V" + self.log.data[1:]]:
            log, self.log.data = self.log.data, data
            self.expect(["vaultfs.log: it does not begin with a header"])
            self.log.data = log
        # A byte of the salt, of the start, of the tag.
        for at in [24, 33, 50]:
            self.log.data[at] ^= 1
            self.expect(["vaultfs.log: its header's tag is wrong"])
            self.log.data[at] ^= 1
        header, self.log.data[:64] = self.log.data[:64], bytes(64)
        self.expect(["vaultfs.log: it does not begin with a header"])
        self.log.data[:64] = header
        path = os.path.join(self.vault.root, b"vaultfs.log")
        self.log.save()
        os.link(path, os.path.join(self.vault.root, b"vaultfs.tmp.1"))
        self.assertIn("not a regular file with one name", self.vault.read()[1][0])
        os.unlink(path)
        os.mkfifo(path)
        self.assertIn("not a regular file with one name", self.vault.read()[1][0])

    def test_every_byte(self):
        """A changed byte of an entry that was durable is always reported."""
        number = self.change(self.a, 1, b"y")
        self.change(self.b, 0, b"z")
        end = vault_log.HEAD_SIZE + RECORD + vault_log.TAG_SIZE
        for at in list(range(vault_log.HEAD_SIZE)) + list(range(vault_log.HEAD_SIZE, end, 97)) + [end - 1]:
            self.log.flip(number, at)
            self.log.save()
            found, lines = self.vault.read()
            self.assertIn("vaultfs.log: 1 entries of it cannot be read", lines, at)
            self.log.flip(number, at)

    def test_arbitrary(self):
        """Conventions-5: the outcome is a value or damage."""
        generator = random.Random(1)
        for _ in range(200):
            log = TinyLog(self.vault)
            log.add(self.a, records=[self.a.record(0, b"x" * CHUNK)])
            log.add(self.b, kind=3, end=2)
            for _ in range(generator.randrange(1, 20)):
                at = generator.choice([range(16, 64), range(4096, len(log.data))])
                log.data[generator.choice(at)] = generator.randrange(256)
            self.vault.put("vaultfs.log", bytes(log.data[:generator.randrange(64, len(log.data) + 1)]))
            self.vault.read()


if __name__ == "__main__":
    unittest.main()
