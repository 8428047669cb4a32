#!/usr/bin/env python3
"""Tests of the reader. They make vaults and logs themselves, from the format document, and need no vaultfs.

    python3 -m unittest discover -s Reader"""

import contextlib
import hashlib
import hmac
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile
import types
import unittest
import unittest.mock

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.poly1305 import Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import vaultfs_reader
from vaultfs_reader import (DAMAGE, FAILURE, INCOMPLETE, IN_USE, NOT_A_VAULT, OVERHEAD, USAGE, WRONG_SECRET,
                            Configuration, Damage, DirectoryRecord, Failure, FileHeader, TargetNames, b64u, copy_name,
                            hkdf, original_name, siv_seal, twins)

CHUNK = 4096
RECORD = CHUNK + OVERHEAD
SECRET = b"k" * 32
NOTE = b"1 00000000-0000-0000-0000-000000000000 1 here 1 1\n"
VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Tests", "Support", "Vectors")
ADDITIONS = [b".sync-conflict-20261124-101010-ABCDEFG", b" (conflicted copy 2026-11-24 101010)", b".conflict1", b"~"]


def one_time(key, nonce):
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(nonce)


def run(*arguments):
    """(exit code, standard output, standard error) of the program."""
    output, errors = io.BytesIO(), io.StringIO()
    stdout = io.TextIOWrapper(output)
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(errors):
        try:
            code = vaultfs_reader.main([os.fsdecode(a) for a in arguments])
        except SystemExit as end:
            code = end.code
        stdout.flush()
    return code, output.getvalue(), errors.getvalue()


def read_whole(path):
    with open(path, "rb") as file:
        return file.read()


def write_whole(path, data):
    with open(path, "wb") as file:
        file.write(data)


def x25519_public(private):
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


class Sender:
    """The keys of one epoch with which a locked daemon wraps the secrets of new files (Inbox)."""

    def __init__(self, master, vault_id):
        self.vault_id = vault_id
        keys = hkdf(hkdf(master, vault_id, "vaultfs 1 class 2", 64), vault_id, "vaultfs 1 inbox", 64)
        self.inbox_public, self.sender_key = x25519_public(keys[:32]), keys[32:]

    def shared(self, ephemeral):
        inbox = X25519PublicKey.from_public_bytes(self.inbox_public)
        return X25519PrivateKey.from_private_bytes(ephemeral).exchange(inbox)

    def wrap_key(self, secret, public):
        """The wrap key: the secret is the shared secret and the sender key."""
        return hkdf(secret, self.vault_id, "vaultfs 1 inbox wrap", 64, public + self.inbox_public)

    def wrap(self, ephemeral):
        """(wrap key, ephemeral public key) of an ephemeral private key."""
        public = x25519_public(ephemeral)
        return self.wrap_key(self.shared(ephemeral) + self.sender_key, public), public


def header_bytes(start, key, public, secret, vault_id, length=0, state=0):
    """A file header that authenticates: its first 16 bytes, the key of the wrap, bytes 64 to 95, the file secret."""
    head = start + siv_seal(key, [start], secret) + public + struct.pack("<QQ", length, state)
    state_key = hkdf(secret, vault_id, "vaultfs 1 file", 176)[80:112]
    return head + hmac.digest(state_key, head, "sha256")[:16]


class TinyFile:
    """A file of the vault: its keys and its header's state."""

    def __init__(self, vault, name, number, folder=None):
        folder = folder or vault
        self.vault = vault
        entry, blob = folder.record.encode(name)
        self.path = os.path.join(folder.root, entry)
        if blob:
            write_whole(self.path + b".name", blob)
        self.file_id = struct.pack("<Q", number)
        self.secret = hashlib.sha256(name).digest()
        derived = hkdf(self.secret, vault.id, "vaultfs 1 file", 176)
        self.cipher_key, self.mac_key, self.mac_r = derived[:32], derived[32:64], derived[64:80]

    def write(self, chunks, is_sealed=True, seal_counter=1, is_sparse=False, durable=0, epoch=0, ephemeral=None):
        """Writes the backing file, with these plaintexts as its chunks; None is a hole. With an ephemeral private key
        the file has wrap 1 and class 2."""
        start, key, public = b"VFSF" + bytes([1, 1, 0, epoch]), self.vault.keys.of_class[epoch][1], bytes(32)
        if ephemeral:
            start = b"VFSF" + bytes([1, 2, 1, epoch])
            key, public = Sender(self.vault.masters[epoch], self.vault.id).wrap(ephemeral)
        length = sum(CHUNK if c is None else len(c) for c in chunks) if is_sealed else durable
        head = header_bytes(start + self.file_id, key, public, self.secret, self.vault.id, length,
                            seal_counter << 8 | is_sparse << 1 | is_sealed)
        write_whole(self.path, head + b"".join(self.record(i, c) for i, c in enumerate(chunks)))

    def record(self, index, plaintext):
        if plaintext is None:
            return bytes(RECORD)
        iv = hashlib.sha256(b"%d" % index + plaintext).digest()[:16]
        whole = len(plaintext) // 16 * 16
        body = Cipher(algorithms.AES(self.cipher_key), modes.CBC(iv)).encryptor().update(plaintext[:whole])
        if len(plaintext) > whole:
            mask = one_time(self.cipher_key, body[-16:] or iv)
            body += bytes(a ^ b for a, b in zip(plaintext[whole:], mask))
        tag = Poly1305.generate_tag(self.mac_r + one_time(self.mac_key, iv), body + struct.pack("<Q", index))
        return iv + body + tag

    def flip(self, at):
        """Changes a byte of the backing file."""
        data = bytearray(read_whole(self.path))
        data[at] ^= 1
        write_whole(self.path, data)


class TinyFolder:
    """A directory of the vault."""

    def __init__(self, vault, root, is_root=False, protection_class=1):
        self.root = root
        start = b"VFSD" + bytes([1, protection_class, 1 if is_root else 0, 0]) + bytes(8)
        data = start + siv_seal(vault.keys.of_class[0][protection_class], [start], hashlib.sha256(root).digest())
        write_whole(os.path.join(root, b"vaultfs.dir"), data)
        self.record = DirectoryRecord(data, vault.keys, is_root)


class TinyVault:
    """A vault with a keyfile slot, in a temporary directory. `slots`: changes of its members, one dictionary a slot.
    With the feature `epochs` it is in the middle of its first rekey. `masters`: the master keys by epoch."""

    def __init__(self, test, slots=({},), features=()):
        directory = tempfile.TemporaryDirectory()
        test.addCleanup(directory.cleanup)
        self.root = os.fsencode(os.path.join(directory.name, "vault"))
        os.mkdir(self.root)
        self.out = os.path.join(directory.name, "out")
        self.keyfile = os.path.join(directory.name, "keyfile")
        write_whole(self.keyfile, SECRET)
        self.id, self.master = bytes(range(16)), bytes(32)
        self.masters = [b"p" * 32, self.master] if "epochs" in features else [self.master]
        self.configuration = self.configured(slots, features)
        self.put("vaultfs.json", self.configuration)
        self.keys = vaultfs_reader.Keys(Configuration(self.configuration), self.master)
        self.log_key = self.keys.log_keys[0]
        self.record = TinyFolder(self, self.root, True).record
        self.put("vaultfs.lock", NOTE)

    def configured(self, slots, features):
        """A vaultfs.json with slots that the keyfile opens."""
        head = f"vaultfs 1\nvault {self.id.hex()}\nchunk {CHUNK}\nfeatures "
        sealing_head = f"{head}{'epochs' if 'epochs' in features else '-'}\n"
        text, made, epochs = f"{head}{','.join(features) or '-'}\ngeneration 1\n", [], {}
        if "epochs" in features:
            key = hkdf(self.master, self.id, "vaultfs 1 previous", 64)
            previous = b64u(siv_seal(key, [f"{sealing_head}previous 0\n".encode()], self.masters[0])).decode()
            epochs = {"epoch": 1, "previous": previous}
            text += f"epoch 1\nprevious {previous}\n"
        for number, changes in enumerate(slots, 1):
            slot = {"id": number, "kind": "keyfile", "label": "", "created": "2026-01-01T00:00:00Z", "expires": None,
                    "kdf": {"name": "hkdf-sha256", "salt": b64u(bytes(32)).decode()}, **changes}
            line = f"slot {number} {slot['kind']} {slot['expires'] or '-'}"
            key = hkdf(SECRET, bytes(32), "vaultfs 1 kek", 64)
            slot["sealed"] = b64u(siv_seal(key, [f"{sealing_head}{line}\n".encode()], self.master)).decode()
            w = slot.get("window")
            window = f" window {w['seconds']},{w['started'] or '-'},{w['seen'] or '-'}" if w else ""
            text += f"{line} {slot['created']} - hkdf-sha256,{slot['kdf']['salt']} {slot['sealed']}{window}\n"
            made.append(slot)
        mac = hmac.digest(hkdf(self.master, self.id, "vaultfs 1 config", 32), text.encode(), "sha256")
        return json.dumps({
            "format": "vaultfs", "version": 1, "vault": self.id.hex(), "chunkSize": CHUNK, "features": list(features),
            "generation": 1, "slots": made, "mac": b64u(mac).decode(), **epochs}).encode()

    def put(self, name, data):
        write_whole(os.path.join(self.root, os.fsencode(name)), data)

    def clean(self):
        """Marks the vault as cleanly unmounted."""
        self.put("vaultfs.lock", b"\n")
        self.put("vaultfs.log", b"")

    def file(self, name, number, chunks, folder=None, **state):
        made = TinyFile(self, name, number, folder)
        made.write(chunks, **state)
        return made

    def folder(self, name, parent=None, protection_class=1):
        parent = parent or self
        entry, blob = parent.record.encode(name)
        path = os.path.join(parent.root, entry)
        if blob:
            write_whole(path + b".name", blob)
        os.mkdir(path)
        return TinyFolder(self, path, protection_class=protection_class)

    def link(self, name, target, protection_class=1):
        nonce = hashlib.sha256(name).digest()[:16]
        key = hkdf(self.master, self.id, f"vaultfs 1 links {protection_class}", 64)
        stored = b"%d" % protection_class + b64u(nonce + siv_seal(key, [b"link", nonce], target))
        os.symlink(stored, os.path.join(self.root, self.record.encode(name)[0]))

    def run(self, *arguments):
        return run(self.root, "--keyfile", self.keyfile, *arguments)

    def read(self):
        """({path: SHA-256 of its content}, the damage as text, in lines)"""
        code, output, errors = self.run("--digests", "--no-lock")
        lines = [line.split(b"\t") for line in output.splitlines()]
        damage = [line[len("vaultfs-reader: "):] for line in errors.splitlines() if ": note: " not in line]
        assert code == (DAMAGE if damage else 0), (code, errors)
        return {line[-1]: line[3] for line in lines}, damage

    def extract(self, *arguments):
        return self.run("--all", self.out, *arguments)

    def extracted(self, path):
        return read_whole(os.path.join(os.fsencode(self.out), path))


