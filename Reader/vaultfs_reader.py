#!/usr/bin/env python3
"""Reads a vault of vaultfs without vaultfs: one file, for every system with Python 3.9 and `cryptography` 38 or later.

    python3 vaultfs_reader.py VAULT               lists the vault
    python3 vaultfs_reader.py VAULT PATH          writes that file to standard output; lists that directory
    python3 vaultfs_reader.py VAULT --all OUT     extracts everything into the new or empty directory OUT

It never writes to the vault. Every name, length and byte that it shows has been authenticated. It was written from the
format document alone (FileFormat.md; the labels in this file are its requirements), so that it can disagree with
vaultfs. The manual page is vaultfs-reader(1)."""

import argparse
import base64
import calendar
import collections
import errno
import getpass
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import struct
import sys
import time
import unicodedata

try:
    import fcntl
except ImportError:  # Windows has no locks of this kind.
    fcntl = None
try:
    from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
    from cryptography.hazmat.primitives.poly1305 import Poly1305
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
except ImportError:
    sys.exit("vaultfs-reader: needs the Python package cryptography, 38 or later: pip install cryptography")

FAILURE, USAGE, NOT_A_VAULT, WRONG_SECRET, IN_USE, DAMAGE, INCOMPLETE, NOT_KEPT = 1, 2, 3, 4, 5, 8, 11, 12
CODES = """exit codes, as those of vaultfs export:
  0  success
  1  something else failed
  2  wrong usage; no terminal to ask on
  3  not a vault, or its vaultfs.json is damaged or of a newer version
  4  wrong secret; its slot has expired; clock set back
  5  the vault is mounted for writing
  8  damage was found
 11  not everything was extracted or could be read
 12  not every mode, link, attribute or special file was kept"""
HEADER_SIZE = 128
OVERHEAD = 32
BLOCK = 1 << 18
CLASSES = {1: "complete", 2: "unless-open", 3: "until-first-unlock", 4: "none", 5: "inbox"}
# Only directories have class 5 (Inbox-3).
FILE_CLASSES = range(1, 5)
UNLESS_OPEN = 2
KINDS = {stat.S_IFDIR: "dir", stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo",
         stat.S_IFSOCK: "socket", stat.S_IFCHR: "char", stat.S_IFBLK: "block"}


class Failure(Exception):
    """The reason why the program ends, and its exit code."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Damage(Exception):
    """The reason why something does not verify."""


class Report:
    """Writes a line to standard error for everything that is wrong, and counts it for the exit code."""

    def __init__(self, progress=None):
        self.counts = collections.Counter()
        self.progress = progress

    def line(self, text):
        if self.progress:
            self.progress.clear()
        sys.stderr.write(f"vaultfs-reader: {text}\n")

    def about(self, code, path, what):
        """Counts a problem of the object at a path. The code is DAMAGE, INCOMPLETE or NOT_KEPT."""
        self.counts[code] += 1
        self.line(f"{readable(path or b'.')}: {what}")

    def note(self, path, what):
        """Something that a crash leaves, and that does not change the exit code."""
        self.line(f"note: {readable(path or b'.')}: {what}")

    def code(self):
        return next((code for code in (DAMAGE, INCOMPLETE, NOT_KEPT) if self.counts[code]), 0)


class Unheard(Report):
    """Counts only. What it is about is reported when it is read for its own sake."""

    def line(self, text):
        pass


class Progress:
    """A line on standard error that shows how far a long run is. Only for a terminal, and after two seconds."""

    def __init__(self):
        self.started = self.drawn = time.monotonic()
        self.files = self.bytes = self.width = 0
        self.is_wanted = sys.stderr.isatty()

    def add(self, size=0, files=0):
        self.bytes, self.files = self.bytes + size, self.files + files
        now = time.monotonic()
        if self.is_wanted and now - self.started > 2 and now - self.drawn > 0.2:
            rate = self.bytes / (now - self.started) / (1 << 20)
            text = f"{self.files} files, {self.bytes >> 20} MiB, {rate:.0f} MiB/s"
            sys.stderr.write("\r" + text.ljust(self.width))
            sys.stderr.flush()
            self.drawn, self.width = now, len(text)

    def clear(self):
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            self.width = 0


def shown(path):
    """The bytes of a path for a line of text: control characters and backslashes as \\xNN."""
    return b"".join(b"\\x%02x" % c if c < 0x20 or c in (0x5c, 0x7f) else bytes([c]) for c in path)


def readable(path):
    return shown(path).decode("utf-8", "backslashreplace")


# Bytes and primitives (Conventions) --------------------------------------------------------------------------------

def open_regular(path):
    """Opens a regular file for reading, unbuffered, without following a link. Damage if it is something else."""
    other = Damage(f"{readable(os.path.basename(path))}: not a regular file")
    # Not opened at all, because to open a device may have an effect.
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise other
    # It may be replaced meanwhile, so nothing waits for a FIFO and the descriptor is checked again.
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise other from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise other
    return os.fdopen(descriptor, "rb", buffering=0)


def read_at(stream, offset, size):
    """Up to `size` bytes from an offset; fewer only at the end of the file."""
    stream.seek(offset)
    pieces = []
    while size > 0:
        piece = stream.read(size)
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def read_regular(path, limit):
    """Up to `limit` bytes of a regular file."""
    with open_regular(path) as stream:
        return read_at(stream, 0, limit)


def b64u(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def un_b64u(text, what):
    """Conventions-1: canonical base64url without padding, or Damage."""
    if not re.fullmatch(rb"[A-Za-z0-9_-]*", text) or len(text) % 4 == 1:
        raise Damage(f"{what}: not base64url")
    data = base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    if b64u(data) != text:
        raise Damage(f"{what}: base64url is not canonical")
    return data


def hkdf(secret, salt, info, size, context=b""):
    """HKDF with the text `info`, and bytes that follow it."""
    return HKDF(algorithm=SHA256(), length=size, salt=salt, info=info.encode() + context).derive(secret)


def siv_seal(key, components, plaintext):
    return AESSIV(key).encrypt(plaintext, list(components))


def siv_open(key, components, sealed, what):
    if len(sealed) < 17:
        raise Damage(f"{what}: {len(sealed)} bytes are too short to be encrypted")
    try:
        return AESSIV(key).decrypt(sealed, list(components))
    except InvalidTag:
        raise Damage(f"{what}: does not authenticate") from None


def encryptor(key):
    """AES-256 of single blocks."""
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor()


def has_tag(r, one_time, message, tag):
    """True if Poly1305-AES with these 16 bytes of r and of s gives this tag."""
    try:
        Poly1305.verify_tag(r + one_time, message, tag)
    except (InvalidSignature, ValueError):
        return False
    return True


# vaultfs.json ------------------------------------------------------------------------------------------------------

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
NEWER = "vaultfs.json: a newer version of vaultfs wrote it"


def strict_object(pairs):
    """Syntax-2."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise Damage("vaultfs.json: a key twice in one object")
    return dict(pairs)


