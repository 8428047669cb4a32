"""What a daemon's memory holds of a vault's keys and plaintext: before a lock, after a lock with forget, and again after an
unlock with a secret and another lock. As root, the daemon run without memfd_secret(2).

lock_memory.py VAULTFS VAULT MOUNTPOINT PASSFILE

Prints a line for each state and each kind of secret: how many of its pieces were found, of how many."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Reader"))
from vault_format import Configuration, DirectoryRecord, FileHeader, hkdf  # noqa: E402

vaultfs, vault, mountpoint, passfile = sys.argv[1:]
MASK = os.urandom(1)[0] | 1


def masked(data):
    return bytes(byte ^ MASK for byte in data)


def last_round_keys(key):
    """Round keys 13 and 14 of AES-256 (FIPS 197, 5.2): what a schedule has that the key has not."""
    box, p, q = [0] * 256, 1, 1
    while True:
        p = p ^ (p << 1 & 0xFF) ^ (0x1B if p & 0x80 else 0)
        for shift in (1, 2, 4):
            q ^= q << shift & 0xFF
        if q & 0x80:
            q ^= 0x09
        rotated = [(q << n | q >> (8 - n)) & 0xFF for n in (1, 2, 3, 4)]
        box[p] = q ^ rotated[0] ^ rotated[1] ^ rotated[2] ^ rotated[3] ^ 0x63
        if p == 1:
            break
    box[0] = 0x63
    words, constant = [list(key[i:i + 4]) for i in range(0, 32, 4)], 1
    for i in range(8, 60):
        word = list(words[-1])
        if i % 8 == 0:
            word = [box[b] for b in word[1:] + word[:1]]
            word[0] ^= constant
            constant = constant << 1 & 0xFF
        elif i % 8 == 4:
            word = [box[b] for b in word]
        words.append([a ^ b for a, b in zip(words[i - 8], word)])
    flat = bytes(b for word in words for b in word)
    return [flat[208:224], flat[224:240]]


def pieces(key):
    return [key[i:i + 16] for i in range(0, len(key) - 15, 16)]


def aes(key):
    return pieces(key) + last_round_keys(key)


def siv(key):
    return aes(key[:32]) + aes(key[32:])


class Secrets:
    """The vault's keys and what was written, masked: this process's own memory is no concern, but its pipes are."""

    def __init__(self):
        with open(os.path.join(vault, "vaultfs.json"), "rb") as file:
            configuration = Configuration(file.read())
        with open(passfile, "rb") as file:
            self.passphrase = file.read()
        keys = configuration.open("passphrase", self.passphrase)
        self.kinds = {"passphrase": [self.passphrase], "class key": siv(keys.of_class[1]),
                      "link key": siv(keys.of_links[1])}
        self.backing = {}
        with open(os.path.join(vault, "vaultfs.dir"), "rb") as file:
            self.root = DirectoryRecord(file.read(), keys, True)
        self.kinds["name key"] = siv(self.root.name_key)
        with open(os.path.join(os.fsencode(vault), self.root.encode(b"file")[0]), "rb") as file:
            header = FileHeader(file.read(128), keys)
        self.kinds["file key"] = aes(header.cipher_key)
        self.kinds["mac key"] = aes(header.mac_key)
        self.kinds["attribute key"] = siv(header.xattr_key)


def scan(pid, kinds):
    needles = [(kind, piece) for kind, found in kinds.items() for piece in found]
    scanner = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scan_memory.py")
    lines = subprocess.run(
        [sys.executable, scanner, str(pid)], input="\n".join(piece.hex() for _, piece in needles), text=True,
        capture_output=True, check=True).stdout.splitlines()
    counts = {line.split()[1]: line for line in lines if line[:1].isdigit()}
    result = {}
    for kind, piece in needles:
        found, total = result.get(kind, (0, 0))
        line = counts[piece.hex()]
        hit = int(line.split()[0]) > 0
        if hit and "-v" in os.environ.get("LOCK_MEMORY", ""):
            print("#", kind, line, file=sys.stderr)
        result[kind] = (found + hit, total + 1)
    return result


def report(state, kinds):
    for kind, (found, total) in scan(daemon, kinds).items():
        print(f"{state}: {kind}: {found} of {total}")


def run(*arguments):
    subprocess.run([vaultfs, *arguments], check=True, capture_output=True, timeout=60)


def use(files):
    for descriptor in files:
        assert os.pread(descriptor, 1 << 20, 0)[:16] == content[:16]
    os.listdir(mountpoint)
    os.getxattr(path, "user.note")
    os.readlink(link)


daemon = next(
    int(pid) for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int, reverse=True)
    if os.fsencode(mountpoint) in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
    and open(f"/proc/{pid}/comm").read() == "vaultfs\n")

path, link = os.path.join(mountpoint, "file"), os.path.join(mountpoint, "link")
content, note = os.urandom(32) * 8192, os.urandom(24)
target, name = os.urandom(16).hex(), os.urandom(16).hex()
with open(path, "wb") as file:
    file.write(content)
os.setxattr(path, "user.note", note)
os.symlink(target, link)
open(os.path.join(mountpoint, name), "w").close()
files = [os.open(path, os.O_RDWR), os.open(path, os.O_RDONLY)]
directory = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY)

secrets = Secrets()
markers = {"content": [content[:32]], "attribute": [note], "link target": [target.encode()], "name": [name.encode()]}
use(files)
os.pwrite(files[0], content[:4096], 4096)
report("unlocked", secrets.kinds | markers)
run("lock", mountpoint)
report("locked", secrets.kinds | markers)
run("unlock", mountpoint, "--passfile", passfile)
use(files)
os.listdir(directory)
report("unlocked again", secrets.kinds | markers)
run("lock", mountpoint)
report("locked again", secrets.kinds | markers)
run("unlock", mountpoint, "--passfile", passfile)
use(files)
