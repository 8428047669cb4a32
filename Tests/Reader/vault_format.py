"""Format 1 of vaultfs, read-only: bytes in, bytes out. Written from the format document alone, so that it can disagree
with the product. Needs the `cryptography` package, 38 or later (Debian: python3-cryptography)."""

import base64
import hashlib
import hmac
import json
import re
import struct

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.poly1305 import Poly1305

HEADER_SIZE = 128
OVERHEAD = 32
CLASSES = {1: "complete", 2: "unless-open", 3: "until-first-unlock", 4: "none"}


class Damage(Exception):
    """The reason why something does not verify."""


def b64u(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def un_b64u(text, what):
    """Canonical base64url without padding, or Damage."""
    if not re.fullmatch(rb"[A-Za-z0-9_-]*", text) or len(text) % 4 == 1:
        raise Damage(f"{what}: not base64url")
    data = base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    if b64u(data) != text:
        raise Damage(f"{what}: base64url is not canonical")
    return data


def hkdf(secret, salt, info, size):
    return HKDF(algorithm=SHA256(), length=size, salt=salt, info=info.encode()).derive(secret)


def siv_seal(key, components, plaintext):
    return AESSIV(key).encrypt(plaintext, list(components))


def siv_open(key, components, sealed, what):
    if len(sealed) < 17:
        raise Damage(f"{what}: {len(sealed)} bytes are too short to be sealed")
    try:
        return AESSIV(key).decrypt(sealed, list(components))
    except InvalidTag:
        raise Damage(f"{what}: does not authenticate") from None


# vaultfs.json ------------------------------------------------------------------------------------------------------

def _strict_object(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise Damage(f"vaultfs.json: a key twice among {keys}")
    return dict(pairs)


def _strict_integer(text):
    if not re.fullmatch(r"0|[1-9][0-9]*", text):
        raise Damage(f"vaultfs.json: integer {text}")
    return int(text)


def _refuse(text):
    raise Damage(f"vaultfs.json: value {text}")


def _shape(value, keys, what):
    if not isinstance(value, dict) or set(value) != set(keys):
        raise Damage(f"vaultfs.json: {what} has other keys than {sorted(keys)}")


def _integer(value, what, low, high):
    if type(value) is not int or not low <= value <= high:
        raise Damage(f"vaultfs.json: {what} is {value!r}, not {low}…{high}")
    return value


def _match(value, pattern, what):
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise Damage(f"vaultfs.json: {what} is {value!r}")
    return value


TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


class Configuration:
    """A parsed vaultfs.json. `master` is set once a slot has opened and the MAC has verified."""

    def __init__(self, data):
        if data.startswith(b"\xef\xbb\xbf"):
            raise Damage("vaultfs.json: starts with a byte order mark")
        try:
            j = json.loads(data.decode("utf-8"), object_pairs_hook=_strict_object, parse_int=_strict_integer,
                           parse_float=_refuse, parse_constant=_refuse)
        except ValueError as error:
            raise Damage(f"vaultfs.json: {error}") from None
        features = j.get("features")
        has_epochs = isinstance(features, list) and "epochs" in features
        members = ["format", "version", "vault", "chunkSize", "features", "generation", "slots", "mac"]
        _shape(j, members + (["epoch", "previous"] if has_epochs else []), "the file")
        if j["format"] != "vaultfs" or j["version"] != 1 or type(j["version"]) is not int:
            raise Damage(f"vaultfs.json: format {j['format']!r} version {j['version']!r}")
        self.id_hex = _match(j["vault"], "[0-9a-f]{32}", "vault")
        self.id = bytes.fromhex(self.id_hex)
        self.chunk_size = _integer(j["chunkSize"], "chunkSize", 4096, 1 << 20)
        if self.chunk_size & (self.chunk_size - 1):
            raise Damage(f"vaultfs.json: chunkSize {self.chunk_size} is not a power of two")
        if not isinstance(features, list) or any(f not in ("epochs", "leases") for f in features) \
                or len(set(features)) != len(features):
            raise Damage(f"vaultfs.json: unknown features {features!r}")
        self.features = sorted(features)
        has_leases = "leases" in features
        self.epoch, self.previous = 0, None
        if has_epochs:
            self.epoch = _integer(j["epoch"], "epoch", 1, 255)
            if j["previous"] is not None:
                self.previous = un_b64u(_match(j["previous"], ".*", "previous").encode(), "vaultfs.json: previous")
                if len(self.previous) != 48:
                    raise Damage("vaultfs.json: previous is not 48 bytes")
        self.generation = _integer(j["generation"], "generation", 0, 2**64 - 1)
        if not isinstance(j["slots"], list) or len(j["slots"]) > 64:
            raise Damage("vaultfs.json: slots is not a list of at most 64")
        self.slots = sorted((self._slot(s, has_leases) for s in j["slots"]), key=lambda s: s["id"])
        if any(s.get("window") for s in self.slots) != has_leases:
            raise Damage("vaultfs.json: feature leases without a window")
        if len({s["id"] for s in self.slots}) != len(self.slots):
            raise Damage("vaultfs.json: a slot id twice")
        self.mac = un_b64u(_match(j["mac"], ".*", "mac").encode(), "vaultfs.json: mac")
        if len(self.mac) != 32:
            raise Damage("vaultfs.json: mac is not 32 bytes")

    @staticmethod
    def _slot(s, has_leases):
        keys = ["id", "kind", "label", "created", "expires", "kdf", "sealed"]
        _shape(s, keys + (["window"] if has_leases and "window" in s else []), "a slot")
        if s.get("window") is not None:
            Configuration._check_window(s["window"])
        _integer(s["id"], "slot id", 0, 2**64 - 1)
        _match(s["kind"], "passphrase|keyfile|recovery", "slot kind")
        _match(s["label"], "(?s).*", "slot label")
        _match(s["created"], TIME, "created")
        if s["expires"] is not None:
            _match(s["expires"], TIME, "expires")
        kdf = s["kdf"]
        if s["kind"] == "passphrase":
            _shape(kdf, ["name", "logN", "r", "p", "salt"], "kdf")
            _match(kdf["name"], "scrypt", "kdf name")
            log_n, r, p = (_integer(kdf["logN"], "logN", 10, 22), _integer(kdf["r"], "r", 1, 32),
                           _integer(kdf["p"], "p", 1, 16))
            if 128 * r * (1 << log_n) > 1 << 30:
                raise Damage("vaultfs.json: scrypt needs more than 1 GiB")
        else:
            _shape(kdf, ["name", "salt"], "kdf")
            _match(kdf["name"], "hkdf-sha256", "kdf name")
        for value, size, what in [(kdf["salt"], 32, "salt"), (s["sealed"], 48, "sealed")]:
            if len(un_b64u(_match(value, ".*", what).encode(), f"vaultfs.json: {what}")) != size:
                raise Damage(f"vaultfs.json: {what} is not {size} bytes")
        return s

    @staticmethod
    def _check_window(w):
        _shape(w, ["seconds", "started", "seen"], "a window")
        _integer(w["seconds"], "window seconds", 1, 2**32 - 1)
        times = [w["started"], w["seen"]]
        if times != [None, None]:
            for time in times:
                _match(time, TIME, "a time of a window")
            if times[0] > times[1]:
                raise Damage("vaultfs.json: a window seen before it was started")

    @staticmethod
    def _window_text(w):
        return f" window {w['seconds']},{w['started'] or '-'},{w['seen'] or '-'}" if w else ""

    def sealing_head(self):
        """The head of the data encrypted under a key: without late features."""
        return self.head([f for f in self.features if f != "leases"])

    def head(self, features=()):
        names = ",".join(features) or "-"
        return f"vaultfs 1\nvault {self.id_hex}\nchunk {self.chunk_size}\nfeatures {names}\n".encode()

    def open(self, kind, secret):
        """Opens the master key with the first slot of `kind` that `secret` fits, then checks the MAC."""
        for s in self.slots:
            if s["kind"] != kind:
                continue
            kdf, salt = s["kdf"], un_b64u(s["kdf"]["salt"].encode(), "salt")
            if kind == "passphrase":
                kek = hashlib.scrypt(secret, salt=salt, n=1 << kdf["logN"], r=kdf["r"], p=kdf["p"],
                                     maxmem=(1 << 30) + (64 << 20), dklen=64)
            else:
                kek = hkdf(secret, salt, "vaultfs 1 kek", 64)
            bound = self.sealing_head() + f"slot {s['id']} {s['kind']} {s['expires'] or '-'}\n".encode()
            try:
                master = siv_open(kek, [bound], un_b64u(s["sealed"].encode(), "sealed"), "slot")
            except Damage:
                continue
            self._check_mac(master)
            return Keys(self, master)
        raise Damage(f"no {kind} slot opens with this secret")

    def _check_mac(self, master):
        message = self.head(self.features) + f"generation {self.generation}\n".encode()
        if "epochs" in self.features:
            previous = b64u(self.previous).decode() if self.previous else "-"
            message += f"epoch {self.epoch}\nprevious {previous}\n".encode()
        for s in self.slots:
            kdf = s["kdf"]
            shown = f"hkdf-sha256,{kdf['salt']}"
            if kdf["name"] == "scrypt":
                shown = f"scrypt,{kdf['logN']},{kdf['r']},{kdf['p']},{kdf['salt']}"
            label = b64u(s["label"].encode()).decode() or "-"
            message += (f"slot {s['id']} {s['kind']} {s['expires'] or '-'} {s['created']} {label} {shown} "
                        f"{s['sealed']}{self._window_text(s.get('window'))}\n").encode()
        mac = hmac.digest(hkdf(master, self.id, "vaultfs 1 config", 32), message, "sha256")
        if not hmac.compare_digest(mac, self.mac):
            raise Damage("vaultfs.json: mac does not verify")


def recovery_secret(text):
    digits = re.sub(r"[\s-]", "", text).lower()
    if not re.fullmatch("[0-9a-f]{72}", digits):
        raise Damage("recovery key: not 72 hex digits")
    secret = bytes.fromhex(digits[:64])
    if hashlib.sha256(secret).hexdigest()[:8] != digits[64:]:
        raise Damage("recovery key: check digits are wrong")
    return secret


class Keys:
    """Class and link keys of an open vault, by key epoch: two of them while a rekey is unfinished."""

    def __init__(self, configuration, master):
        self.vault = configuration.id
        self.chunk_size = configuration.chunk_size
        self.epoch = configuration.epoch
        masters = {configuration.epoch: master}
        if configuration.previous is not None:
            bound = configuration.sealing_head() + f"previous {configuration.epoch - 1}\n".encode()
            key = hkdf(master, self.vault, "vaultfs 1 previous", 64)
            masters[configuration.epoch - 1] = siv_open(key, [bound], configuration.previous, "previous")
        self.log_keys = [hkdf(masters[e], self.vault, "vaultfs 1 log", 80) for e in sorted(masters, reverse=True)]
        self.of_class = {e: {c: hkdf(m, self.vault, f"vaultfs 1 class {c}", 64) for c in CLASSES}
                         for e, m in masters.items()}
        self.of_links = {e: {c: hkdf(m, self.vault, f"vaultfs 1 links {c}", 64) for c in CLASSES}
                         for e, m in masters.items()}


# Files -------------------------------------------------------------------------------------------------------------

class FileHeader:
    """The first 128 bytes of a backing file, authenticated, and the file's keys."""

    def __init__(self, data, keys):
        magic, version, self.protection_class, wrap, epoch, self.file_id = struct.unpack_from("<4sBBBB8s", data)
        if magic != b"VFSF" or version != 1 or self.protection_class not in CLASSES or wrap \
                or epoch not in keys.of_class:
            raise Damage("header: magic, version, class, wrap or epoch")
        if any(data[64:96]):
            raise Damage("header: reserved bytes are not zero")
        self.length, state = struct.unpack_from("<QQ", data, 96)
        flags, self.seal_counter = state & 255, state >> 8
        if flags & ~3:
            raise Damage(f"header: flags {flags:#x}")
        self.sealed, self.sparse = bool(flags & 1), bool(flags & 2)
        secret = siv_open(keys.of_class[epoch][self.protection_class], [data[:16]], data[16:64], "header: file secret")
        derived = hkdf(secret, keys.vault, "vaultfs 1 file", 176)
        self.cipher_key, self.mac_key, self.mac_r = derived[:32], derived[32:64], derived[64:80]
        self.xattr_key = derived[112:176]
        state = hmac.digest(derived[80:112], data[:112], "sha256")[:16]
        if not hmac.compare_digest(state, data[112:128]):
            raise Damage("header: state does not authenticate")

    def open_record(self, index, record):
        """The plaintext of a chunk record, or None where its tag does not verify."""
        if len(record) <= OVERHEAD:
            return None
        iv, body, tag = record[:16], record[16:-16], record[-16:]
        one_time = Cipher(algorithms.AES(self.mac_key), modes.ECB()).encryptor().update(iv)
        try:
            Poly1305.verify_tag(self.mac_r + one_time, body + struct.pack("<Q", index), tag)
        except InvalidSignature:
            return None
        whole = len(body) // 16 * 16
        plain = Cipher(algorithms.AES(self.cipher_key), modes.CBC(iv)).decryptor().update(body[:whole])
        if len(body) > whole:
            last = body[whole - 16:whole] if whole else iv
            mask = Cipher(algorithms.AES(self.cipher_key), modes.ECB()).encryptor().update(last)
            plain += bytes(a ^ b for a, b in zip(body[whole:], mask))
        return plain


def plaintext_length(backing_size, chunk_size):
    """format: Sizes. Below 128 bytes there is no header and the size is 0."""
    if backing_size < HEADER_SIZE:
        return 0
    full, rest = divmod(backing_size - HEADER_SIZE, chunk_size + OVERHEAD)
    return full * chunk_size + max(0, rest - OVERHEAD)


def backing_size(length, chunk_size):
    full, rest = divmod(length, chunk_size)
    return HEADER_SIZE + full * (chunk_size + OVERHEAD) + (rest + OVERHEAD if rest else 0)


# Directories, names, links, attributes -----------------------------------------------------------------------------

class DirectoryRecord:
    def __init__(self, data, keys, is_root):
        if len(data) != 64:
            raise Damage(f"vaultfs.dir: {len(data)} bytes, not 64")
        magic, version, self.protection_class, flags, epoch = struct.unpack_from("<4sBBBB", data)
        if magic != b"VFSD" or version != 1 or self.protection_class not in CLASSES \
                or epoch not in keys.of_class or any(data[8:16]):
            raise Damage("vaultfs.dir: magic, version, class, epoch or reserved bytes")
        if flags != (1 if is_root else 0):
            raise Damage(f"vaultfs.dir: flags {flags:#x}")
        secret = siv_open(keys.of_class[epoch][self.protection_class], [data[:16]], data[16:], "vaultfs.dir: secret")
        derived = hkdf(secret, keys.vault, "vaultfs 1 directory", 128)
        self.name_key, self.xattr_key = derived[:64], derived[64:]

    def encode(self, name):
        """(entry, blob of the sidecar or None)"""
        blob = siv_seal(self.name_key, [b"name"], name + bytes(-len(name) % 16))
        entry = b64u(blob)
        if len(entry) <= 255:
            return entry, None
        return b"vaultfs.long." + b64u(hashlib.sha256(blob).digest()), blob

    def decode(self, entry, sidecar):
        blob = sidecar if entry.startswith(b"vaultfs.long.") else un_b64u(entry, "name")
        if blob is None:
            raise Damage("name: the sidecar is missing")
        name = siv_open(self.name_key, [b"name"], blob, "name").rstrip(b"\0")
        if not 1 <= len(name) <= 255 or b"/" in name or b"\0" in name or name in (b".", b".."):
            raise Damage("name: not a name a file may have")
        if self.encode(name)[0] != entry:
            raise Damage("name: spelt another way than it encodes to")
        return name


def open_link(stored, keys):
    """(class, target)"""
    protection_class = stored[0] - 0x30 if stored else 0
    if protection_class not in CLASSES:
        raise Damage("link: class")
    data = un_b64u(stored[1:], "link")
    if len(data) < 33:
        raise Damage("link: too short")
    if 3 * (len(stored) - 1) // 4 - 32 != len(data) - 32:
        raise Damage("link: size rule")
    for epoch in sorted(keys.of_links):
        try:
            key = keys.of_links[epoch][protection_class]
            return protection_class, siv_open(key, [b"link", data[:16]], data[16:], "link target")
        except Damage:
            if epoch == keys.epoch:
                raise
    raise Damage("link target: no epoch")


def open_attribute(stored_name, value, key):
    """(plaintext name, value) of a `user.vaultfs.…` attribute"""
    inner = siv_open(key, [b"name"], un_b64u(stored_name[len(b"user.vaultfs."):], "attribute name"), "attribute name")
    opened = siv_open(key, [b"value", inner], value, "attribute value")
    if opened[:1] != b"\0":
        raise Damage("attribute value: does not start with 0")
    return b"user." + inner, opened[1:]


def open_pack(value, key):
    """[(plaintext name, value)] of the attribute `user.vaultfs.pack`"""
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
