"""Searches a daemon's memory for a vault's keys and plaintext: before a lock, after a lock with forget, and again after
an unlock with a secret and another lock. Run it as root, with the daemon run without memfd_secret(2).

lock_memory.py VAULTFS VAULT MOUNTPOINT PASSFILE

Prints a line for each state and each kind of secret: the number of its pieces that were found, and their total."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "..", "Reader"))
from memory_needles import aes, find_daemon, scan  # noqa: E402
from vaultfs_reader import Configuration, DirectoryRecord, FileHeader, hkdf  # noqa: E402

vaultfs, vault, mountpoint, passfile = sys.argv[1:]
MASK = os.urandom(1)[0] | 1


def masked(data):
    return bytes(byte ^ MASK for byte in data)


def siv(key):
    return aes(key[:32]) + aes(key[32:])


class Secrets:
    """The vault's keys and the written data, masked. The test must not find this process's own memory, but its pipes
    count."""

    def __init__(self):
        with open(os.path.join(vault, "vaultfs.json"), "rb") as file:
            configuration = Configuration(file.read())
        with open(passfile, "rb") as file:
            self.passphrase = file.read()
        keys = configuration.open("passphrase", self.passphrase)
        self.kinds = {"passphrase": [self.passphrase], "class key": siv(keys.of_class[0][1]),
                      "link key": siv(keys.of_links[0][1])}
        self.backing = {}
        with open(os.path.join(vault, "vaultfs.dir"), "rb") as file:
            self.root = DirectoryRecord(file.read(), keys, True)
        self.kinds["name key"] = siv(self.root.name_key)
        with open(os.path.join(os.fsencode(vault), self.root.encode(b"file")[0]), "rb") as file:
            header = FileHeader(file.read(128), keys)
        self.kinds["file key"] = aes(header.cipher_key)
        self.kinds["mac key"] = aes(header.mac_key)
        self.kinds["attribute key"] = siv(header.xattr_key)


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


daemon = find_daemon(mountpoint)
path, link = os.path.join(mountpoint, "file"), os.path.join(mountpoint, "link")
# Two threads share a request of this size.
content, note = os.urandom(32) * (1 << 15), os.urandom(24)
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
os.pwrite(files[0], content, 0)
report("unlocked", secrets.kinds | markers)
run("lock", mountpoint)
try:
    # Two requests, which at least one worker has received.
    os.pwrite(files[0], content * 2, 0)
    sys.exit("written while locked")
except OSError:
    pass
report("locked", secrets.kinds | markers)
run("unlock", mountpoint, "--passfile", passfile)
use(files)
os.listdir(directory)
report("unlocked again", secrets.kinds | markers)
run("lock", mountpoint)
report("locked again", secrets.kinds | markers)
run("unlock", mountpoint, "--passfile", passfile)
use(files)