class TinyLog:
    """Writes a log, entry by entry."""

    def __init__(self, vault, start=1, offset=4096, size=1 << 20):
        self.vault, self.size, self.sequence, self.offset = vault, size, start, offset
        header = vaultfs_reader.LOG_MAGIC + struct.pack("<QQQQ", size, 77, start, offset)
        header += self.tag(header, 1 << 63 | start)
        self.data = bytearray(header.ljust(vaultfs_reader.LOG_AREA, b"\0"))
        self.places = {}

    def add(self, file, kind=1, first=0, records=(), end=0, exact=None, seal_counter=1, distance=1, valid=True,
            time=10**18):
        """Appends an entry. Returns its number."""
        body = b"".join(records)
        if self.offset + 80 + (len(body) + 16 if body else 0) > self.size:
            self.offset = 4096
        head = struct.pack("<Q8sQQQQ", self.sequence, file.file_id, first, end, exact or 0, time)
        head += seal_counter.to_bytes(7, "little") + bytes([kind | (128 if exact is not None else 0)])
        head += struct.pack("<II", distance, len(body))
        entry = head + (self.tag(head, 1 << 62 | self.sequence) if valid else bytes(16))
        if body:
            entry += body + self.tag(body, self.sequence)
        self.data += bytes(max(0, self.offset + len(entry) - len(self.data)))
        self.data[self.offset:self.offset + len(entry)] = entry
        self.places[self.sequence] = self.offset
        self.offset = vaultfs_reader.aligned(self.offset + len(entry))
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
        self.expect(["vaultfs.log: 1 entries", "a: chunk 1 at 4096: lost"], a={0: b"x", 1: None},
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
        self.expect(["vaultfs.log: 1 entries", "a: chunk 1"], a={0: b"x", 1: None, 2: b"z"})

    def test_two_damaged(self):
        """Two entries in a row are lost. Their heads lead to the one after them."""
        self.log.flip(self.change(self.a, 0, b"x"), BODY)
        self.log.flip(self.change(self.b, 1, b"y"), BODY)
        self.change(self.b, 0, b"z")
        self.expect(["vaultfs.log: 2 entries", "a: chunk 0", "b: chunk 1"], a={0: None},
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
        self.expect(["a: chunk 2 at 8192: lost"], a={2: None})

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
        self.expect(["vaultfs.log: 1 entries", "a: chunk 0"], a={0: None, 1: b"y"})

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
        self.assertIn("not a regular file", self.vault.read()[1][0])

    def test_hole(self):
        """A log that is a hole of several gigabytes after its entries is read like any other."""
        self.change(self.a, 0, b"x")
        self.log.flip(self.change(self.a, 1, b"y"), HEAD)
        self.log.save()
        os.truncate(os.path.join(self.vault.root, b"vaultfs.log"), 5 << 30)
        found, lines = self.vault.read()
        self.assertEqual(lines, [])
        expected = b"x" * CHUNK + self.chunks[1] + self.chunks[2]
        self.assertEqual(found[b"a"], hashlib.sha256(expected).hexdigest().encode())

    def test_gaps(self):
        """Two of three missing entries were not durable, so they and what follows them are the torn tail."""
        self.change(self.a, 0, b"x")
        for chunk in range(3):
            self.log.flip(self.change(self.b, chunk, b"y"), HEAD)
        self.change(self.a, 1, b"z", distance=3)
        self.expect(["vaultfs.log: 1 entries"], a={0: b"x"})

    def test_every_byte(self):
        """A changed byte of an entry that was durable is always reported."""
        number = self.change(self.a, 1, b"y")
        self.change(self.b, 0, b"z")
        end = vaultfs_reader.LOG_HEAD + RECORD + vaultfs_reader.TAG_SIZE
        for at in list(range(vaultfs_reader.LOG_HEAD)) + list(range(vaultfs_reader.LOG_HEAD, end, 97)) + [end - 1]:
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


class ForeignCopyTests(unittest.TestCase):
    """A file is its name and its id: the log's entries are for files whose names authenticate (Names-3, Log-5), and for
    a conflict copy if it is the only file with their id (Store-40)."""

    def setUp(self):
        self.vault = TinyVault(self)
        self.folder = self.vault.folder(b"dir")
        self.old, self.new = b"x" * CHUNK + b"y" * CHUNK, b"z" * CHUNK + b"y" * CHUNK
        self.file = self.vault.file(b"f", 1, [b"x" * CHUNK, b"y" * CHUNK], is_sealed=False)
        self.entry = os.path.basename(self.file.path)

    def save_log(self, file=None, time=10**18):
        file = file or self.file
        log = TinyLog(self.vault)
        log.add(file, first=0, records=[file.record(0, b"z" * CHUNK)], time=time)
        log.save()

    def copy(self, path):
        """A copy of the backing file under another name below the vault's directory."""
        path = os.path.join(self.vault.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy2(self.file.path, path)
        return path

    def test_foreign(self):
        """Under any other name, before it in the order of names or after it, with or without it."""
        self.save_log()
        other = b"A" * 43
        inner = os.path.join(os.path.basename(self.folder.root), self.entry)
        for name, count in [(b".stversions/x~2026", 0), (b".stversions/" + self.entry, 0), (b".sync.tmp", 0),
                            (b".0", 0), (b"notes.bak", 1), (b"~" + self.entry, 1), (self.entry[:-1], 1), (other, 1),
                            (b"_" + self.entry[1:], 1), (self.entry + b"A", 1), (inner, 1),
                            (b"vaultfs.tmp.0123456789abcdef", 0), (b"backup/" + self.entry, 1)]:
            with self.subTest(name):
                copy = self.copy(name)
                for is_alone in (False, True):
                    if is_alone:
                        os.rename(self.file.path, self.file.path + b".aside")
                        os.rename(self.file.path + b".aside", os.path.join(self.vault.root, b"../aside"))
                    found, damage = self.vault.read()
                    self.assertEqual(set(found), {b"dir"} if is_alone else {b"dir", b"f"})
                    self.assertEqual(len(damage), count, damage)
                    if not is_alone:
                        self.assertEqual(self.vault.run("f")[1], self.new)
                os.rename(os.path.join(self.vault.root, b"../aside"), self.file.path)
                os.unlink(copy)

    def test_copied_directory(self):
        """A directory is copied with its record, so the names in the copy authenticate there, but not its own."""
        file = self.vault.file(b"in", 2, [b"x" * CHUNK, b"y" * CHUNK], self.folder, is_sealed=False)
        self.save_log(file)
        for name, count in [(b".stversions/dir", 0), (b"backup", 1), (b"A" * 43, 1)]:
            shutil.copytree(self.folder.root, os.path.join(self.vault.root, name))
            found, damage = self.vault.read()
            self.assertEqual((set(found), len(damage)), ({b"f", b"dir", b"dir/in"}, count))
            self.assertEqual(self.vault.run("dir/in")[1], self.new)
            shutil.rmtree(os.path.join(self.vault.root, name))

    def test_several_names(self):
        """Log-5: each file of the id whose name authenticates gets them."""
        self.save_log()
        entry, _ = self.folder.record.encode(b"g")
        self.copy(os.path.join(os.path.basename(self.folder.root), entry))
        for path in ("f", "dir/g"):
            self.assertEqual(self.vault.run(path)[1], self.new)

    def test_renamed_in_a_conflict(self):
        """Store-40: a conflict copy gets them if no other file has the id and it was renamed after the last of them."""
        self.save_log()
        os.rename(self.file.path, self.file.path + b"~")
        copy = "f (conflict ~)"
        self.assertEqual(self.vault.run(copy)[:2], (0, self.new))
        self.copy_of = self.file.path + b".conflict1"
        shutil.copy2(self.file.path + b"~", self.copy_of)
        for path in (copy, "f (conflict conflict1)"):
            self.assertEqual(self.vault.run(path)[:2], (0, self.new), path)
        os.unlink(self.copy_of)
        # A foreign copy is no other file.
        shutil.copy2(self.file.path + b"~", os.path.join(self.vault.root, b".sync.tmp"))
        self.assertEqual(self.vault.run(copy)[:2], (0, self.new))
        # An entry that is newer than the copy.
        self.save_log(time=10**19)
        self.assertEqual(self.vault.run(copy)[:2], (0, self.old))
        self.save_log()
        # A file that was moved, even if it is damaged.
        moved = TinyFile(self.vault, b"moved", 1, self.folder)
        shutil.copy2(self.file.path + b"~", moved.path)
        self.assertEqual(self.vault.run(copy)[:2], (0, self.old))
        self.assertEqual(self.vault.run("dir/moved")[:2], (0, self.new))
        moved.flip(20)
        code, output, errors = self.vault.run(copy)
        self.assertEqual((code, output, errors), (0, self.old, ""))

    def test_unseen(self):
        """A directory that cannot be read may have the file."""
        self.save_log()
        os.rename(self.file.path, self.file.path + b"~")
        listdir = os.listdir

        def refusing(path):
            if path == self.folder.root:
                raise PermissionError(13, "Permission denied")
            return listdir(path)
        with unittest.mock.patch.object(os, "listdir", refusing):
            code, output, errors = self.vault.run("f (conflict ~)")
        self.assertEqual((code, output, errors.count("\n")), (INCOMPLETE, self.old, 1), errors)
        self.assertIn("vaultfs.log may have changes of it", errors)


class SealedFileTests(unittest.TestCase):
    """Store-3, Store-6: a sealed file whose backing file is longer."""

    def setUp(self):
        self.vault = TinyVault(self)
        self.vault.clean()

    def unclean(self):
        self.vault.put("vaultfs.lock", NOTE)
        self.vault.put("vaultfs.log", bytes(64))

    def extended(self, last, name=b"f", **state):
        """(file, plaintext, backing bytes) of files with a tail of each kind. Their last chunk has these bytes. In some
        it has been replaced by a longer one."""
        file = self.vault.file(name, 1, [b"a" * CHUNK, last], **state)
        sealed = read_whole(file.path)
        more = file.record(1, last + b"m" * (CHUNK - len(last))) + file.record(2, b"more")
        tails = [sealed + random.Random(1).randbytes(size) for size in (33, 5000)] + [sealed + bytes(5000)]
        if len(last) < CHUNK:
            tails += [sealed[:128 + RECORD] + record for record in (more, file.record(1, last + b"!"))]
        else:
            tails += [sealed + file.record(2, b"more")]
        return [(file, b"a" * CHUNK + last, tail) for tail in tails]

    def test_clean_end(self):
        """The bytes up to the sealed length are all there, and the others are damage."""
        for last in (b"last!", b"b" * CHUNK):
            for number, (file, plain, data) in enumerate(self.extended(last)):
                with self.subTest(last=last[:5], number=number):
                    write_whole(file.path, data)
                    longer = vaultfs_reader.plaintext_length(len(data), CHUNK)
                    code, output, errors = self.vault.run("f")
                    self.assertEqual((code, output, errors.count("\n")), (DAMAGE, plain, 1), errors)
                    found, damage = self.vault.read()
                    self.assertEqual(damage, [f"f: sealed at {len(plain)} bytes, but the backing file has {longer}"])
                    self.assertEqual(found[b"f"], hashlib.sha256(plain).hexdigest().encode())
                    self.assertEqual(json.loads(self.vault.run("--json")[1])[0]["size"], len(plain))
                    self.vault.out += "-"
                    self.assertEqual(self.vault.extract()[0], INCOMPLETE)
                    self.assertEqual(os.listdir(self.vault.out), [])
                    code, _, errors = self.vault.extract("--damaged")
                    self.assertEqual(code, DAMAGE)
                    self.assertIn(f"f: bytes {len(plain)} to {longer}: sealed at", errors)
                    # The size that a mount shows.
                    self.assertEqual(self.vault.extracted(b"f"), plain + bytes(longer - len(plain)))

    def test_unclean_end(self):
        """It ends at the sealed length."""
        self.unclean()
        for last in (b"last!", b"b" * CHUNK):
            for number, (file, plain, data) in enumerate(self.extended(last)):
                with self.subTest(last=last[:5], number=number):
                    write_whole(file.path, data)
                    code, output, errors = self.vault.run("f")
                    self.assertEqual((code, output), (0, plain), errors)
                    self.assertEqual((errors.count("note: f: sealed at"), errors.count("\n")), (1, 1), errors)
                    self.vault.out += "-"
                    self.assertEqual(self.vault.extract()[0], 0)
                    self.assertEqual(self.vault.extracted(b"f"), plain)

    def test_conflict_copy(self):
        """Store-40: it is read as after an unclean end."""
        cases = self.extended(b"last!")
        os.unlink(cases[0][0].path)
        for file, plain, data in cases:
            write_whole(file.path + b"~", data)
            self.assertEqual(self.vault.run("f (conflict ~)")[:2], (0, plain))

    def test_damaged_last_chunk(self):
        """If neither record of it verifies, it is damage also after an unclean end."""
        self.unclean()
        for file, plain, data in self.extended(b"last!"):
            changed = bytearray(data)
            changed[128 + RECORD + 17] ^= 1
            write_whole(file.path, changed)
            self.assertEqual(self.vault.run("f")[:2], (DAMAGE, plain[:CHUNK]))

    def test_hole(self):
        """Holes-1: the record of the sealed length may be zeros."""
        file = self.vault.file(b"f", 1, [b"a" * CHUNK, None], is_sparse=True)
        head = header_bytes(read_whole(file.path)[:16], self.vault.keys.of_class[0][1], bytes(32), file.secret,
                            self.vault.id, CHUNK + 5, 1 << 8 | 3)
        data = head + read_whole(file.path)[128:128 + RECORD] + bytes(5 + OVERHEAD)
        write_whole(file.path, data)
        self.assertEqual(self.vault.run("f")[:2], (0, b"a" * CHUNK + bytes(5)))
        write_whole(file.path, data + random.Random(1).randbytes(100))
        self.assertEqual(self.vault.run("f")[:2], (DAMAGE, b"a" * CHUNK + bytes(5)))
        self.unclean()
        self.assertEqual(self.vault.run("f")[:2], (0, b"a" * CHUNK + bytes(5)))

    def test_log(self):
        """Entries inside the sealed length leave the file sealed: it ends there, or is too short. Entries past it, with
        an exact length or of a later seal counter unseal it: it ends before the first chunk that does not verify."""
        self.unclean()
        chunks = [b"a" * CHUNK, b"b" * CHUNK]
        file = self.vault.file(b"f", 1, chunks)
        sealed, z = read_whole(file.path), b"z" * CHUNK
        inside = {"first": 0, "records": [file.record(0, z)]}
        third, garbage = file.record(2, b"c" * CHUNK), random.Random(1).randbytes(RECORD)
        for number, (data, entry, code, expected) in enumerate([
                (sealed + garbage, inside, 0, z + chunks[1]), (sealed + third, inside, 0, z + chunks[1]),
                (sealed[:-RECORD], inside, DAMAGE, z),
                (sealed + third + garbage, {**inside, "seal_counter": 2}, 0, z + chunks[1] + b"c" * CHUNK),
                (sealed + garbage, {"kind": 2, "exact": 2 * CHUNK}, 0, b"".join(chunks)),
                (sealed + garbage, {"kind": 2, "exact": CHUNK}, 0, chunks[0]),
                (sealed + third, {"first": 3, "records": [file.record(3, z)]}, 0, b"".join(chunks) + b"c" * CHUNK + z),
                (sealed + garbage, {"first": 3, "records": [file.record(3, z)]}, 0, b"".join(chunks))]):
            with self.subTest(number):
                write_whole(file.path, data)
                log = TinyLog(self.vault)
                log.add(file, **entry)
                log.save()
                found = self.vault.run("f")
                self.assertEqual(found[:2], (code, expected), found[2])

    def test_log_and_last_chunk(self):
        """An entry of another chunk does not take the last one away."""
        self.unclean()
        for file, plain, data in self.extended(b"last!"):
            write_whole(file.path, data)
            log = TinyLog(self.vault)
            log.add(file, first=0, records=[file.record(0, b"z" * CHUNK)])
            log.save()
            self.assertEqual(self.vault.run("f")[:2], (0, b"z" * CHUNK + plain[CHUNK:]))


class ObjectTests(unittest.TestCase):
    """Anything can be under the names of the vault's own files (Log-8, Store-31, Conventions-5). It is a line for
    people and an exit code, and nothing waits for it."""

    NOT_FILES = ["directory", "fifo", "socket", "dangling", "loop", "device"]

    def setUp(self):
        self.vault = TinyVault(self)
        self.vault.clean()
        self.vault.file(b"f", 1, [b"text"])
        # The default action ends a test that waits for a FIFO.
        signal.alarm(120)
        self.addCleanup(signal.alarm, 0)

    def put(self, kind, name):
        """Puts an object under a name in the vault's directory. Returns false if it cannot be made here."""
        path = os.path.join(self.vault.root, os.fsencode(name))
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        elif os.path.lexists(path):
            os.unlink(path)
        if kind == "directory":
            os.mkdir(path)
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(path)
        elif kind == "device":
            try:
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
            except PermissionError:
                return False
        elif kind in ("dangling", "loop"):
            os.symlink(b"nowhere" if kind == "dangling" else os.path.basename(path), path)
        elif kind == "hole":
            write_whole(path, b"")
            os.truncate(path, 5 << 30)
        else:
            write_whole(path, random.Random(1).randbytes(5000))
        return True

    def each(self, kinds, name, code, output, lines=1):
        """Expects an exit code, the content of the file, and a number of lines of errors, with each kind of object."""
        for kind in kinds:
            with self.subTest(name=name, kind=kind):
                if self.put(kind, name):
                    found = self.vault.run("f")
                    self.assertEqual((found[0], found[1], found[2].count("\n")), (code, output, lines), found[2])
                    self.assertTrue(found[2].startswith("vaultfs-reader: ") or not lines, found[2])

    def test_log(self):
        self.each(self.NOT_FILES + ["hole", "bytes"], "vaultfs.log", DAMAGE, b"text")
        self.vault.put("vaultfs.lock", NOTE)
        self.each(self.NOT_FILES, "vaultfs.log", DAMAGE, b"text")

    def test_lock(self):
        self.each(self.NOT_FILES, "vaultfs.lock", DAMAGE, b"text")
        # These are an unclean end, which leaves no file without a header and no log without entries here.
        self.each(["hole", "bytes"], "vaultfs.lock", 0, b"text", lines=0)

    def test_record(self):
        self.each(self.NOT_FILES + ["hole", "bytes"], "vaultfs.dir", DAMAGE, b"")

    def test_record_of_a_directory(self):
        entry = os.path.basename(self.vault.folder(b"dir").root)
        for kind in self.NOT_FILES + ["hole", "bytes"]:
            if self.put(kind, os.path.join(entry, b"vaultfs.dir")):
                self.assertEqual(len(self.vault.read()[1]), 1, kind)

    def test_configuration(self):
        self.each(self.NOT_FILES + ["hole", "bytes"], "vaultfs.json", NOT_A_VAULT, b"")

    def test_rekey(self):
        """Store-27: whatever it is, it bars a vault that is being rekeyed, and no other."""
        self.each(self.NOT_FILES + ["hole", "bytes"], "vaultfs.rekey", 0, b"text", lines=0)
        self.vault = TinyVault(self, features=["epochs"])
        self.vault.clean()
        self.vault.file(b"f", 1, [b"text"], epoch=1)
        self.each(self.NOT_FILES + ["hole", "bytes"], "vaultfs.rekey", FAILURE, b"")

    def test_sidecar(self):
        entry, _ = self.vault.record.encode(b"n" * 200)
        self.vault.file(b"n" * 200, 2, [b"long"])
        self.each(self.NOT_FILES + ["hole", "bytes"], entry + b".name", DAMAGE, b"text")
        # Nor is a conflict copy of it left out without a word.
        os.rename(os.path.join(self.vault.root, entry), os.path.join(self.vault.root, entry + b"~"))
        self.each(self.NOT_FILES + ["hole", "bytes"], entry + b".name", DAMAGE, b"text")

    def test_content(self):
        """Under the name of a file: shown as what it is, and not read."""
        entry, _ = self.vault.record.encode(b"g")
        for kind in ("fifo", "socket", "device"):
            if self.put(kind, entry):
                self.assertEqual(self.vault.run("--digests")[0], 0)
        for kind in ("directory", "dangling", "loop", "hole", "bytes"):
            self.put(kind, entry)
            self.assertEqual(len(self.vault.read()[1]), 1, kind)

    def refusing(self, name, *arguments):
        """The outcome if a file cannot be opened."""
        os_open = os.open

        def refused(path, *rest, **keywords):
            if os.path.basename(os.fsencode(path)) == name:
                raise PermissionError(13, "Permission denied", path)
            return os_open(path, *rest, **keywords)
        with unittest.mock.patch.object(os, "open", refused):
            return self.vault.run(*arguments)

    def test_unreadable(self):
        """Lack of a permission is no damage."""
        self.vault.file(b"n" * 200, 2, [b"long"])
        sidecar = self.vault.record.encode(b"n" * 200)[0] + b".name"
        for name, code, output, arguments in [
                (b"vaultfs.log", INCOMPLETE, b"text", ()), (b"vaultfs.lock", FAILURE, b"", ()),
                (b"vaultfs.lock", INCOMPLETE, b"text", ("--no-lock",)), (b"vaultfs.dir", FAILURE, b"", ()),
                (b"vaultfs.json", FAILURE, b"", ()), (sidecar, INCOMPLETE, b"text", ())]:
            with self.subTest(name):
                found = self.refusing(name, "f", *arguments)
                self.assertEqual((found[0], found[1], found[2].count("\n")), (code, output, 1), found[2])
                self.assertRegex(found[2], "Permission denied")
        self.assertIn("--no-lock", self.refusing(b"vaultfs.lock", "f")[2])

    def test_unreadable_bytes(self):
        """A log on a bad part of a disk."""
        self.vault.put("vaultfs.log", bytes(5000))
        read_at = vaultfs_reader.read_at

        def refused(stream, offset, size):
            if os.readlink(f"/proc/self/fd/{stream.fileno()}").endswith("vaultfs.log"):
                raise OSError(5, "Input/output error")
            return read_at(stream, offset, size)
        if not os.path.exists("/proc/self/fd"):
            self.skipTest("needs /proc")
        with unittest.mock.patch.object(vaultfs_reader, "read_at", refused):
            code, output, errors = self.vault.run("f")
        self.assertEqual((code, output, errors.count("\n")), (INCOMPLETE, b"text", 1), errors)

    def test_error_without_a_path(self):
        """The error of a descriptor has its number in place of a path."""
        error = IsADirectoryError(21, "Is a directory", 3)
        with unittest.mock.patch.object(vaultfs_reader, "opened", side_effect=error):
            self.assertEqual(self.vault.run(), (FAILURE, b"", "vaultfs-reader: failed: Is a directory\n"))


class VectorTests(unittest.TestCase):
    def test_digests(self):
        for vector in ("vault-4096", "vault-16384"):
            with tempfile.NamedTemporaryFile() as passfile:
                passfile.write(b"correct horse\n")
                passfile.flush()
                code, output, errors = run(os.path.join(VECTORS, vector), "--passfile", passfile.name, "--digests",
                                           "--require-sealed", "--xattrs")
            self.assertEqual((code, errors), (0, ""))
            self.assertEqual(output, read_whole(os.path.join(VECTORS, f"{vector}.expected.tsv")))

    def test_extraction(self):
        with tempfile.TemporaryDirectory() as directory:
            out, passfile = os.path.join(directory, "out"), os.path.join(directory, "passfile")
            write_whole(passfile, b"correct horse")
            code, _, errors = run(os.path.join(VECTORS, "vault-4096"), "--passfile", passfile, "--all", out)
            self.assertEqual((code, errors), (0, ""))
            for line in read_whole(os.path.join(VECTORS, "vault-4096.expected.tsv")).splitlines():
                kind, _, size, digest, path = line.split(b"\t")
                path = os.path.join(os.fsencode(out), path)
                if kind == b"dir":
                    self.assertTrue(os.path.isdir(path))
                elif kind == b"link":
                    self.assertEqual(os.readlink(path), digest)
                else:
                    content = read_whole(path)
                    self.assertEqual((len(content), hashlib.sha256(content).hexdigest().encode()), (int(size), digest))


class SecretTests(unittest.TestCase):
    def test_recovery_key(self):
        """Secrets-3."""
        zeros = "-".join(["00000000"] * 8 + ["66687aad"])
        for text in (zeros, zeros.upper(), zeros.replace("-", ""), f" {zeros[:20]}\n{zeros[20:]}\n"):
            self.assertEqual(vaultfs_reader.recovery_secret(text), bytes(32))
        for text in (zeros[:-1] + "c", zeros[:-2], zeros + "00", "x" + zeros[1:]):
            self.assertRaises(Failure, vaultfs_reader.recovery_secret, text)

    def test_recovery_slot(self):
        vault = TinyVault(self, [{"kind": "recovery"}])
        vault.clean()
        key = SECRET.hex() + hashlib.sha256(SECRET).hexdigest()[:8]
        write_whole(vault.keyfile, key.encode() + b"\n")
        # It may also be given in place of the passphrase.
        for option in ("--recovery-key-file", "--passfile"):
            self.assertEqual(run(vault.root, option, vault.keyfile)[0], 0)
        self.assertEqual(vault.run()[0], WRONG_SECRET)

    def test_wrong(self):
        vault = TinyVault(self)
        write_whole(vault.keyfile, b"w" * 32)
        code, output, errors = vault.run()
        self.assertEqual((code, output), (WRONG_SECRET, b""))
        self.assertRegex(errors, r"\Avaultfs-reader: wrong keyfile[^\n]*[^.]\n\Z")
        write_whole(vault.keyfile, b"short")
        self.assertEqual(vault.run()[0], USAGE)
        self.assertEqual(run(vault.root, "--passfile", os.devnull)[0], USAGE)

    def test_never_in_arguments(self):
        vault = TinyVault(self)
        for option in ("--passphrase", "--recovery-key"):
            self.assertEqual(run(vault.root, "path", option, "secret")[0], USAGE)

    def test_leases(self):
        """Leases-1, Leases-2: no slot is used after its end, before its clock, or without a recorded beginning."""
        window = {"seconds": 60, "started": "2026-02-01T00:00:00Z", "seen": "2026-02-01T00:00:10Z"}
        begun = vaultfs_reader.seconds(window["started"])
        unstarted = {"seconds": 60, "started": None, "seen": None}
        for slot, now, refusal in [
                ({"expires": "2026-02-01T00:00:00Z"}, begun - 1, None),
                ({"expires": "2026-02-01T00:00:00Z"}, begun, "has expired"),
                ({"expires": "2026-02-01T00:00:00Z"}, begun - 40 * 86400, "clock"),
                ({}, begun - 40 * 86400, None),
                ({"window": window}, begun + 30, None),
                ({"window": window}, begun + 60, "has ended"),
                ({"window": window}, begun + 9, "clock"),
                ({"window": unstarted}, begun, "has not begun")]:
            features = ["leases"] if "window" in slot else []
            configuration = Configuration(TinyVault(self, [slot], features).configuration)
            if refusal is None:
                configuration.open("keyfile", SECRET, now)
            else:
                self.assertRaisesRegex(Failure, refusal, configuration.open, "keyfile", SECRET, now)

    def test_another_slot(self):
        """Slots-2: a slot that has ended does not keep another one of the same secret from opening."""
        vault = TinyVault(self, [{"expires": "2026-01-02T00:00:00Z"}, {}])
        vault.clean()
        self.assertEqual(vault.run()[0], 0)


class ConfigurationTests(unittest.TestCase):
    def refused(self, pattern, replacement, words):
        text, count = re.subn(pattern, lambda _: replacement, self.text, count=1)
        self.assertEqual(count, 1, pattern)
        self.vault.put("vaultfs.json", text)
        code, _, errors = self.vault.run()
        self.assertEqual(code, NOT_A_VAULT, errors)
        self.assertIn(words, errors)

    def test_refused(self):
        """Syntax, Values, Mac: each change is an error."""
        self.vault = TinyVault(self)
        self.text = self.vault.configuration
        newer = "newer version"
        for pattern, replacement, words in [
                (b'"version": 1', b'"version": 2, "more": 1', newer), (b'\\[\\]', b'["future"]', newer),
                (b'hkdf-sha256', b'argon2', newer), (b'"keyfile"', b'"tpm"', newer),
                (b'"generation": 1', b'"generation": 2', "mac"), (b'"generation": 1', b'"generation": 01', "JSON"),
                (b'"generation": 1', b'"generation": 1.0', "1.0"), (b'"generation": 1', b'"generation": -1', "-1"),
                (b'"generation": 1', b'"generation": 18446744073709551616', "integer"),
                (b'"label": ""', b'"label": "x"', "mac"), (b'"label": ""', b'"label": "\\ud800"', "surrogate"),
                (b'"label": ""', b'"label": "", "la\\u0062el": ""', "twice"),
                (b'"label": ""', b'"label": "", "more": 1', "other keys"), (b'4096', b'5000', "power of two"),
                (b'2026-01-01', b'2026-02-30', "created"), (b'"label": ""', b'"label": ' + b"[" * 20 + b"]" * 20, "16"),
                (b'\\A', b'\xef\xbb\xbf', "byte order"), (b'\\A', b' ' * (1 << 20), "1 MiB"),
                (b'(?s).*', b'[' * 100000, "JSON"), (b'(?s).*', b'', "JSON")]:
            with self.subTest(replacement[:30]):
                self.refused(pattern, replacement, words)

    def test_arbitrary(self):
        """Conventions-5: any value of any type in any place is an error."""
        vault = TinyVault(self, [{}, {"window": {"seconds": 60, "started": None, "seen": None}}], ["epochs", "leases"])
        vault.clean()
        values = [None, True, 0, -1, 2**64, "", "x", "9" * 5000, "\u0000\ud83d\ude00", [], [[]], [{}], {}, {"a": []}]

        def places(value, path=()):
            yield path
            for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
                yield from places(value[key], path + (key,))

        for path in places(json.loads(vault.configuration)):
            for value in values:
                whole = {"": json.loads(vault.configuration)}
                parent, last = whole, ""
                for key in path:
                    parent, last = parent[last], key
                if type(parent[last]) is type(value) and parent[last] == value:
                    continue
                parent[last] = value
                data = json.dumps(whole[""]).encode()
                with self.subTest(path=path, value=value):
                    self.assertRaises((Damage, Failure), lambda: Configuration(data).open("keyfile", SECRET))
        vault.put("vaultfs.json", data)
        self.assertEqual(vault.run()[0], NOT_A_VAULT)
        generator = random.Random(1)
        for _ in range(500):
            data = bytearray(vault.configuration)
            for _ in range(generator.randrange(1, 4)):
                at = generator.randrange(len(data))
                data[at:at + generator.randrange(3)] = generator.randbytes(generator.randrange(3))
            with contextlib.suppress(Damage, Failure):
                Configuration(bytes(data)).open("keyfile", SECRET)

    def test_escapes(self):
        """Syntax-6: the order of members, and escapes, carry no meaning."""
        vault = TinyVault(self)
        text = json.dumps(json.loads(vault.configuration), sort_keys=True, indent=3).replace("keyfile", "k\\u0065yfile")
        vault.put("vaultfs.json", text.encode())
        vault.clean()
        self.assertEqual(vault.run()[0], 0)

    def test_no_vault(self):
        vault = TinyVault(self)
        os.unlink(os.path.join(vault.root, b"vaultfs.json"))
        self.assertEqual(vault.run()[0], NOT_A_VAULT)
        os.mkfifo(os.path.join(vault.root, b"vaultfs.json"))
        self.assertEqual(vault.run()[0], NOT_A_VAULT)


class ConflictTests(unittest.TestCase):
    """Names-6, Names-7, Store-40."""

    def setUp(self):
        self.vault = TinyVault(self)
        self.vault.clean()

    def test_forms(self):
        short, long = b"e" * 43, b"vaultfs.long." + b"d" * 43
        for addition in ADDITIONS:
            self.assertEqual(twins(short + addition), [(short, addition)])
            self.assertEqual(twins(long + addition), [(long, addition)])
            self.assertEqual(twins(b"vaultfs.long" + addition + b"." + b"d" * 43), [(long, addition)])
        for entry in (short, long, long + b".name", b"vaultfs.long.x.name", long + b"~.name",
                      b"vaultfs.long" + b"x." + b"d" * 43):
            self.assertEqual(twins(entry), [])

    def test_names(self):
        for name, addition, expected in [
                (b"report.txt", b".conflict1", b"report (conflict conflict1).txt"),
                (b"report", b" (conflicted copy)", b"report (conflict (conflicted copy))"),
                (b".profile", b"~", b".profile (conflict ~)"), (b"..a", b"~", b"..a (conflict ~)"),
                (b"..a.b", b"~", b"..a (conflict ~).b"), (b"a.tar.gz", b"~", b"a.tar (conflict ~).gz"),
                (b"a." + b"e" * 31, b"~", b"a (conflict ~)." + b"e" * 31),
                (b"a." + b"e" * 32, b"~", b"a." + b"e" * 32 + b" (conflict ~)"), (b"a", b". .", b"a (conflict . .)")]:
            self.assertEqual(copy_name(name, b"E" * 43, addition), expected)

    def test_hidden_characters(self):
        for addition, shown in [
                (b"~\x1b[", "~%1B["), ("~\u202etxt".encode(), "~%E2%80%AEtxt"), (b"~\xff\xc3", "~%FF%C3"),
                ("~é\n".encode(), "~é%0A"), ("~\x85\xad\u200b".encode(), "~%C2%85%C2%AD%E2%80%8B"), (b"%1B", "%251B"),
                (b"\x1b", "%1B"), (b"~\xed\xa0\x80", "~%ED%A0%80"), (b"\xe2\x82A", "%E2%82A"),
                ("~\U000E0041\U0001F600".encode(), "~%F3%A0%81%81\U0001F600")]:
            self.assertEqual(copy_name(b"a.b", b"E" * 43, addition), f"a (conflict {shown}).b".encode())

    def test_two_places(self):
        """The same addition in the middle and at the end of a long entry: two names."""
        file = self.vault.file(b"l" * 200, 1, [b"own"])
        folder, entry = os.path.split(file.path)
        for place in (entry + b"~", b"vaultfs.long~" + entry[len("vaultfs.long"):]):
            write_whole(os.path.join(folder, place), read_whole(file.path))
        os.unlink(file.path)
        found, damage = self.vault.read()
        self.assertEqual((set(found), damage), ({b"l" * 200 + b" (conflict ~)", b"l" * 200 + b" (conflict ~%)"}, []))

    def test_long_names(self):
        entry = b"x" * 21 + b"ABCDEFGHIJ" + b"y" * 33
        found = copy_name(b"n" * 255, entry, b"~")
        self.assertEqual(found, b"n" * 233 + b"~ABCDEFGH (conflict ~)")
        found = copy_name("é".encode() * 125 + b".txt", entry, b"~")
        self.assertLessEqual(len(found), 255)
        self.assertTrue(found.decode().endswith("é~ABCDEFGH (conflict ~).txt"))
        for size in range(1, 256):
            entry = self.vault.record.encode(b"s" * size)[0]
            for name in (b"s" * size, b"s" * max(1, size - 32) + b"." + b"e" * 31):
                self.assertLessEqual(len(copy_name(name[:size], entry, b"+" * (255 - len(entry)))), 255)

    def test_files(self):
        """Copies of a short and of a long name, with the twin and without it."""
        for number, name in enumerate([b"short.txt", b"l" * 200 + b".txt"], 1):
            file = self.vault.file(name, number, [b"x" * CHUNK, b"rest"])
            folder, entry = os.path.split(file.path)
            places = [entry + a for a in ADDITIONS]
            if entry.startswith(b"vaultfs.long."):
                places += [b"vaultfs.long" + a + entry[len("vaultfs.long"):] for a in ADDITIONS]
            for place in places:
                os.rename(file.path, os.path.join(folder, place))
                found, damage = self.vault.read()
                expected = copy_name(name, entry, next(a for a in ADDITIONS if a in place), not place.startswith(entry))
                self.assertEqual((set(found), damage), ({expected}, []))
                write_whole(file.path, read_whole(os.path.join(folder, place)))
                self.assertEqual(set(self.vault.read()[0]), {expected, name})
                self.assertEqual(self.vault.run(expected)[1], b"x" * CHUNK + b"rest")
                os.unlink(os.path.join(folder, place))
            os.unlink(file.path)

    def test_directory(self):
        folder = self.vault.folder(b"dir")
        self.vault.file(b"in", 1, [b"text"], folder)
        os.rename(folder.root, folder.root + b".sync-conflict-1")
        found, damage = self.vault.read()
        name = b"dir (conflict sync-conflict-1)"
        self.assertEqual((set(found), damage), ({name, name + b"/in"}, []))
        self.assertEqual(self.vault.extract()[0], 0)
        self.assertEqual(self.vault.extracted(b"dir (conflict sync-conflict-1)/in"), b"text")

    def test_record_of_a_directory_above(self):
        """Directory-4: such a directory is damage, and nothing in it is read."""
        outer = self.vault.folder(b"outer")
        inner = self.vault.folder(b"inner", outer)
        below = os.path.join(inner.root, os.path.basename(inner.root))
        os.mkdir(below)
        for folder in (inner.root, below):
            write_whole(os.path.join(folder, b"vaultfs.dir"), read_whole(os.path.join(outer.root, b"vaultfs.dir")))
        found, damage = self.vault.read()
        self.assertEqual(set(found), {b"outer"})
        self.assertEqual(len(damage), 1)
        self.assertIn("the record of a directory above", damage[0])

    def test_log_is_the_twins(self):
        """Store-40: the log's entries are not applied, and an unsealed copy ends before what does not verify."""
        self.vault.put("vaultfs.lock", NOTE)
        file = self.vault.file(b"a", 1, [b"x" * CHUNK, b"y" * CHUNK], is_sealed=False, durable=CHUNK)
        log = TinyLog(self.vault)
        log.add(file, first=0, records=[file.record(0, b"z" * CHUNK)])
        log.save()
        write_whole(file.path + b"~", read_whole(file.path))
        self.assertEqual(self.vault.run("a (conflict ~)")[:2], (0, b"x" * CHUNK + b"y" * CHUNK))
        self.assertEqual(self.vault.run("a")[1], b"z" * CHUNK + b"y" * CHUNK)
        self.vault.clean()
        file.path += b"~"
        file.flip(-1)
        code, output, errors = self.vault.run("a (conflict ~)")
        self.assertEqual((code, output), (0, b"x" * CHUNK))
        self.assertIn("note: ", errors)
        file.flip(130)
        self.assertEqual(self.vault.run("a (conflict ~)")[0], DAMAGE)

    def test_taken_names(self):
        """Additions that resemble each other have names of their own. A name of Names-2 counts more."""
        file = self.vault.file(b"a", 1, [b"1"])
        shown = [
            (b".path1", "path1"), (b"..path1", "..path1"), (b" (1)", "(1)"), (b"(1)", " (1)"), (b"~", "~"), (b" ~", " ~")]
        for addition, _ in shown:
            self.vault.file(b"a", 1, [addition])
            os.rename(file.path, file.path + addition)
        for addition, name in shown:
            self.assertEqual(self.vault.run(f"a (conflict {name})")[1], addition)
        self.vault.file(b"a (conflict ~)", 2, [b"4"])
        self.assertEqual(self.vault.run("a (conflict ~)")[1], b"4")

    def test_foreign(self):
        """Store-13."""
        file = self.vault.file(b"a", 1, [b"1"])
        for name in (b"notes.txt", b".stfolder", b"vaultfs.json.bak", b"vaultfs.tmp.1", b"x~", b"vaultfs.long.x.name"):
            self.vault.put(name, b"text")
        self.assertEqual(self.vault.read()[1], [])
        self.assertEqual(self.vault.run()[2], "")
        for name in (b"A" * 43, b"vaultfs.long." + b"A" * 43, b"renamed.txt"):
            path = os.path.join(self.vault.root, name)
            write_whole(path, read_whole(file.path))
            self.assertEqual(len(self.vault.read()[1]), 1, name)
            os.unlink(path)


class InboxTests(unittest.TestCase):
    EPHEMERAL = bytes(range(0x40, 0x60))
    # X25519 with one of these public keys gives zeros, whatever the private key is.
    LOW_ORDER = [bytes.fromhex(h) for h in [
        "00" * 32, "01" + "00" * 31, "ec" + "ff" * 30 + "7f", "ed" + "ff" * 30 + "7f", "ee" + "ff" * 30 + "7f",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"]]

    def setUp(self):
        self.vault = TinyVault(self)
        self.vault.clean()
        self.sender = Sender(self.vault.master, self.vault.id)
        self.key, self.public = self.sender.wrap(self.EPHEMERAL)

    def opened(self, protection_class=2, wrap=1, epoch=0, key=None, public=None, vault=None):
        """The header with these fields, and a wrap and a state MAC that fit them."""
        vault, start = vault or self.vault, b"VFSF" + bytes([1, protection_class, wrap, epoch]) + bytes(range(8))
        data = header_bytes(start, key or self.key, self.public if public is None else public, SECRET, vault.id)
        return FileHeader(data, vault.keys)

    def refused(self, words, **fields):
        with self.subTest(**fields):
            self.assertRaisesRegex(Damage, words, self.opened, **fields)

    def test_vector(self):
        """Fixed values of the header of a file with wrap 1. Other implementations can test against them."""
        master, vault_id = bytes(range(32)), bytes.fromhex("00112233445566778899aabbccddeeff")
        secret, file_id = bytes(range(0x80, 0xa0)), bytes(range(0xa0, 0xa8))
        sender = Sender(master, vault_id)
        key, public = sender.wrap(self.EPHEMERAL)
        header = header_bytes(b"VFSF" + bytes([1, 2, 1, 0]) + file_id, key, public, secret, vault_id)
        self.assertEqual([value.hex() for value in (public, sender.inbox_public, sender.sender_key, key, header)], [
            "79a631eede1bf9c98f12032cdeadd0e7a079398fc786b88cc846ec89af85a51a",
            "086843384b5237f5f37b2c95d0f5b5c7cfa71c52613d719ca03697318cb6b71c",
            "66e81f546545aaae5ac78975c72f375615a1d39e7db55a7e666ef815df970982",
            "7eeb2d97d10a3e3417a0601a1b40ef2c5b5c16df667fa31769e4af7cd39c312c"
            "7e626a627c5aeee416c64db32179ff0f7fae8e9e696a2d843439e96baa49a657",
            "5646534601020100a0a1a2a3a4a5a6a7"
            "b49afd369351ad111df2de5b5648d9869b8cd24ddf85a74648321d187653a042"
            "64f25e572b64e1b41974884848361f82"
            "79a631eede1bf9c98f12032cdeadd0e7a079398fc786b88cc846ec89af85a51a"
            "00000000000000000000000000000000"
            "2476783dd80337ddf44a86233dcac119"])
        configuration = types.SimpleNamespace(id=vault_id, chunk_size=CHUNK, epoch=0, previous=None)
        found = FileHeader(header, vaultfs_reader.Keys(configuration, master))
        self.assertEqual((found.protection_class, found.file_id, found.sealed, found.length, found.seal_counter),
                         (2, file_id, False, 0, 0))
        self.assertEqual(found.xattr_key, hkdf(secret, vault_id, "vaultfs 1 file", 176)[112:])

    def test_vault(self):
        """Inbox-2: a file with wrap 1 is like any other."""
        inbox = self.vault.folder(b"inbox", protection_class=5)
        below = self.vault.folder(b"below", inbox, protection_class=5)
        chunks = [b"a" * CHUNK, b"b" * CHUNK, b"c"]
        self.vault.file(b"sealed", 1, chunks, inbox, ephemeral=b"e" * 32)
        self.vault.file(b"open", 2, chunks, below, ephemeral=b"f" * 32, is_sealed=False)
        self.vault.file(b"sparse", 3, [None] * 9 + [b"x"], below, ephemeral=b"g" * 32, is_sparse=True)
        self.assertEqual(self.vault.extract(), (0, b"", ""))
        for path in (b"inbox/sealed", b"inbox/below/open"):
            self.assertEqual(self.vault.extracted(path), b"".join(chunks))
        self.assertEqual(self.vault.extracted(b"inbox/below/sparse"), bytes(9 * CHUNK) + b"x")
        found = json.loads(self.vault.run("--json")[1])
        self.assertEqual([(f["path"], f["class"], f["size"]) for f in found], [
            ("inbox", "inbox", 0), ("inbox/below", "inbox", 0), ("inbox/below/open", "unless-open", 2 * CHUNK + 1),
            ("inbox/below/sparse", "unless-open", 9 * CHUNK + 1), ("inbox/sealed", "unless-open", 2 * CHUNK + 1)])

    def test_log(self):
        """Entries of the log are applied to files with wrap 1."""
        self.vault.put("vaultfs.lock", NOTE)
        file = self.vault.file(b"a", 1, [b"a" * CHUNK, b"b"], ephemeral=self.EPHEMERAL, is_sealed=False)
        log = TinyLog(self.vault)
        log.add(file, first=0, records=[file.record(0, b"z" * CHUNK)])
        log.save()
        self.assertEqual(self.vault.run("a")[:2], (0, b"z" * CHUNK + b"b"))

    def test_epochs(self):
        """Epochs-2: the keys are those of the file's epoch."""
        vault = TinyVault(self, features=["epochs"])
        vault.clean()
        for epoch in (0, 1):
            vault.file(b"%d" % epoch, epoch + 1, [b"text %d" % epoch], epoch=epoch, ephemeral=self.EPHEMERAL)
            self.assertEqual(vault.run(f"{epoch}")[:2], (0, b"text %d" % epoch))
            for master in vault.masters:
                key, public = Sender(master, vault.id).wrap(self.EPHEMERAL)
                if master == vault.masters[epoch]:
                    self.opened(epoch=epoch, key=key, public=public, vault=vault)
                else:
                    self.refused("does not authenticate", epoch=epoch, key=key, public=public, vault=vault)
        self.assertEqual(vault.read()[1], [])
        self.refused("epoch", epoch=2, vault=vault)

    def test_every_bit(self):
        """Header-1."""
        start = b"VFSF" + bytes([1, 2, 1, 0]) + bytes(range(8))
        data = header_bytes(start, self.key, self.public, SECRET, self.vault.id)
        FileHeader(data, self.vault.keys)
        for bit in range(len(data) * 8):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            self.assertRaises(Damage, FileHeader, bytes(changed), self.vault.keys)

    def test_refused(self):
        """Header-2, Inbox-3: of other classes, of other wraps, with other bytes from 64 on."""
        class_keys = self.vault.keys.of_class[0]
        self.assertEqual(self.opened().protection_class, 2)
        self.opened(wrap=0, key=class_keys[2], public=bytes(32))
        for protection_class in (0, 1, 3, 4, 5, 6):
            self.refused("class", protection_class=protection_class)
            key = class_keys.get(protection_class)
            self.refused("class", protection_class=protection_class, key=key)
        for wrap in (2, 3, 128, 255):
            self.refused("wrap", wrap=wrap)
        self.refused("class", protection_class=5, wrap=0, key=class_keys[5], public=bytes(32))
        self.refused("reserved", wrap=0, key=class_keys[2])
        self.refused("does not authenticate", key=class_keys[2])
        self.refused("does not authenticate", wrap=0, public=bytes(32))

    def test_sender(self):
        """A wrap by someone without the sender key, or for another vault, or of another ephemeral key."""
        shared = self.sender.shared(self.EPHEMERAL)
        for secret in (shared, shared + bytes(32), self.sender.sender_key):
            self.refused("does not authenticate", key=self.sender.wrap_key(secret, self.public))
        other = Sender(self.vault.master, bytes(16)).wrap(self.EPHEMERAL)[0]
        self.refused("does not authenticate", key=other)
        self.refused("does not authenticate", public=x25519_public(b"o" * 32))
        # X25519 ignores this bit. The wrap key does not.
        self.refused("does not authenticate", public=self.public[:31] + bytes([self.public[31] | 128]))

    def test_low_order(self):
        """Inbox-1: the shared secret is known, so the sender key alone would make such a wrap."""
        for point in self.LOW_ORDER:
            for public in (point, point[:31] + bytes([point[31] | 128])):
                key = self.sender.wrap_key(bytes(32) + self.sender.sender_key, public)
                self.refused("ephemeral", public=public, key=key)

    def test_links_and_directories(self):
        """Inbox-3, Directory-2: class 5 is for directories, and also for the root."""
        TinyFolder(self.vault, self.vault.root, True, protection_class=5)
        self.vault.link(b"link", b"target", protection_class=2)
        self.assertEqual(self.vault.read()[1], [])
        self.vault.link(b"inbox", b"target", protection_class=5)
        self.assertEqual(self.vault.read()[1], ["inbox: link: class"])
        path = os.path.join(self.vault.folder(b"dir", protection_class=5).root, b"vaultfs.dir")
        record = read_whole(path)
        for at, value in ((5, 6), (5, 1), (16, record[16] ^ 1)):
            changed = bytearray(record)
            changed[at] = value
            self.assertRaises(Damage, DirectoryRecord, bytes(changed), self.vault.keys, False)

    def test_arbitrary(self):
        """Conventions-5: the outcome is a value or damage."""
        file, generator = self.vault.file(b"file", 1, [b"a"], ephemeral=self.EPHEMERAL), random.Random(1)
        whole = read_whole(file.path)
        for _ in range(100):
            data = bytearray(whole)
            data[64:96] = generator.choice([generator.randbytes(32), *self.LOW_ORDER])
            write_whole(file.path, data)
            self.assertEqual(len(self.vault.read()[1]), 1)


class NameTests(unittest.TestCase):
    def test_windows(self):
        names = TargetNames(windows=True, folds=True)
        for name, expected in [
                (b"plain.txt", b"plain.txt"), (b"a:b", b"a%3Ab"), (b"100%", b"100%"), (b"a%3Ab", b"a%253Ab"),
                (b"nul", b"%6Eul"), (b"COM1.txt", b"%43OM1.txt"), (b"com10", b"com10"), (b"aux .c", b"%61ux .c"),
                (b"null", b"null"), (b"dot.", b"dot%2E"), (b"space ", b"space%20"), (b"...", b"..%2E"),
                (b"tab\t", b"tab%09"), (b"b\\s", b"b%5Cs"), (b"\xff\xfe", b"%FF%FE"), ("é".encode(), "é".encode())]:
            self.assertEqual(names.mapped([name])[name], expected)
            self.assertEqual(original_name(expected), name)

    def test_case(self):
        names = [b"README", b"readme", b"Readme", b"other", "É".encode(), "é".encode(), "e\u0301".encode()]
        mapped = TargetNames(folds=True).mapped(names)
        self.assertEqual(mapped[b"README"], b"%52%45%41%44%4D%45")
        self.assertEqual((mapped[b"readme"], mapped[b"other"]), (b"readme", b"other"))
        self.assertEqual(len({vaultfs_reader.folded(n.decode()) for n in mapped.values()}), len(names))

    def test_random(self):
        """No two names become one, every changed name leads back, and Windows allows it."""
        generator = random.Random(1)
        parts = [b"a", b"A", b"%", b"4", b"1", b":", b".", b" ", b"CON", b"nul", "ß".encode(), "ſ".encode(), b"S", b"s",
                 "é".encode(), "É".encode(), b"\xc3", "İ".encode(), b"i", "\u0301".encode(), b"e"]
        for names in (TargetNames(windows=True, folds=True), TargetNames(utf8=True, folds=True)):
            for _ in range(300):
                group = {b"".join(generator.choices(parts, k=generator.randrange(1, 4))) for _ in range(40)}
                mapped = names.mapped(sorted(group))
                self.assertEqual(len({vaultfs_reader.folded(n.decode()) for n in mapped.values()}), len(group))
                for name, changed in mapped.items():
                    self.assertEqual(original_name(changed), name)
                    if names.windows:
                        self.assertNotRegex(changed.decode(), r'[<>:"/\\|?*\x00-\x1f]|[. ]$')
                        self.assertNotRegex(changed.decode(), r"(?i)^(con|nul) *(\.|$)")

    def test_exact(self):
        self.assertEqual(TargetNames().mapped([b"a:%41\xff"]), {b"a:%41\xff": b"a:%41\xff"})


class ExtractionTests(unittest.TestCase):
    def setUp(self):
        self.vault = TinyVault(self)
        self.vault.clean()

    def test_metadata(self):
        folder = self.vault.folder(b"dir")
        file = self.vault.file(b"file", 1, [b"text"], folder)
        self.vault.folder(b"empty")
        self.vault.link(b"link", b"dir/file")
        os.chmod(file.path, 0o440)
        os.chmod(folder.root, 0o550)
        for path in (file.path, folder.root):
            os.utime(path, ns=(10**18 + 1, 10**18 + 7))
        self.assertEqual(self.vault.extract(), (0, b"", ""))
        for path, mode in (("dir", 0o550), ("dir/file", 0o440)):
            status = os.stat(os.path.join(self.vault.out, path))
            self.assertEqual((stat.S_IMODE(status.st_mode), status.st_mtime_ns), (mode, 10**18 + 7))
        self.assertEqual(os.readlink(os.path.join(self.vault.out, "link")), "dir/file")
        self.assertEqual(os.listdir(os.path.join(self.vault.out, "empty")), [])
        os.chmod(os.path.join(self.vault.out, "dir"), 0o700)

    def test_special(self):
        file = self.vault.file(b"file", 1, [b"text"])
        os.chmod(file.path, 0o4755)
        os.mkfifo(os.path.join(self.vault.root, self.vault.record.encode(b"fifo")[0]))
        code, _, errors = self.vault.extract()
        self.assertEqual((code, len(errors.splitlines())), (vaultfs_reader.NOT_KEPT, 2))
        self.assertEqual(os.stat(os.path.join(self.vault.out, "file")).st_mode & 0o7777, 0o755)

    def test_part(self):
        folder = self.vault.folder(b"dir")
        self.vault.file(b"file", 1, [b"text"], folder)
        self.assertEqual(self.vault.run("dir", "--all", self.vault.out), (0, b"", ""))
        self.assertEqual(os.listdir(self.vault.out), ["file"])

    def test_existing(self):
        self.vault.file(b"file", 1, [b"text"])
        os.mkdir(self.vault.out)
        self.assertEqual(self.vault.extract()[0], 0)
        code, _, errors = self.vault.extract()
        self.assertEqual((code, errors.count("\n")), (vaultfs_reader.FAILURE, 1))
        inside = os.path.join(os.fsdecode(self.vault.root), "out")
        self.assertEqual(self.vault.run("--all", inside)[0], USAGE)

    def test_taken(self):
        """A name that appears in OUT meanwhile is not overwritten, and a link in OUT is not followed."""
        folder = self.vault.folder(b"dir")
        self.vault.file(b"in", 1, [b"text"], folder)
        self.vault.file(b"file", 2, [b"text"])
        outside = self.vault.out + "-outside"
        os.mkdir(outside)
        prepare = vaultfs_reader.Extraction.prepare

        def prepared(extraction, out):
            made = prepare(extraction, out)
            os.symlink(outside, os.path.join(out, b"dir"))
            os.symlink(os.path.join(outside, "new"), os.path.join(out, b"file"))
            return made
        vaultfs_reader.Extraction.prepare = prepared
        self.addCleanup(setattr, vaultfs_reader.Extraction, "prepare", prepare)
        code, _, errors = self.vault.extract()
        self.assertEqual((code, len(errors.splitlines())), (INCOMPLETE, 2))
        self.assertEqual(os.listdir(outside), [])
        self.assertEqual(sorted(os.listdir(self.vault.out)), ["dir", "file"])

    def test_damaged(self):
        """Nothing of a damaged file is written. With --damaged, the parts that verify are."""
        bad = self.vault.file(b"bad", 1, [b"a" * CHUNK, b"b" * CHUNK, b"c"])
        self.vault.file(b"good", 2, [b"text"])
        bad.flip(128 + RECORD + 20)
        code, _, errors = self.vault.extract()
        self.assertEqual(code, INCOMPLETE)
        self.assertIn("bad: not extracted: chunk 1 at 4096", errors)
        self.assertEqual(os.listdir(self.vault.out), ["good"])
        self.vault.out += "2"
        code, _, errors = self.vault.extract("--damaged")
        self.assertEqual(code, DAMAGE)
        self.assertIn("bytes 4096 to 8192", errors)
        self.assertEqual(self.vault.extracted(b"bad"), b"a" * CHUNK + bytes(CHUNK) + b"c")
        self.assertEqual(self.vault.run("bad")[:2], (DAMAGE, b"a" * CHUNK))

    def test_cut(self):
        """Store-3, Store-4."""
        file = self.vault.file(b"file", 1, [b"a" * CHUNK, b"b" * CHUNK])
        whole = read_whole(file.path)
        write_whole(file.path, whole[:128 + RECORD])
        self.assertEqual(self.vault.run("file")[:2], (DAMAGE, b"a" * CHUNK))
        self.assertEqual(self.vault.extract("--damaged")[0], DAMAGE)
        self.assertEqual(self.vault.extracted(b"file"), b"a" * CHUNK + bytes(CHUNK))
        write_whole(file.path, whole + file.record(2, b"more"))
        self.assertEqual(self.vault.run("file")[:2], (DAMAGE, b"a" * CHUNK + b"b" * CHUNK))
        self.vault.put("vaultfs.lock", NOTE)
        self.vault.put("vaultfs.log", bytes(64))
        self.assertEqual(self.vault.run("file")[:2], (0, b"a" * CHUNK + b"b" * CHUNK))

    def test_sparse(self):
        """Holes-1."""
        self.vault.file(b"file", 1, [b"a" * CHUNK] + [None] * 300 + [b"b"], is_sparse=True)
        self.assertEqual(self.vault.extract()[0], 0)
        self.assertEqual(self.vault.extracted(b"file"), b"a" * CHUNK + bytes(300 * CHUNK) + b"b")
        self.assertLess(os.stat(os.path.join(self.vault.out, "file")).st_blocks * 512, 100 * CHUNK)
        self.vault.file(b"file", 1, [None])
        self.assertEqual(self.vault.run("file")[0], DAMAGE)

    def test_hole_of_the_store(self):
        """A hole of the backing file is not read. In a file without holes it is one line of damage."""
        for is_sparse in (True, False):
            file = self.vault.file(b"file", 1, [b"a" * CHUNK], is_sparse=is_sparse, is_sealed=False)
            os.truncate(file.path, 128 + RECORD * (1 << 24))
            self.vault.out += "-"
            code, _, errors = self.vault.extract("--damaged")
            self.assertEqual((code, errors.count("\n")), (0, 0) if is_sparse else (DAMAGE, 1), errors)
            self.assertEqual(os.stat(os.path.join(self.vault.out, "file")).st_size, CHUNK << 24)
        self.assertIn(f"file: bytes {CHUNK} to {CHUNK << 24}: chunks 1 to {(1 << 24) - 1} at {CHUNK}: tag", errors)
        self.vault.put("vaultfs.lock", NOTE)
        self.vault.put("vaultfs.log", bytes(64))
        self.assertEqual(self.vault.run("file")[:2], (0, b"a" * CHUNK))

    def test_runs(self):
        """Adjacent damaged chunks are one line, others are not."""
        file = self.vault.file(b"file", 1, [bytes([65 + i]) * CHUNK for i in range(7)])
        for chunk in (1, 2, 4, 6):
            file.flip(128 + chunk * RECORD + 20)
        self.assertEqual(self.vault.read()[1], [f"file: {which}: tag does not verify" for which in (
            "chunks 1 to 2 at 4096", "chunk 4 at 16384", "chunk 6 at 24576")])
        self.vault.extract("--damaged")
        expected = b"".join(bytes(CHUNK) if i in (1, 2, 4, 6) else bytes([65 + i]) * CHUNK for i in range(7))
        self.assertEqual(self.vault.extracted(b"file"), expected)

    def test_durable_length(self):
        """Store-6: the chunk in which the durable length ends was durable, so after an unclean end it is damage."""
        self.vault.put("vaultfs.lock", NOTE)
        self.vault.put("vaultfs.log", bytes(64))
        chunks = [b"a" * CHUNK, b"b" * CHUNK, b"c" * CHUNK]
        for durable, code, size in [(CHUNK + 1, DAMAGE, CHUNK), (CHUNK, 0, CHUNK), (2 * CHUNK, DAMAGE, CHUNK)]:
            file = self.vault.file(b"file", 1, chunks, is_sealed=False, durable=durable)
            file.flip(128 + RECORD + 20)
            self.assertEqual(self.vault.run("file")[:2], (code, b"a" * size), durable)

    @unittest.skipUnless(hasattr(os, "listxattr"), "only Linux has attributes")
    def test_no_attributes(self):
        """A store may have no extended attributes."""
        self.vault.file(b"file", 1, [b"text"])
        with unittest.mock.patch.object(os, "listxattr", side_effect=OSError(95, "Operation not supported")):
            self.assertEqual(self.vault.extract(), (0, b"", ""))
        self.assertEqual(self.vault.extracted(b"file"), b"text")

    def test_unclean_end(self):
        """Store-6, Store-7, Store-38."""
        file = self.vault.file(b"new", 1, [b"a" * CHUNK, b"b" * CHUNK], is_sealed=False)
        file.flip(-1)
        self.vault.put(os.fsdecode(self.vault.record.encode(b"empty")[0]), b"")
        os.mkdir(os.path.join(self.vault.root, self.vault.record.encode(b"dir")[0]))
        self.assertEqual(len(self.vault.read()[1]), 3)
        self.assertEqual(self.vault.run("new", "--allow-torn-tail")[:2], (0, b"a" * CHUNK))
        self.vault.put("vaultfs.lock", NOTE)
        self.vault.put("vaultfs.log", bytes(64))
        self.assertEqual(self.vault.read()[1], [])
        self.assertEqual(self.vault.run("new")[:2], (0, b"a" * CHUNK))
        self.assertEqual(self.vault.extract()[0], 0)
        self.assertEqual((self.vault.extracted(b"empty"), os.listdir(os.path.join(self.vault.out, "dir"))), (b"", []))

    def test_listing(self):
        self.vault.file(b"file\n", 1, [b"text"])
        self.vault.file(b"g\xff", 2, [b"a" * CHUNK, b"b"])
        self.vault.link(b"link", b"target")
        lines = self.vault.run()[1].splitlines()
        self.assertTrue(lines[0].endswith(b" file\\x0a") and lines[2].endswith(b" link -> target"), lines)
        found = json.loads(self.vault.run("--json")[1])
        self.assertEqual([(f["path"], f["type"], f["size"]) for f in found],
                         [("file\n", "file", 4), ("g\udcff", "file", CHUNK + 1), ("link", "link", 6)])

    @unittest.skipUnless(sys.platform == "linux", "Open file description locks are Linux's.")
    def test_lock(self):
        """Store-29."""
        import fcntl
        with open(os.path.join(self.vault.root, b"vaultfs.lock"), "r+b") as lock:
            fcntl.fcntl(lock, 37, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0) + bytes(4))
            self.assertEqual(self.vault.run()[0], IN_USE)
            self.assertEqual(self.vault.run("--no-lock")[0], 0)

    def test_rekey_step(self):
        """Store-27 bars only a vault that is being rekeyed."""
        self.vault.put("vaultfs.rekey", b"")
        self.assertEqual(self.vault.run()[0], 0)

    def test_arbitrary(self):
        """Conventions-5: the outcome is a value or damage."""
        file = self.vault.file(b"file", 1, [b"a" * CHUNK, b"b"])
        whole, generator = read_whole(file.path), random.Random(1)
        for _ in range(100):
            data = bytearray(whole[:generator.randrange(len(whole) + 1)])
            for _ in range(generator.randrange(3) if data else 0):
                data[generator.randrange(len(data))] = generator.randrange(256)
            write_whole(file.path, data)
            found, damage = self.vault.read()
            self.assertTrue(damage or data == whole)


if __name__ == "__main__":
    unittest.main()