def strict_integer(text):
    """Syntax-4."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,19}", text) or int(text) >= 1 << 64:
        raise Damage(f"vaultfs.json: integer {text[:30]}")
    return int(text)


def refuse(text):
    raise Damage(f"vaultfs.json: value {text[:30]}")


def check_depth(value, depth=1):
    """Syntax-1 and Syntax-6: nesting of at most 16, and no half surrogate pairs."""
    if depth > 17:
        raise Damage("vaultfs.json: nests deeper than 16")
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for part in value:
            check_depth(part, depth + 1)
    elif isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        raise Damage("vaultfs.json: half a surrogate pair")


def parse_json(data):
    if len(data) > 1 << 20:
        raise Damage("vaultfs.json: larger than 1 MiB")
    if data.startswith(b"\xef\xbb\xbf"):
        raise Damage("vaultfs.json: starts with a byte order mark")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=strict_object, parse_int=strict_integer,
                           parse_float=refuse, parse_constant=refuse)
        check_depth(value)
    except (ValueError, RecursionError) as error:
        raise Damage(f"vaultfs.json: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Damage("vaultfs.json: not an object")
    return value


def check_shape(value, keys, what):
    if not isinstance(value, dict) or set(value) != set(keys):
        raise Damage(f"vaultfs.json: {what} has other keys than {', '.join(sorted(keys))}")


def check_integer(value, what, low, high):
    if type(value) is not int or not low <= value <= high:
        raise Damage(f"vaultfs.json: {what} is {value!r}, not {low} to {high}")
    return value


def check_text(value, pattern, what):
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise Damage(f"vaultfs.json: {what} is {value!r}")
    return value


def check_bytes(value, size, what):
    data = un_b64u(check_text(value, "[!-~]*", what).encode(), f"vaultfs.json: {what}")
    if len(data) != size:
        raise Damage(f"vaultfs.json: {what} is not {size} bytes")
    return data


def seconds(text, what="a time"):
    """Syntax-5: seconds since 1970."""
    check_text(text, TIME, what)
    try:
        parsed = time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        raise Damage(f"vaultfs.json: {what} is {text!r}") from None
    if parsed.tm_sec > 59:
        raise Damage(f"vaultfs.json: {what} is {text!r}")
    return calendar.timegm(parsed)


class Configuration:
    """A vaultfs.json that follows Syntax and Values. Nothing in it is authentic before `open`."""

    def __init__(self, data):
        j = parse_json(data)
        self.check_version(j)
        features = j.get("features")
        has_epochs = isinstance(features, list) and "epochs" in features
        members = ["format", "version", "vault", "chunkSize", "features", "generation", "slots", "mac"]
        check_shape(j, members + (["epoch", "previous"] if has_epochs else []), "the file")
        check_text(j["format"], "vaultfs", "format")
        check_integer(j["version"], "version", 1, 1)
        self.id_hex = check_text(j["vault"], "[0-9a-f]{32}", "vault")
        self.id = bytes.fromhex(self.id_hex)
        self.chunk_size = check_integer(j["chunkSize"], "chunkSize", 4096, 1 << 20)
        if self.chunk_size & (self.chunk_size - 1):
            raise Damage(f"vaultfs.json: chunkSize {self.chunk_size} is not a power of two")
        if not isinstance(features, list) or any(f not in ("epochs", "leases") for f in features) \
                or len(set(features)) != len(features):
            raise Damage("vaultfs.json: features")
        self.features = sorted(features)
        self.epoch, self.previous = 0, None
        if has_epochs:
            self.epoch = check_integer(j["epoch"], "epoch", 1, 255)
            if j["previous"] is not None:
                self.previous = check_bytes(j["previous"], 48, "previous")
        self.generation = check_integer(j["generation"], "generation", 0, 2**64 - 1)
        if not isinstance(j["slots"], list) or not 1 <= len(j["slots"]) <= 64:
            raise Damage("vaultfs.json: not 1 to 64 slots")
        has_leases = "leases" in features
        self.slots = sorted((self.checked_slot(s, has_leases) for s in j["slots"]), key=lambda s: s["id"])
        if any(s.get("window") for s in self.slots) != has_leases:
            raise Damage("vaultfs.json: feature leases without a window")
        if len({s["id"] for s in self.slots}) != len(self.slots):
            raise Damage("vaultfs.json: a slot id twice")
        self.mac = check_bytes(j["mac"], 32, "mac")

    @staticmethod
    def check_version(j):
        """Values-1: comes before every other rule but those of the syntax."""
        version, features, slots = j.get("version"), j.get("features"), j.get("slots")
        if type(version) is int and version != 1:
            raise Damage(f"{NEWER}: version {version}")
        for feature in features if isinstance(features, list) else []:
            if isinstance(feature, str) and feature not in ("epochs", "leases"):
                raise Damage(f"{NEWER}: feature {feature!r}")
        for slot in slots if isinstance(slots, list) else []:
            kdf = slot.get("kdf") if isinstance(slot, dict) else None
            if isinstance(kdf, dict) and isinstance(kdf.get("name"), str) \
                    and kdf["name"] not in ("scrypt", "hkdf-sha256"):
                raise Damage(f"{NEWER}: key derivation {kdf['name']!r}")
            if isinstance(slot, dict) and isinstance(slot.get("kind"), str) \
                    and slot["kind"] not in ("passphrase", "keyfile", "recovery"):
                raise Damage(f"{NEWER}: slot kind {slot['kind']!r}")

    @staticmethod
    def checked_slot(s, has_leases):
        keys = ["id", "kind", "label", "created", "expires", "kdf", "sealed"]
        check_shape(s, keys + (["window"] if has_leases and isinstance(s, dict) and "window" in s else []), "a slot")
        check_integer(s["id"], "slot id", 0, 2**64 - 1)
        check_text(s["kind"], "passphrase|keyfile|recovery", "slot kind")
        check_text(s["label"], "(?s).*", "slot label")
        seconds(s["created"], "created")
        if s["expires"] is not None:
            seconds(s["expires"], "expires")
        if s.get("window") is not None:
            Configuration.check_window(s["window"])
        kdf = s["kdf"]
        if s["kind"] == "passphrase":
            check_shape(kdf, ["name", "logN", "r", "p", "salt"], "kdf")
            check_text(kdf["name"], "scrypt", "kdf name")
            log_n, r = check_integer(kdf["logN"], "logN", 10, 20), check_integer(kdf["r"], "r", 1, 32)
            if max(r, 8) * check_integer(kdf["p"], "p", 1, 16) << log_n > 1 << 23:
                raise Damage("vaultfs.json: scrypt takes more than logN 20, r 8, p 1")
        else:
            check_shape(kdf, ["name", "salt"], "kdf")
            check_text(kdf["name"], "hkdf-sha256", "kdf name")
        check_bytes(kdf["salt"], 32, "salt")
        check_bytes(s["sealed"], 48, "sealed")
        return s

    @staticmethod
    def check_window(w):
        """Leases-3."""
        check_shape(w, ["seconds", "started", "seen"], "a window")
        check_integer(w["seconds"], "window seconds", 1, 2**32 - 1)
        if (w["started"], w["seen"]) != (None, None) and seconds(w["started"]) > seconds(w["seen"]):
            raise Damage("vaultfs.json: a window seen before it was started")

    def head(self, features):
        """The head lines (Slots)."""
        names = ",".join(features) or "-"
        return f"vaultfs 1\nvault {self.id_hex}\nchunk {self.chunk_size}\nfeatures {names}\n".encode()

    def sealing_head(self):
        """The head lines without late features, for what is encrypted under a slot's or a master key."""
        return self.head([f for f in self.features if f != "leases"])

    def open(self, kind, secret, now=None):
        """The vault's keys, by the first slot of this kind that the secret opens and that may be used now (seconds
        since 1970). Slots-2, Mac-1, Leases-1."""
        refusal = None
        for s in self.slots:
            if s["kind"] != kind:
                continue
            bound = self.sealing_head() + f"slot {s['id']} {s['kind']} {s['expires'] or '-'}\n".encode()
            try:
                master = siv_open(self.slot_key(s, secret), [bound], un_b64u(s["sealed"].encode(), ""), "slot")
            except Damage:
                continue
            self.check_mac(master)
            refusal = self.lease_refusal(s, time.time() if now is None else now)
            if refusal is None:
                return Keys(self, master)
        raise Failure(WRONG_SECRET, refusal or f"no {kind} slot opens with this secret")

    @staticmethod
    def slot_key(s, secret):
        """The slot's KEK: 64 bytes."""
        kdf, salt = s["kdf"], un_b64u(s["kdf"]["salt"].encode(), "")
        if kdf["name"] == "hkdf-sha256":
            return hkdf(secret, salt, "vaultfs 1 kek", 64)
        try:
            return Scrypt(salt=salt, length=64, n=1 << kdf["logN"], r=kdf["r"], p=kdf["p"]).derive(secret)
        except MemoryError:
            need = 128 * kdf["r"] << kdf["logN"] >> 20
            raise Failure(FAILURE, f"slot {s['id']}: scrypt needs {need} MiB of memory") from None

    @staticmethod
    def lease_refusal(s, now):
        """The reason why a slot must not be used now (Leases-1, Leases-2). None if it may."""
        window, name = s.get("window"), f"slot {s['id']}"
        if s["expires"] is None and window is None:
            return None
        if s["expires"] is not None and now >= seconds(s["expires"]):
            return f"{name} has expired: {s['expires']}"
        if window is not None and window["started"] is None:
            # Its beginning must be recorded in the vault, and this program writes nothing there.
            return f"the play window of {name} has not begun: mount or export the vault with vaultfs first"
        if window is not None and now >= seconds(window["started"]) + window["seconds"]:
            return f"the play window of {name} has ended"
        if now < seconds(window["seen"] if window else s["created"]) or now < seconds(s["created"]):
            return f"the clock is before a time that {name} has seen"
        return None

    def check_mac(self, master):
        message = self.head(self.features) + f"generation {self.generation}\n".encode()
        if "epochs" in self.features:
            previous = b64u(self.previous).decode() if self.previous else "-"
            message += f"epoch {self.epoch}\nprevious {previous}\n".encode()
        for s in self.slots:
            kdf, w = s["kdf"], s.get("window")
            derivation = f"hkdf-sha256,{kdf['salt']}"
            if kdf["name"] == "scrypt":
                derivation = f"scrypt,{kdf['logN']},{kdf['r']},{kdf['p']},{kdf['salt']}"
            label = b64u(s["label"].encode()).decode() or "-"
            window = f" window {w['seconds']},{w['started'] or '-'},{w['seen'] or '-'}" if w else ""
            message += (f"slot {s['id']} {s['kind']} {s['expires'] or '-'} {s['created']} {label} {derivation} "
                        f"{s['sealed']}{window}\n").encode()
        mac = hmac.digest(hkdf(master, self.id, "vaultfs 1 config", 32), message, "sha256")
        if not hmac.compare_digest(mac, self.mac):
            raise Damage("vaultfs.json: its mac does not verify: try a copy of the file")


def recovery_secret(text):
    """Secrets-3: the 32 bytes of a recovery key."""
    digits = re.sub(r"[\s-]", "", text).lower()
    if not re.fullmatch("[0-9a-f]{72}", digits):
        raise Failure(WRONG_SECRET, "recovery key: not 72 hexadecimal digits")
    secret = bytes.fromhex(digits[:64])
    if hashlib.sha256(secret).hexdigest()[:8] != digits[64:]:
        raise Failure(WRONG_SECRET, "recovery key: the check digits disagree, so some digit is wrong")
    return secret


class Keys:
    """The keys of an open vault by key epoch (Keys): two epochs while a rekey is unfinished."""

    def __init__(self, configuration, master):
        self.vault, self.chunk_size, self.epoch = configuration.id, configuration.chunk_size, configuration.epoch
        masters = {configuration.epoch: master}
        if configuration.previous is not None:
            bound = configuration.sealing_head() + f"previous {configuration.epoch - 1}\n".encode()
            key = hkdf(master, self.vault, "vaultfs 1 previous", 64)
            masters[configuration.epoch - 1] = siv_open(key, [bound], configuration.previous, "vaultfs.json: previous")
        self.log_keys = [hkdf(masters[e], self.vault, "vaultfs 1 log", 80) for e in sorted(masters, reverse=True)]
        self.of_class = {e: {c: hkdf(m, self.vault, f"vaultfs 1 class {c}", 64) for c in CLASSES}
                         for e, m in masters.items()}
        self.of_links = {e: {c: hkdf(m, self.vault, f"vaultfs 1 links {c}", 64) for c in FILE_CLASSES}
                         for e, m in masters.items()}
        self.inboxes = {e: Inbox(self.vault, keys[UNLESS_OPEN]) for e, keys in self.of_class.items()}


class Inbox:
    """The keys of one epoch that open what was wrapped to its public key (Inbox)."""

    def __init__(self, vault, class_key):
        derived = hkdf(class_key, vault, "vaultfs 1 inbox", 64)
        self.vault, self.sender_key = vault, derived[32:]
        self.private_key = X25519PrivateKey.from_private_bytes(derived[:32])
        self.public_key = self.private_key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def wrap_key(self, ephemeral):
        """The key that wraps the secret of the file with this ephemeral public key."""
        try:
            shared = self.private_key.exchange(X25519PublicKey.from_public_bytes(ephemeral))
        except ValueError:
            # Inbox-1: the shared secret is zeros.
            raise Damage("header: ephemeral public key") from None
        context = ephemeral + self.public_key
        return hkdf(shared + self.sender_key, self.vault, "vaultfs 1 inbox wrap", 64, context)


# Headers, names, links, attributes ---------------------------------------------------------------------------------

class FileHeader:
    """The first 128 bytes of a backing file, authenticated (Header-1, Header-2), and the file's keys."""

    def __init__(self, data, keys):
        if len(data) != HEADER_SIZE:
            raise Damage(f"no header: {len(data)} bytes")
        magic, version, self.protection_class, wrap, epoch, self.file_id = struct.unpack_from("<4sBBBB8s", data)
        is_wrap_allowed = wrap == 0 and not any(data[64:96]) or wrap == 1 and self.protection_class == UNLESS_OPEN
        if magic != b"VFSF" or version != 1 or self.protection_class not in FILE_CLASSES or not is_wrap_allowed \
                or epoch not in keys.of_class:
            raise Damage("header: magic, version, class, wrap, epoch or reserved bytes")
        self.length, state = struct.unpack_from("<QQ", data, 96)
        flags, self.seal_counter = state & 255, state >> 8
        if flags & ~7:
            raise Damage(f"header: flags {flags:#x}")
        self.sealed, self.sparse = bool(flags & 1), bool(flags & 2)
        key = keys.inboxes[epoch].wrap_key(data[64:96]) if wrap else keys.of_class[epoch][self.protection_class]
        secret = siv_open(key, [data[:16]], data[16:64], "header: file secret")
        derived = hkdf(secret, keys.vault, "vaultfs 1 file", 176)
        self.cipher_key, self.mac_key, self.mac_r = derived[:32], derived[32:64], derived[64:80]
        self.xattr_key = derived[112:176]
        self.mac_cipher, self.block_cipher = encryptor(self.mac_key), encryptor(self.cipher_key)
        expected = hmac.digest(derived[80:112], data[:112], "sha256")[:16]
        if not hmac.compare_digest(expected, data[112:128]):
            raise Damage("header: state does not authenticate")

    def open_record(self, index, record):
        """The plaintext of a chunk record (Chunk records), or None if its tag does not verify."""
        if len(record) <= OVERHEAD:
            return None
        iv, body, tag = record[:16], record[16:-16], record[-16:]
        if not has_tag(self.mac_r, self.mac_cipher.update(iv), body + struct.pack("<Q", index), tag):
            return None
        whole = len(body) // 16 * 16
        plain = Cipher(algorithms.AES(self.cipher_key), modes.CBC(iv)).decryptor().update(body[:whole])
        if len(body) > whole:
            mask = self.block_cipher.update(body[whole - 16:whole] if whole else iv)
            plain += bytes(a ^ b for a, b in zip(body[whole:], mask))
        return plain


def plaintext_length(size, chunk_size):
    """Sizes: bytes of plaintext in a backing file of `size` bytes."""
    if size < HEADER_SIZE:
        return 0
    full, rest = divmod(size - HEADER_SIZE, chunk_size + OVERHEAD)
    return full * chunk_size + max(0, rest - OVERHEAD)


def backing_size(length, chunk_size):
    """Sizes: bytes of the backing file of `length` bytes of plaintext."""
    full, rest = divmod(length, chunk_size)
    return HEADER_SIZE + full * (chunk_size + OVERHEAD) + (rest + OVERHEAD if rest else 0)


class DirectoryRecord:
    """A vaultfs.dir, authenticated (Directory-1, Directory-2, Store-11)."""

    def __init__(self, data, keys, is_root):
        if len(data) != 64:
            raise Damage(f"vaultfs.dir: {len(data)} bytes, not 64")
        magic, version, self.protection_class, flags, epoch = struct.unpack_from("<4sBBBB", data)
        if magic != b"VFSD" or version != 1 or self.protection_class not in CLASSES \
                or epoch not in keys.of_class or any(data[8:16]) or flags != (1 if is_root else 0):
            raise Damage("vaultfs.dir: magic, version, class, flags, epoch or reserved bytes")
        secret = siv_open(keys.of_class[epoch][self.protection_class], [data[:16]], data[16:], "vaultfs.dir: secret")
        derived = hkdf(secret, keys.vault, "vaultfs 1 directory", 128)
        self.name_key, self.xattr_key = derived[:64], derived[64:]

    def encode(self, name):
        """(entry, blob of the sidecar or None) of a name."""
        blob = siv_seal(self.name_key, [b"name"], name + bytes(-len(name) % 16))
        entry = b64u(blob)
        if len(entry) <= 255:
            return entry, None
        return b"vaultfs.long." + b64u(hashlib.sha256(blob).digest()), blob

    def decode(self, entry, sidecar):
        """The name of an entry (Names-1, Names-3). `sidecar`: the bytes beside a long entry, or None."""
        blob = sidecar if entry.startswith(b"vaultfs.long.") else un_b64u(entry, "name")
        if blob is None:
            raise Damage("name: the sidecar is missing")
        name = siv_open(self.name_key, [b"name"], blob, "name").rstrip(b"\0")
        if not 1 <= len(name) <= 255 or b"/" in name or b"\0" in name or name in (b".", b".."):
            raise Damage("name: not a name that a file may have")
        if self.encode(name)[0] != entry:
            raise Damage("name: spelled in another way than it encodes to")
        return name


DIGIT = rb"[A-Za-z0-9_-]"
LONG_ENTRY = re.compile(rb"vaultfs\.long\." + DIGIT + rb"{43}")
ADDITION = rb"([^A-Za-z0-9_-].*)"
ADDED_AFTER = re.compile(rb"(?s)(vaultfs\.long\." + DIGIT + rb"{43}|" + DIGIT + rb"{43,})" + ADDITION)
ADDED_BEFORE_DOT = re.compile(rb"(?s)vaultfs\.long" + ADDITION + rb"(\." + DIGIT + rb"{43})")


def twins(entry):
    """[(entry of the twin, addition)] that an entry may be made of, if it is a conflict copy (Names-6)."""
    if entry.startswith(b"vaultfs.long") and entry.endswith(b".name"):
        return []
    after, before = ADDED_AFTER.fullmatch(entry), ADDED_BEFORE_DOT.fullmatch(entry)
    found = [(after[1], after[2])] if after and not (entry.startswith(b"vaultfs.") and after[2].startswith(b".name")) else []
    return found + ([(b"vaultfs.long" + before[2], before[1])] if before else [])


# Control characters, line ends, and what is invisible or changes the writing direction (Names-7).
HIDDEN = [range(0, 0x20), range(0x7F, 0xA0), [0xAD, 0x61C, 0x180E, 0xFEFF], range(0x200B, 0x2010), range(0x2028, 0x202F),
          range(0x2060, 0x2070), range(0xFFF9, 0xFFFC), range(0xE0000, 0xE0080)]


def shown_addition(twin, addition):
    """The addition as people read it."""
    text = addition
    if re.match(rb"\." + DIGIT, addition) or addition.startswith(b" ("):
        text = addition[1:]
    elif addition.startswith(b"("):
        text = b" " + addition
    pieces = []
    for character in text.decode("utf-8", "surrogateescape"):
        data = character.encode("utf-8", "surrogateescape")
        is_invalid = 0xDC80 <= ord(character) <= 0xDCFF
        if is_invalid or character == "%" or any(ord(character) in hidden for hidden in HIDDEN):
            pieces += [b"%%%02X" % byte for byte in data]
        else:
            pieces.append(data)
    room = 255 - len(twin)
    if sum(map(len, pieces)) <= room:
        return b"".join(pieces)
    end = b"~" + b64u(hashlib.sha256(addition).digest())[:8]
    kept = b""
    for piece in pieces:
        if len(kept + piece + end) > room:
            break
        kept += piece
    return kept + end


def copy_name(name, twin, addition, is_before_digits=False):
    """The plaintext name of a conflict copy, from its twin's name and entry (Names-7). `is_before_digits`: the addition is
    there in a long entry, not at the end."""
    dot = name.rfind(b".")
    if dot < 0 or not name[:dot].strip(b".") or len(name) - dot > 32:
        dot = len(name)
    stem, extension = name[:dot], name[dot:]
    end = b" (conflict " + shown_addition(twin, addition) + (b"%" if is_before_digits else b"") + b")" + extension
    if len(stem) + len(end) > 255:
        end = b"~" + twin[-43:][:8] + end
        cut = 255 - len(end)
        while cut > 0 and stem[cut] & 0xc0 == 0x80:
            cut -= 1
        stem = stem[:max(cut, 0)]
    return stem + end


def open_link(stored, keys):
    """(class, target) of a stored target (Symbolic links, Epochs-4)."""
    protection_class = stored[0] - 0x30 if stored else 0
    if protection_class not in FILE_CLASSES:
        raise Damage("link: class")
    data = un_b64u(stored[1:], "link")
    if len(data) < 33:
        raise Damage("link: too short")
    for epoch in sorted(keys.of_links):
        try:
            key = keys.of_links[epoch][protection_class]
            target = siv_open(key, [b"link", data[:16]], data[16:], "link target")
        except Damage:
            continue
        if b"\0" in target or len(target) > 3000:
            raise Damage("link target: not one that a link may have")
        return protection_class, target
    raise Damage("link target: does not authenticate")


PACK = b"user.vaultfs.pack"


def open_attribute(stored_name, value, key):
    """(name, value) of a stored attribute (Attributes-2, Attributes-3)."""
    inner = siv_open(key, [b"name"], un_b64u(stored_name[len(b"user.vaultfs."):], "attribute name"), "attribute name")
    opened = siv_open(key, [b"value", inner], value, "attribute value")
    if opened[:1] != b"\0":
        raise Damage("attribute value: does not start with 0")
    return b"user." + inner, opened[1:]


def open_pack(value, key):
    """[(name, value)] of a pack (Attributes-4)."""
    rest = siv_open(key, [b"pack"], value, "pack of attributes")
    if rest[:1] != b"\0":
        raise Damage("pack of attributes: does not start with 0")
    rest, found = rest[1:], []
    while rest:
        n = rest[0]
        size = int.from_bytes(rest[1 + n:3 + n], "little")
        if len(rest) < 3 + n + size:
            raise Damage("pack of attributes: cut short")
        name, attribute, rest = rest[1:1 + n], rest[3 + n:3 + n + size], rest[3 + n + size:]
        if not 0 < n <= 165 or b"\0" in name or name.startswith(b"vaultfs.") or found and name <= found[-1][0]:
            raise Damage("pack of attributes: name")
        found.append((name, attribute))
    return [(b"user." + name, attribute) for name, attribute in found]


# The redo log (Log) ------------------------------------------------------------------------------------------------

LOG, LOCK = b"vaultfs.log", b"vaultfs.lock"
LOG_MAGIC = b"vaultfs log 1\n\0\0"
LOG_AREA = 4096
LOG_ALIGNMENT = 64
LOG_HEAD = 80
TAG_SIZE = 16
RECORDS, LENGTH, HOLE, LOST = 1, 2, 3, 4


def aligned(offset):
    return -(-offset // LOG_ALIGNMENT) * LOG_ALIGNMENT


class LogEntry:
    """One entry, by its head. `is_torn` is true if its body does not verify."""

    def __init__(self, head, offset):
        (self.sequence, self.file_id, self.first, self.end, self.length, self.time, state, self.distance,
         self.body_size) = struct.unpack("<Q8sQQQQQII", head)
        self.offset = offset
        self.seal_counter = state & (1 << 56) - 1
        self.kind, self.is_exact = state >> 56 & 127, bool(state >> 63)
        self.durable = self.sequence - self.distance
        self.is_torn = False

    @property
    def size(self):
        return LOG_HEAD + (self.body_size + TAG_SIZE if self.body_size else 0)

    @property
    def is_lost(self):
        """True if the entry had records that cannot be read any more."""
        return self.kind == LOST or self.is_torn

    def is_possible(self, chunk_size, log_size):
        """True if the fields agree with each other as the table of the format says."""
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

    def records(self, chunk_size):
        """(chunk, offset in the log, size) of each record, also of lost ones."""
        total = self.body_size if self.kind == RECORDS else self.end
        for number, start in enumerate(range(0, total, chunk_size + OVERHEAD)):
            yield self.first + number, self.offset + LOG_HEAD + start, min(chunk_size + OVERHEAD, total - start)


def are_records(size, chunk_size):
    """True if adjacent records, all full but perhaps the last, can have this size."""
    rest = size % (chunk_size + OVERHEAD)
    return size > 0 and (rest == 0 or rest > OVERHEAD)


class FileChanges:
    """The changes of one file in the log: (offset, size) of its records by chunk, None for a lost one; its holes; its
    exact length."""

    def __init__(self, log):
        self.log, self.chunk_size = log, log.chunk_size
        self.records, self.holes, self.exact, self.lost_reach, self.seal_counter = {}, [], None, 0, 0

    def apply(self, entry):
        """Log-2, Log-10."""
        self.seal_counter = entry.seal_counter
        count, chunks = -(-entry.length // self.chunk_size), range(0)
        if entry.kind == HOLE:
            chunks = range(entry.first, entry.end)
            self.records = {c: r for c, r in self.records.items() if c not in chunks}
            self.holes.append(chunks)
        elif entry.kind != LENGTH:
            for chunk, offset, size in entry.records(self.chunk_size):
                self.records[chunk] = None if entry.is_lost else (offset, size)
            chunks = range(entry.first, chunk + 1)
        if entry.is_exact:
            if self.exact is None or entry.length < self.exact or chunks.stop > count:
                self.records = {c: r for c, r in self.records.items() if c < count}
                self.holes = [range(h.start, min(h.stop, count)) for h in self.holes if h.start < count]
            self.exact, self.lost_reach = entry.length, 0
        elif entry.is_lost:
            self.lost_reach = max(self.lost_reach, chunk * self.chunk_size + size - OVERHEAD)

    def length(self, size):
        """The file's length with these changes, over a backing file of `size` bytes."""
        if self.exact is not None:
            return max(self.exact, self.lost_reach)
        ends = [c * self.chunk_size + r[1] - OVERHEAD for c, r in self.records.items() if r is not None]
        return max([plaintext_length(size, self.chunk_size), self.lost_reach] + ends)

    def unseals(self, header):
        """Store-3: true if the file is not sealed any more with these changes."""
        reach = self.length(backing_size(header.length, self.chunk_size))
        return self.exact is not None or reach > header.length or self.seal_counter > header.seal_counter

    def record(self, chunk, stored):
        """The record of a chunk: the log's, zeros for a hole, or the stored one. None if it is lost."""
        if chunk in self.records:
            found = self.records[chunk]
            return found and self.log.read(*found)
        if any(chunk in hole for hole in self.holes):
            return bytes(len(stored))
        return stored


class Log:
    """The entries that count, by file id. `problems`: those of the log as a whole, (exit code, text). Bodies stay on
    disk."""

    def __init__(self, stream=None, keys=None, is_after_clean_end=False):
        self.problems, self.entries, self.stream = [], {}, stream
        header = self.read(0, 64) if stream else b""
        self.data_size = os.fstat(stream.fileno()).st_size if stream else 0
        if not any(header) and self.data_size <= LOG_AREA:
            return
        self.chunk_size = keys.chunk_size
        self.parse_header(header)
        if self.salt == 0 or self.data_size <= LOG_AREA:
            return
        for key in keys.log_keys:
            self.tag_cipher, self.tag_r = encryptor(key[32:64]), key[64:80]
            if self.is_authentic(header[:48], 1 << 63 | self.start, header[48:]):
                break
        else:
            raise Damage("its header's tag is wrong")
        found, gaps = self.search()
        if not is_after_clean_end:
            self.select(found, gaps)
        elif found:
            # Log-12.
            self.problems.append((DAMAGE, f"{len(found)} entries after a clean end: not applied"))

    @classmethod
    def of_vault(cls, root, keys, lock):
        """The log of a vault with these bytes in its lock file. If it cannot be used, that is a problem, and the vault
        is read without it (Store-31)."""
        log = cls()
        try:
            log.stream = open_regular(os.path.join(root, LOG))
            if os.fstat(log.stream.fileno()).st_nlink > 1:
                raise Damage("vaultfs.log: not a regular file with one name")
            return cls(log.stream, keys, lock == b"\n")
        except FileNotFoundError:
            # Log-15, with the unclean end of Store-38.
            if lock not in (b"", b"\n"):
                log.problems.append((DAMAGE, "missing after an unclean end: it may have had entries"))
        except Damage as damage:
            what = str(damage).replace("vaultfs.log: ", "")
            log.problems.append((DAMAGE, f"{what}: the vault is read without it"))
        except OSError as error:
            log.problems.append((INCOMPLETE, f"cannot be read: {error.strerror}: the vault is read without it"))
        return log

    def read(self, offset, size):
        return read_at(self.stream, offset, size)

    def parse_header(self, data):
        """Log-8."""
        self.size, self.salt, self.start, self.first_offset = struct.unpack_from("<QQQQ", data.ljust(64, b"\0"), 16)
        least = max(1 << 20, 8 * (self.chunk_size + OVERHEAD))
        if len(data) < 64 or data[:16] != LOG_MAGIC or not least <= self.size <= 1 << 30 \
                or not LOG_AREA <= self.first_offset <= self.size or self.first_offset % LOG_ALIGNMENT \
                or not 0 < self.start < 1 << 62:
            raise Damage("it does not begin with a header")
        if self.salt == 0 and (self.data_size > LOG_AREA or self.start != 1 or self.first_offset != LOG_AREA
                               or any(data[48:])):
            raise Damage("its header is damaged")

    def is_authentic(self, message, number, tag):
        """True if the tag of a head, a body or the header is right."""
        one_time = self.tag_cipher.update(struct.pack("<QQ", number, self.salt))
        return has_tag(self.tag_r, one_time, message + struct.pack("<Q", number), tag)

    def entry(self, offset, sequence):
        """The entry with this number at an offset. None if its head is not there."""
        head = self.read(offset, LOG_HEAD)
        if len(head) < LOG_HEAD:
            return None
        entry = LogEntry(head[:64], offset)
        if entry.sequence != sequence or offset + entry.size > self.size \
                or not entry.is_possible(self.chunk_size, self.size) \
                or not self.is_authentic(head[:64], 1 << 62 | sequence, head[64:]):
            return None
        if entry.body_size:
            body = self.read(offset + LOG_HEAD, entry.body_size + TAG_SIZE)
            entry.is_torn = not self.is_authentic(body[:entry.body_size], sequence, body[entry.body_size:])
        return entry

    def search(self):
        """(the entries that are there, in order; the ranges of missing numbers between them)"""
        found, gaps, later = [], [], None
        sequence, offset = self.start, self.first_offset
        while True:
            entry = self.entry(offset, sequence) or self.entry(LOG_AREA, sequence)
            if entry is None:
                later = self.later(sequence) if later is None else later
                while later and later[0].sequence < sequence:
                    later.popleft()
                if not later:
                    return found, gaps
                entry = later[0]
                gaps.append(range(sequence, entry.sequence))
            found.append(entry)
            sequence, offset = entry.sequence + 1, aligned(entry.offset + entry.size)

    def later(self, sequence):
        """The entries after a missing one that are there, wherever they are, by number."""
        # An offset has at most one entry.
        numbers = range(sequence + 1, sequence + 1 + self.size // LOG_ALIGNMENT)
        found, end = [], min(self.data_size, self.size) // LOG_ALIGNMENT * LOG_ALIGNMENT
        for start in range(LOG_AREA, end, BLOCK):
            block = self.read(start, min(BLOCK, end - start))
            # The file may be a hole of any size.
            if not block.strip(b"\0"):
                continue
            firsts = struct.iter_unpack("<Q56x", block[:len(block) // LOG_ALIGNMENT * LOG_ALIGNMENT])
            heads = [(n, start + i * LOG_ALIGNMENT) for i, (n,) in enumerate(firsts) if n in numbers]
            found += filter(None, (self.entry(offset, n) for n, offset in heads))
        return collections.deque(sorted(found, key=lambda entry: entry.sequence))

    def select(self, found, gaps):
        """Log-3 and Log-10: the entries up to the torn tail count. Entries that are missing or torn before it were
        durable, so they are damage."""
        durable = max((entry.durable for entry in found), default=0)
        absent = gaps + [range(e.sequence, e.sequence + 1) for e in found if e.is_torn]
        tail = min((max(n.start, durable + 1) for n in absent if n.stop > durable + 1), default=1 << 64)
        count = sum(min(n.stop, tail) - n.start for n in absent if n.start < tail)
        if count:
            self.problems.append((DAMAGE, f"{count} entries of it cannot be read"))
        for entry in found:
            if entry.sequence < tail:
                self.entries.setdefault(entry.file_id, []).append(entry)

    def changes(self, file_id, seal_counter):
        """(the changes of the file whose header has this counter, or None; the number of entries that it refuses). That
        a file has the id is not enough: see Vault.changes."""
        entries = self.entries.get(file_id, [])
        # Log-11. A later entry shows that the file was sealed since, as its header does.
        state = max([seal_counter] + [e.seal_counter for e in entries])
        current = [e for e in entries if e.seal_counter == state]
        changes = FileChanges(self) if current else None
        for entry in current:
            changes.apply(entry)
        return changes, len(entries) - len(current)


# The vault ---------------------------------------------------------------------------------------------------------

class Item:
    """An object of the vault: its path, its backing path, its status (stat(2)). `is_copy`: it is a conflict copy, or in
    one. A directory has a `record`, or None if it is empty after an unclean end, and the name keys of those above it. A link
    has a `target`."""

    def __init__(self, path, backing, status, is_copy, name_keys=frozenset()):
        self.path, self.backing, self.status, self.is_copy = path, backing, status, is_copy
        self.name_keys = name_keys
        self.kind = KINDS.get(stat.S_IFMT(status.st_mode), "other")
        self.protection_class = self.record = self.target = None


class Vault:
    """An open vault. `root` is the path of its directory, in bytes. `ends_torn`: see OpenFile."""

    # Nanoseconds. The clock that the kernel gives files their times from may be as late as this.
    CLOCK_TICK = 10**7

    def __init__(self, root, keys, report, ends_torn=False, locks=False):
        self.path, self.keys, self.report, self.ends_torn, self.lock_stream = root, keys, report, ends_torn, None
        self.logged_ids = None
        self.lock = self.read_lock(locks)
        self.is_unclean = self.lock not in (b"", b"\n")
        self.log = Log.of_vault(root, keys, self.lock)
        for code, what in self.log.problems:
            report.about(code, LOG, what)
        try:
            self.root = Item(b"", root, os.stat(root), False)
            self.is_readable = self.load(self.root, 0)
        except BaseException:
            self.__exit__()
            raise

    def read_lock(self, locks):
        """The lock file's bytes. With `locks` the file gets a shared lock (Store-29), or the vault is in use. If they
        cannot be read, the end of the last mount is unknown, and nothing counts as left by an unclean end."""
        unknown = "whether the vault is mounted, or was cleanly unmounted, is not known"
        try:
            self.lock_stream = open_regular(os.path.join(self.path, LOCK))
            if locks and fcntl:
                self.lock_shared()
            return read_at(self.lock_stream, 0, 4096)
        except FileNotFoundError:
            pass
        except Damage:
            self.report.about(DAMAGE, LOCK, f"not a regular file: {unknown}")
        except OSError as error:
            if locks:
                what = f"vaultfs.lock: cannot be read: {error.strerror}: give --no-lock to read the vault without it"
                raise Failure(FAILURE, what) from None
            self.report.about(INCOMPLETE, LOCK, f"cannot be read: {error.strerror}: {unknown}")
        return b""

    def lock_shared(self):
        try:
            fcntl.lockf(self.lock_stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise Failure(IN_USE, "the vault is mounted for writing: unmount it, or give --no-lock") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for stream in (self.lock_stream, self.log.stream):
            if stream:
                stream.close()

    def load(self, item, parent_class):
        """Reads the record of a directory. Returns false, and reports, if it is damaged."""
        item.protection_class = parent_class
        try:
            data = read_regular(os.path.join(item.backing, b"vaultfs.dir"), 65)
            item.record = DirectoryRecord(data, self.keys, item.path == b"")
            if item.record.name_key in item.name_keys:
                raise Damage("vaultfs.dir: the record of a directory above (Directory-4)")
            item.protection_class = item.record.protection_class
        except (Damage, FileNotFoundError) as problem:
            if not self.is_incomplete(item):
                what = problem if isinstance(problem, Damage) else "vaultfs.dir: missing"
                self.report.about(DAMAGE, item.path, what)
                return False
            self.report.note(item.path, "no vaultfs.dir after an unclean end: an empty directory")
        return True

    def is_incomplete(self, item):
        """True for a directory that Store-38 makes an empty one."""
        if not self.is_unclean or item.is_copy or not item.path:
            return False
        for entry in os.listdir(item.backing):
            status = os.lstat(os.path.join(item.backing, entry))
            is_part = entry == b"vaultfs.dir" and stat.S_ISREG(status.st_mode) and status.st_size < 64
            if not is_part and not entry.startswith(b"vaultfs.tmp."):
                return False
        return True

    def walk(self, folder):
        """Everything below a directory, by path."""
        for item in self.children(folder):
            yield item
            if item.kind == "dir":
                yield from self.walk(item)

    def find(self, path):
        """The object at a path in the vault."""
        item = self.root
        for name in filter(None, path.split(b"/")):
            if name == b".":
                continue
            found = self.children(item, name) if item.kind == "dir" else []
            if not found:
                raise Failure(self.report.code() or FAILURE, f"{readable(path)}: not found in the vault")
            item = found[0]
        return item

    def children(self, folder, only=None):
        """The objects in a directory, by name, or only the one of this name. Damaged ones are reported and left out."""
        if folder.record is None:
            return []
        try:
            names = self.names(folder)
        except OSError as error:
            self.report.about(INCOMPLETE, folder.path, f"cannot be read: {error.strerror}")
            return []
        loaded = (self.child(folder, name, *names[name]) for name in sorted(names) if only in (None, name))
        return [item for item in loaded if item]

    def names(self, folder):
        """{name: (entry, is a conflict copy)} of a directory."""
        names, others = {}, []
        for entry in sorted(os.listdir(folder.backing)):
            try:
                if not entry.startswith(b"vaultfs.") or LONG_ENTRY.fullmatch(entry):
                    names[folder.record.decode(entry, self.sidecar(folder, entry))] = entry, False
                elif twins(entry):
                    raise Damage("name: the one that it is a conflict copy of does not authenticate")
            except Damage as problem:
                others.append((entry, problem))
            except OSError as error:
                self.unreadable_name(folder, entry, error)
        for entry, problem in others:
            try:
                name = self.name_of_copy(folder, entry)
            except OSError as error:
                self.unreadable_name(folder, entry, error)
                continue
            if name is not None:
                names.setdefault(name, (entry, True))
            elif self.is_damaged_name(folder, entry):
                self.report.about(DAMAGE, folder.path, f"{problem} (entry {readable(entry)})")
        return names

    def unreadable_name(self, folder, entry, error):
        what = f"name: the sidecar cannot be read: {error.strerror} (entry {readable(entry)})"
        self.report.about(INCOMPLETE, folder.path, what)

    @staticmethod
    def sidecar(folder, entry):
        if not entry.startswith(b"vaultfs.long."):
            return None
        try:
            return read_regular(os.path.join(folder.backing, entry + b".name"), 4096)
        except FileNotFoundError:
            return None

    def name_of_copy(self, folder, entry):
        """Names-6: the name of an entry that is a conflict copy, or None."""
        for twin, addition in twins(entry):
            try:
                name = folder.record.decode(twin, self.sidecar(folder, twin))
                return copy_name(name, twin, addition, is_before_digits=twin + addition != entry)
            except Damage:
                continue
        return None

    def is_damaged_name(self, folder, entry):
        """Store-13: true if an entry that does not authenticate is the vault's, and not another program's."""
        if re.fullmatch(DIGIT + rb"+", entry) and len(entry) in [-(-n * 4 // 3) for n in range(32, 192, 16)] \
                or LONG_ENTRY.fullmatch(entry):
            return True
        backing = os.path.join(folder.backing, entry)
        if entry[:1] == b"." or entry.startswith(b"vaultfs.") and not twins(entry):
            return False
        if self.authenticates(backing):
            return True
        below = (os.path.join(d, n) for d, folders, files in os.walk(backing) for n in folders + files)
        return any(self.authenticates(path) for path, _ in zip(below, range(100)))

    def authenticates(self, backing):
        """True if a file, link or directory is one of this vault."""
        try:
            mode = os.lstat(backing).st_mode
            if stat.S_ISLNK(mode):
                open_link(os.readlink(backing), self.keys)
            elif stat.S_ISDIR(mode):
                DirectoryRecord(read_regular(os.path.join(backing, b"vaultfs.dir"), 65), self.keys, False)
            else:
                FileHeader(read_regular(backing, HEADER_SIZE), self.keys)
        except (Damage, OSError):
            return False
        return True

    def child(self, folder, name, entry, is_copy):
        """The object of an entry, or None if it is damaged, which is reported."""
        path = folder.path + b"/" + name if folder.path else name
        backing = os.path.join(folder.backing, entry)
        try:
            name_keys = folder.name_keys | {folder.record.name_key}
            item = Item(path, backing, os.lstat(backing), is_copy or folder.is_copy, name_keys)
            if item.kind == "link":
                item.protection_class, item.target = open_link(os.readlink(backing), self.keys)
            elif item.kind == "dir" and not self.load(item, folder.protection_class):
                return None
            return item
        except Damage as problem:
            self.report.about(DAMAGE, path, problem)
        except OSError as error:
            self.report.about(INCOMPLETE, path, f"cannot be read: {error.strerror}")
        return None

    def changes(self, item, header):
        """The log's changes of a file, or None. A file is its name and its id: the path of an item has only names that
        authenticate (Names-3), so a copy of a backing file under any other name gets nothing."""
        if item.is_copy and not self.may_be_renamed_file(item, header.file_id):
            return None
        changes, refused = self.log.changes(header.file_id, header.seal_counter)
        if refused:
            what = f"{refused} entries of vaultfs.log are from before its last seal: not applied"
            self.report.about(DAMAGE, item.path, what)
        return changes

    def may_be_renamed_file(self, item, file_id):
        """Store-40: true if a conflict copy may be the file of the log's entries itself, renamed in the conflict."""
        entries = self.log.entries.get(file_id)
        if not entries or item.status.st_ctime_ns + self.CLOCK_TICK < entries[-1].time:
            return False
        if self.logged_ids is None:
            self.logged_ids, self.is_all_seen = self.find_logged_ids()
        if file_id in self.logged_ids:
            return False
        if not self.is_all_seen:
            what = "vaultfs.log may have changes of it, which are not applied: a part of the vault cannot be read"
            self.report.about(INCOMPLETE, item.path, what)
        return self.is_all_seen

    def find_logged_ids(self):
        """(the ids in the log that files with a name of their own have; true if nothing was unreadable). The headers
        need not authenticate: a damaged file is still the file."""
        report, self.report = self.report, Unheard()
        found = set()
        try:
            for item in self.walk(self.root):
                if item.kind == "file" and not item.is_copy:
                    each(self, item, lambda _, item: found.add(read_regular(item.backing, 16)[8:]))
            return found & self.log.entries.keys(), not self.report.counts[INCOMPLETE]
        finally:
            self.report = report

    def attributes(self, item, key):
        """{name: value} of the user attributes of an object with this attribute key. Only Linux has them."""
        found = {}
        if not hasattr(os, "listxattr") or key is None:
            return found
        # The pack comes first, because a value stored on its own takes precedence (Attributes-5).
        try:
            names = [os.fsencode(n) for n in os.listxattr(item.backing, follow_symlinks=False)]
        except OSError as error:
            # The store has none.
            if error.errno in UNSUPPORTED:
                return found
            raise
        for name in sorted(names, key=lambda name: (name != PACK, name)):
            if not name.startswith(b"user."):
                continue
            try:
                if not name.startswith(b"user.vaultfs."):
                    raise Damage(f"attribute {readable(name)} is not encrypted")
                stored = os.getxattr(item.backing, name, follow_symlinks=False)
                found.update(open_pack(stored, key) if name == PACK else [open_attribute(name, stored, key)])
            except Damage as problem:
                self.report.about(DAMAGE, item.path, problem)
        return found


class OpenFile:
    """A file of the vault that is open for reading. `length` is its length in bytes, as far as it is known without
    reading it, and `laid_out` the one that the backing size gives. An unsealed file may end earlier, after an unclean
    end or if it is a conflict copy (Store-6, Store-40). The vault's `ends_torn` allows that after a clean end, too."""

    def __init__(self, vault, item):
        self.vault, self.item, self.chunk_size = vault, item, vault.keys.chunk_size
        self.record_size = self.chunk_size + OVERHEAD
        self.header = self.logged = None
        self.length = self.laid_out = 0
        self.stream = open_regular(item.backing)
        try:
            self.load(os.fstat(self.stream.fileno()).st_size)
        except BaseException:
            self.stream.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def load(self, size):
        data = read_at(self.stream, 0, HEADER_SIZE)
        if (size < HEADER_SIZE or not any(data)) and self.vault.is_unclean and not self.item.is_copy:
            # Store-7, Store-38.
            return self.vault.report.note(self.item.path, "no header after an unclean end: an empty file")
        self.header = header = FileHeader(data, self.vault.keys)
        self.logged = self.vault.changes(self.item, header)
        if self.logged is not None:
            size = backing_size(self.logged.length(size), self.chunk_size)
            header.sealed = header.sealed and not self.logged.unseals(header)
            header.sparse = header.sparse or bool(self.logged.holes)
        self.size = size
        self.laid_out = self.length = plaintext_length(size, self.chunk_size)
        if header.sealed:
            self.length = header.length

    def damage(self, what):
        self.vault.report.about(DAMAGE, self.item.path, what)

    @property
    def protection_class(self):
        return self.header.protection_class if self.header else self.item.protection_class or 0

    def pieces(self):
        """(offset, size, plaintext, problem) of the whole file in order. The plaintext is None for a hole, which reads
        as zeros, and for a piece that does not verify, which has a problem. Adjacent pieces with one problem are one."""
        run = None
        for offset, size, plain, problem in self.parts():
            if run and problem == run[2] and offset == run[0] + run[1]:
                run[1] += size
                continue
            if run:
                yield self.damaged_piece(*run)
            run = [offset, size, problem] if problem else None
            if not run:
                yield offset, size, plain, None
        if run:
            yield self.damaged_piece(*run)
        if self.header and self.header.sealed:
            yield from self.ending()

    def damaged_piece(self, offset, size, problem):
        first, last = offset // self.chunk_size, (offset + size - 1) // self.chunk_size
        which = f"chunk {first}" if first == last else f"chunks {first} to {last}"
        return offset, size, None, f"{which} at {offset}: {problem}"

    def parts(self):
        """The same for single chunks and for holes of the backing file, in order, up to the sealed length."""
        chunk, index = self.chunk_size, 0
        readable_length = min(self.length, self.laid_out)
        count = -(-readable_length // chunk)
        while index < count:
            holes = min(self.holes_from(index), count - index)
            if holes:
                plain, problem = self.chunk(index, bytes(self.record_size))
                if problem == "ends":
                    return
                yield index * chunk, min(holes * chunk, readable_length - index * chunk), plain, problem
                index += holes
                continue
            batch = range(index, min(count, index + max(1, BLOCK // self.record_size)))
            block = read_at(self.stream, HEADER_SIZE + index * self.record_size, len(batch) * self.record_size)
            for index in batch:
                start = (index - batch.start) * self.record_size
                plain, problem = self.chunk(index, block[start:start + self.record_size])
                if problem == "ends":
                    return
                size = min(chunk, readable_length - index * chunk)
                yield index * chunk, size, plain and plain[:size], problem
            index += 1

    def ending(self):
        """The piece that a sealed file lacks (Store-4), or that it has too much (Store-3)."""
        if self.laid_out < self.length:
            what = f"sealed at {self.length} bytes, but the backing file ends at {self.laid_out}"
            yield self.laid_out, self.length - self.laid_out, None, what
        elif self.laid_out > self.length:
            what = f"sealed at {self.length} bytes, but the backing file has {self.laid_out}"
            if self.vault.is_unclean or self.item.is_copy:
                self.vault.report.note(self.item.path, what)
            else:
                yield self.length, self.laid_out - self.length, None, what

    def holes_from(self, index):
        """The number of chunks from this one on that are a hole of the backing file, if the system tells."""
        if self.logged is not None or not hasattr(os, "SEEK_DATA"):
            return 0
        start = HEADER_SIZE + index * self.record_size
        try:
            return (os.lseek(self.stream.fileno(), start, os.SEEK_DATA) - start) // self.record_size
        except OSError as error:
            return 1 << 62 if error.errno == errno.ENXIO else 0

    def chunk(self, index, record):
        """(plaintext or None, problem or None) of a chunk. The problem "ends" is the end of an unsealed file."""
        offset, header = index * self.chunk_size, self.header
        if self.logged is not None:
            due = min(self.record_size, self.size - HEADER_SIZE - index * self.record_size)
            record = self.logged.record(index, record[:due].ljust(due, b"\0"))
            if record is None:
                return None, "lost with its entry of vaultfs.log"
        records = [record]
        if header.sealed and offset < self.length < min(self.laid_out, offset + self.chunk_size):
            # Store-3: the record of the sealed length, which is shorter.
            records.append(record[:self.length - offset + OVERHEAD])
        for record in records:
            # Holes-1.
            if header.sparse and len(record) > OVERHEAD and not any(record):
                return None, None
            plain = header.open_record(index, record)
            if plain is not None:
                return plain, None
        ends_torn = self.item.is_copy or self.vault.is_unclean or self.vault.ends_torn
        if not header.sealed and ends_torn and offset >= header.length:
            self.vault.report.note(self.item.path, f"ends at {offset}: chunk {index} was written in part")
            return None, "ends"
        return None, "tag does not verify"

    def attributes(self):
        return self.vault.attributes(self.item, self.header and self.header.xattr_key)


# Listings and standard output --------------------------------------------------------------------------------------

def described(vault, item):
    """The facts of an object that a listing shows."""
    facts = {"path": item.path.decode("utf-8", "surrogateescape"), "type": item.kind, "size": 0,
             "modified": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(item.status.st_mtime)),
             "class": CLASSES.get(item.protection_class), "conflictCopy": item.is_copy}
    if item.kind == "file":
        with OpenFile(vault, item) as file:
            facts["size"], facts["class"] = file.length, CLASSES.get(file.protection_class)
    elif item.kind == "link":
        facts["size"], facts["target"] = len(item.target), item.target.decode("utf-8", "surrogateescape")
    return facts


def each(vault, item, body):
    """Calls `body` for an object and reports what it cannot read."""
    try:
        return body(vault, item)
    except Damage as problem:
        vault.report.about(DAMAGE, item.path, problem)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        vault.report.about(INCOMPLETE, item.path, f"cannot be read: {error.strerror}")
    return None


def list_items(vault, item, as_json):
    output, separator = sys.stdout.buffer, b"[\n"
    for item in vault.walk(item) if item.kind == "dir" else [item]:
        facts = each(vault, item, described)
        if facts is None:
            continue
        if as_json:
            output.write(separator + json.dumps(facts).encode())
            separator = b",\n"
        else:
            target = b" -> " + shown(item.target) if item.kind == "link" else b""
            start = f"{stat.filemode(item.status.st_mode)} {facts['size']:>13} {facts['modified']} "
            output.write(start.encode() + shown(item.path) + target + b"\n")
    if as_json:
        output.write((separator if separator == b"[\n" else b"\n") + b"]\n")


class Digests:
    """Lines `kind class size sha256 path`, sorted by path, and `xattr name size sha256 path` after their object."""

    def __init__(self, options):
        self.options, self.lines = options, []

    def emit(self, kind, *fields):
        self.lines.append(tuple(f if isinstance(f, bytes) else str(f).encode() for f in (kind, *fields)))

    def add(self, vault, item):
        protection_class, size, digest, attributes = item.protection_class or "-", 0, "-", {}
        if item.kind == "file":
            with OpenFile(vault, item) as file:
                if self.options.require_sealed and not (file.header and file.header.sealed):
                    file.damage("not sealed")
                size, digest = self.content(file)
                protection_class = file.protection_class
                attributes = file.attributes() if self.options.xattrs else {}
        elif item.kind == "link":
            size, digest = len(item.target), shown(item.target)
        elif item.kind == "dir" and self.options.xattrs:
            attributes = vault.attributes(item, item.record and item.record.xattr_key)
        if item.path:
            self.emit(item.kind, protection_class, size, digest, item.path)
        for name, value in sorted(attributes.items()):
            self.emit("xattr", shown(name), len(value), hashlib.sha256(value).hexdigest(), item.path or b".")

    def content(self, file):
        """(bytes, SHA-256) of what verifies. Everything else is reported."""
        digest, length = hashlib.sha256(), 0
        for _, size, plain, problem in file.pieces():
            if problem:
                file.damage(problem)
                continue
            for block in blocks(plain, size):
                digest.update(block)
            length += size
            file.vault.report.progress.add(size)
        file.vault.report.progress.add(0, 1)
        return length, digest.hexdigest()

    def run(self, vault, item):
        each(vault, item, self.add)
        for below in vault.walk(item) if item.kind == "dir" else []:
            each(vault, below, self.add)
        self.lines.sort(key=lambda line: (line[-1], line[0] == b"xattr", line[1]))
        for line in self.lines:
            sys.stdout.buffer.write(b"\t".join(line[:-1] + (shown(line[-1]),)) + b"\n")


def blocks(plain, size):
    """The bytes of a piece; for a hole, zeros in blocks."""
    if plain is not None:
        return [plain]
    return (bytes(min(BLOCK, size - start)) for start in range(0, size, BLOCK))


def write_out(vault, item):
    """Writes a file to standard output, up to the first byte that does not verify."""
    with OpenFile(vault, item) as file:
        for _, size, plain, problem in file.pieces():
            if problem:
                raise Damage(f"{problem}: the output ends before it")
            for block in blocks(plain, size):
                sys.stdout.buffer.write(block)
            vault.report.progress.add(size)
        sys.stdout.buffer.flush()


# Names of the destination ------------------------------------------------------------------------------------------

RESERVED = re.compile(r"(CON|PRN|AUX|NUL|COM[0-9¹²³]|LPT[0-9¹²³]|CONIN\$|CONOUT\$) *(\.|$)", re.IGNORECASE)


def percent(text):
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape"))


def original_name(name):
    """The name in the vault of a name that TargetNames has changed: every %NN is a byte."""
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes.fromhex(m[1].decode()), name)


class TargetNames:
    """The names that objects get in the destination. Each byte that the destination does not allow becomes %NN, as does
    a % before two hexadecimal digits. So every name can be told from its changed form, and no two names become one.

    `windows`: the rules of Windows. `utf8`: names must be UTF-8. `folds`: names that differ in case are one name."""

    def __init__(self, windows=False, utf8=False, folds=False):
        self.windows, self.utf8, self.folds = windows, utf8 or windows, folds

    def mapped(self, names):
        """{name: name in the destination} of the names in one directory."""
        if not (self.windows or self.utf8 or self.folds):
            return {name: name for name in names}
        texts = {name: name.decode("utf-8", "surrogateescape") for name in names}
        groups = collections.Counter(folded(text) for text in texts.values())
        mapped = {}
        for name, text in texts.items():
            # Of names that differ in case, the one in lower case stays. The others keep only their ASCII lower case.
            clashes = self.folds and groups[folded(text)] > 1 and text != folded(text)
            mapped[name] = self.escaped(text, clashes).encode("utf-8", "surrogateescape")
        return mapped

    def escaped(self, text, clashes=False):
        result = []
        for position, char in enumerate(text):
            is_last, code = position == len(text) - 1, ord(char)
            if (char == "%" and re.match("[0-9A-Fa-f]{2}", text[position + 1:position + 3])
                    or self.utf8 and 0xdc80 <= code <= 0xdcff
                    or self.windows and (char in '<>:"\\|?*' or code < 32 or is_last and char in ". ")
                    or self.windows and position == 0 and RESERVED.match(text)
                    or clashes and ("A" <= char <= "Z" or code > 127)):
                char = percent(char)
            result.append(char)
        return "".join(result)


def folded(text):
    """The same for all names that a destination may take for one."""
    text = unicodedata.normalize("NFC", text).upper().casefold()
    return unicodedata.normalize("NFC", text)


# Extraction --------------------------------------------------------------------------------------------------------

HAS_DESCRIPTORS = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
UNSUPPORTED = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK)
FULL = (errno.ENOSPC, errno.EROFS, getattr(errno, "EDQUOT", errno.ENOSPC))


class Target:
    """A directory of the destination. If the system can, it is used through a descriptor, so that nobody can put a
    link in its way."""

    def __init__(self, path, descriptor=None):
        self.path, self.descriptor = path, descriptor

    @classmethod
    def opened(cls, path, parent=None, name=None, flags=0):
        if not HAS_DESCRIPTORS:
            return cls(path)
        flags |= os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        if parent is None:
            return cls(path, os.open(path, flags))
        return cls(path, os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent.descriptor))

    def at(self, name):
        """The arguments that lead a function of `os` to a name in this directory: (path, keywords)."""
        if self.descriptor is None:
            return os.path.join(self.path, name), {}
        return name, {"dir_fd": self.descriptor}

    def close(self):
        if self.descriptor is not None:
            os.close(self.descriptor)

    def make_directory(self, name):
        path, where = self.at(name)
        os.mkdir(path, 0o700, **where)
        return self.opened(os.path.join(self.path, name), self, name)

    def create(self):
        """(stream, name) of a new file with a temporary name."""
        name = b".vaultfs-reader-" + secrets.token_hex(8).encode()
        path, where = self.at(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        for flag in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):
            flags |= getattr(os, flag, 0)
        return os.fdopen(os.open(path, flags, 0o600, **where), "wb", buffering=0), name

    def exists(self, name):
        path, where = self.at(name)
        try:
            os.stat(path, follow_symlinks=False, **where)
        except FileNotFoundError:
            return False
        return True

    def publish(self, temporary, name):
        """Gives a finished file its name, which must be free."""
        (source, where), (target, _) = self.at(temporary), self.at(name)
        if where:
            try:
                os.link(source, target, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=False)
                return self.remove(temporary)
            except (OSError, NotImplementedError) as error:
                if isinstance(error, OSError) and error.errno not in UNSUPPORTED:
                    raise
        if self.exists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if where:
            return os.rename(source, target, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        return os.rename(source, target)

    def remove(self, name):
        path, where = self.at(name)
        os.unlink(path, **where)

    def set_times(self, name, status):
        path, where = self.at(name)
        if os.utime in os.supports_follow_symlinks:
            where["follow_symlinks"] = False
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns), **where)


class Extraction:
    """Writes objects of the vault into a directory. `damaged`: also the parts that verify of damaged files."""

    def __init__(self, vault, damaged):
        self.vault, self.report, self.damaged = vault, vault.report, damaged
        self.names, self.renamed = TargetNames(), 0

    def lost(self, item, what):
        self.report.about(NOT_KEPT, item.path, what)

    def run(self, item, out, kind):
        """Extracts what is in a directory, or one file."""
        is_new = self.prepare(out)
        target = Target.opened(out)
        self.names = self.target_names(target, kind)
        if item.kind == "dir":
            self.contents(item, target)
            if is_new:
                self.finish_directory(item, target)
        else:
            self.all_of([item], target)
        target.close()
        if self.renamed:
            self.report.line(f"{self.renamed} names were changed for the destination: %NN in them is a byte")

    def prepare(self, out):
        """Makes OUT, or checks that it is empty. Returns true if it was made."""
        parent = os.path.dirname(os.path.abspath(out))
        while True:
            if os.path.exists(parent) and os.path.samefile(parent, self.vault.path):
                raise Failure(USAGE, f"{readable(out)}: is in the vault's directory")
            if parent == os.path.dirname(parent):
                break
            parent = os.path.dirname(parent)
        try:
            os.mkdir(out, 0o700)
            return True
        except FileExistsError:
            if not os.path.isdir(out) or os.listdir(out) or os.path.samefile(out, self.vault.path):
                raise Failure(FAILURE, f"{readable(out)}: exists, and is not an empty directory") from None
        except OSError as error:
            raise Failure(FAILURE, f"{readable(out)}: cannot be made: {error.strerror}") from None
        return False

    @staticmethod
    def target_names(target, kind):
        """The rules for names: those that were asked for, or those of this system and of the destination."""
        if kind == "exact":
            return TargetNames()
        if kind == "windows":
            return TargetNames(windows=True, folds=True)
        stream, name = target.create()
        stream.close()
        folds = target.exists(name.upper())
        target.remove(name)
        return TargetNames(windows=os.name == "nt", utf8=sys.platform == "darwin", folds=folds)

    def contents(self, folder, target):
        self.all_of(self.vault.children(folder), target)

    def all_of(self, items, target):
        names = self.names.mapped([os.path.basename(item.path) for item in items])
        for item in items:
            name = names[os.path.basename(item.path)]
            self.renamed += name != os.path.basename(item.path)
            try:
                self.one(item, target, name)
            except Damage as problem:
                self.report.about(INCOMPLETE, item.path, f"not extracted: {problem}")
            except (OSError, NotImplementedError, ValueError) as error:
                if getattr(error, "errno", None) in FULL:
                    raise Failure(INCOMPLETE, f"{readable(item.path)}: {error.strerror}") from None
                self.report.about(INCOMPLETE, item.path, f"not extracted: {getattr(error, 'strerror', None) or error}")

    def one(self, item, target, name):
        if item.kind == "dir":
            below = target.make_directory(name)
            try:
                self.contents(item, below)
                self.finish_directory(item, below)
            finally:
                below.close()
        elif item.kind == "file":
            self.file(item, target, name)
        elif item.kind == "link":
            self.link(item, target, name)
        else:
            self.lost(item, f"not extracted: it is a {item.kind}")
        self.report.progress.add(0, 1)

    def file(self, item, target, name):
        with OpenFile(self.vault, item) as file:
            stream, temporary = target.create()
            try:
                with stream:
                    self.write(file, stream)
                    self.set_attributes(item, file.attributes(), stream.fileno())
                self.set_mode(item, *target.at(temporary))
                target.set_times(temporary, item.status)
                target.publish(temporary, name)
            except BaseException:
                target.remove(temporary)
                raise

    def write(self, file, stream):
        """Writes the content of a file. A hole stays a hole if the destination has holes."""
        length = 0
        for offset, size, plain, problem in file.pieces():
            if problem and not self.damaged:
                raise Damage(problem)
            if problem:
                file.damage(f"bytes {offset} to {offset + size}: {problem}")
            if plain is not None:
                stream.seek(offset)
                rest = memoryview(plain)
                while rest:
                    rest = rest[stream.write(rest):]
            length = offset + size
            self.report.progress.add(size)
        stream.truncate(length)

    def link(self, item, target, name):
        path, where = target.at(name)
        try:
            if os.name == "nt":
                # It needs a privilege there, and the kind of its target.
                raise NotImplementedError
            os.symlink(item.target, path, **where)
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in UNSUPPORTED:
                raise
            self.lost(item, "a link: extracted as a file that contains its target")
            stream, temporary = target.create()
            with stream:
                stream.write(item.target)
            target.publish(temporary, name)
        target.set_times(name, item.status)

    def finish_directory(self, item, target):
        """Attributes, mode and times of a directory, when everything is in it."""
        try:
            key = item.record and item.record.xattr_key
            self.set_attributes(item, self.vault.attributes(item, key), target.descriptor)
            handle = target.path if target.descriptor is None else target.descriptor
            self.set_mode(item, handle, {})
            os.utime(handle, ns=(item.status.st_atime_ns, item.status.st_mtime_ns))
        except OSError as error:
            self.lost(item, f"times or mode not kept: {error.strerror}")

    def set_mode(self, item, path, where):
        if os.name == "nt":
            return
        mode = stat.S_IMODE(item.status.st_mode)
        if item.kind == "file" and mode & 0o6000:
            # Nothing authenticates modes.
            self.lost(item, "set-user-ID or set-group-ID not kept")
            mode &= ~0o6000
        try:
            os.chmod(path, mode, **where)
        except OSError as error:
            self.lost(item, f"mode not kept: {error.strerror}")

    def set_attributes(self, item, attributes, descriptor):
        for name, value in sorted(attributes.items()):
            try:
                os.setxattr(descriptor, name, value)
            except OSError as error:
                self.lost(item, f"attribute {readable(name)} not kept: {error.strerror}")


# The command line --------------------------------------------------------------------------------------------------

class Parser(argparse.ArgumentParser):
    def error(self, message):
        sys.stderr.write(f"vaultfs-reader: {message}: see --help\n")
        sys.exit(USAGE)


def parsed(arguments):
    parser = Parser(prog="vaultfs-reader", description=__doc__, epilog=CODES, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vault", metavar="VAULT", help="the vault's directory")
    parser.add_argument("path", metavar="PATH", nargs="?", help="a file or directory in the vault")
    parser.add_argument("--all", metavar="OUT", help="extract into the directory OUT, which must be new or empty")
    parser.add_argument("--damaged", action="store_true",
                        help="with --all, extract the parts of damaged files that verify, and holes for the others")
    parser.add_argument("--names", choices=["auto", "exact", "windows"], default="auto",
                        help="names in OUT: as this system needs them, unchanged, or as Windows needs them")
    parser.add_argument("--json", action="store_true", help="print the listing as JSON")
    parser.add_argument("--no-lock", action="store_true",
                        help="read beside a mount; what it is writing may look damaged")
    secret = parser.add_argument_group("secret (by default the passphrase is asked for on the terminal)") \
        .add_mutually_exclusive_group()
    secret.add_argument("--passfile", metavar="FILE", help="the passphrase is in a file; - for stdin")
    secret.add_argument("--keyfile", metavar="FILE", help="a keyfile")
    secret.add_argument("--recovery-key", action="store_true", help="ask for the recovery key")
    secret.add_argument("--recovery-key-file", metavar="FILE", help="the recovery key is in a file; - for stdin")
    digests = parser.add_argument_group("digests")
    digests.add_argument("--digests", action="store_true",
                         help="read everything and print kind, class, size, SHA-256 and path of each object")
    digests.add_argument("--xattrs", action="store_true", help="also print user.* extended attributes")
    digests.add_argument("--require-sealed", action="store_true", help="a file that is not sealed is damage")
    digests.add_argument("--allow-torn-tail", action="store_true",
                         help="an unsealed file ends before a chunk that does not verify, also after a clean end")
    options = parser.parse_intermixed_args(arguments)
    if options.all is not None and (options.json or options.digests) or options.json and options.digests:
        parser.error("only one of --all, --json and --digests")
    if options.all is None and (options.damaged or options.names != "auto"):
        parser.error("--damaged and --names need --all")
    if not options.digests and (options.xattrs or options.require_sealed):
        parser.error("--xattrs and --require-sealed need --digests")
    return options


def read_secret(path):
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Failure(FAILURE, f"{path}: cannot be read: {error.strerror}") from None


def ask(prompt):
    """A line that is typed on the terminal, without showing it."""
    try:
        if os.name == "nt":
            if not sys.stdin.isatty():
                raise OSError
        else:
            os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise Failure(USAGE, "no terminal to ask on: give --passfile, --keyfile or --recovery-key-file") from None
    try:
        return os.fsencode(getpass.getpass(f"{prompt}: "))
    except EOFError:
        raise Failure(USAGE, "nothing was typed") from None


def given_secrets(options):
    """[(kind of slot, secret)] to try."""
    if options.keyfile is not None:
        secret = read_secret(options.keyfile)
        if len(secret) < 32:
            raise Failure(USAGE, f"{options.keyfile}: a keyfile has at least 32 bytes")
        return [("keyfile", secret)]
    if options.recovery_key or options.recovery_key_file is not None:
        typed = ask("Recovery key") if options.recovery_key else read_secret(options.recovery_key_file)
        return [("recovery", recovery_secret(typed.decode("ascii", "replace")))]
    if options.passfile is not None:
        phrase = read_secret(options.passfile)
        phrase = phrase[:-1] if phrase.endswith(b"\n") else phrase
    else:
        phrase = ask("Passphrase")
    if not phrase:
        raise Failure(USAGE, "the passphrase is empty")
    try:
        # A recovery key may be typed in place of the passphrase.
        return [("passphrase", phrase), ("recovery", recovery_secret(phrase.decode("ascii", "replace")))]
    except Failure:
        return [("passphrase", phrase)]


def open_keys(configuration, given):
    failure = None
    for kind, secret in given:
        try:
            return configuration.open(kind, secret)
        except Failure as found:
            failure = failure if failure and "slot opens" not in str(failure) else found
    if "slot opens" in str(failure):
        name = {"passphrase": "passphrase", "keyfile": "keyfile", "recovery": "recovery key"}[given[0][0]]
        failure = Failure(WRONG_SECRET, f"wrong {name}, or vaultfs.json was changed: try a copy of it")
    raise failure


def system_path(path):
    """A path in bytes. On Windows in the form that may be longer than 260 characters."""
    if os.name == "nt" and not path.startswith("\\\\?\\"):
        path = os.path.abspath(path)
        path = "\\\\?\\UNC" + path[1:] if path.startswith("\\\\") else "\\\\?\\" + path
    return os.fsencode(path)


def opened(options, report):
    """The vault. A Failure if it cannot be opened."""
    root = system_path(options.vault)
    try:
        configuration = Configuration(read_regular(os.path.join(root, b"vaultfs.json"), (1 << 20) + 1))
    except Damage as problem:
        raise Failure(NOT_A_VAULT, str(problem)) from None
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Failure(NOT_A_VAULT, f"{options.vault}: not a vault: vaultfs.json: {error.strerror}") from None
    except OSError as error:
        raise Failure(FAILURE, f"{options.vault}: vaultfs.json: cannot be read: {error.strerror}") from None
    if configuration.previous is not None and os.path.lexists(os.path.join(root, b"vaultfs.rekey")):
        # Store-27.
        raise Failure(FAILURE, "vaultfs.rekey: a step of a rekey is half done: mount the vault with vaultfs first")
    try:
        keys = open_keys(configuration, given_secrets(options))
    except Damage as problem:
        raise Failure(NOT_A_VAULT, str(problem)) from None
    return Vault(root, keys, report, ends_torn=options.allow_torn_tail, locks=not options.no_lock)


def run(options, report):
    with opened(options, report) as vault:
        if vault.is_readable:
            perform(options, vault, vault.find(os.fsencode(options.path or "")))
    sys.stdout.flush()
    report.progress.clear()
    return report.code()


def perform(options, vault, item):
    """Does what the options ask for with an object of the vault."""
    progress = vault.report.progress
    if options.all is not None:
        Extraction(vault, options.damaged).run(item, system_path(options.all), options.names)
    elif options.digests:
        Digests(options).run(vault, item)
    elif options.json or item.kind != "file":
        progress.is_wanted = False
        list_items(vault, item, options.json)
    else:
        progress.is_wanted = progress.is_wanted and not sys.stdout.isatty()
        each(vault, item, write_out)


def main(arguments=None):
    options, report = parsed(arguments), Report(Progress())
    sys.setrecursionlimit(10000)
    try:
        return run(options, report)
    except Failure as failure:
        report.line(str(failure))
        return failure.code
    except UnsupportedAlgorithm as error:
        report.line(f"this installation of cryptography lacks a cipher: {error}")
    except BrokenPipeError:
        # The reader of the output has ended. Python must not find that out again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # Without a path there may be a descriptor's number.
        what = error.filename if isinstance(error.filename, (str, bytes)) else "failed"
        report.line(f"{readable(os.fsencode(what))}: {error.strerror or error}")
    except KeyboardInterrupt:
        report.line("interrupted")
        return 130
    return FAILURE


if __name__ == "__main__":
    sys.exit(main())
