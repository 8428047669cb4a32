"""Changes that an attacker can make who can write the backing directory. Uses the passphrase only to find the backing
files.

tamper.py VAULT PASSFILE CHANGE PATH [ARGUMENT…]"""

import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "..", "Reader"))
from vaultfs_reader import Configuration, Report, Vault as OpenVault  # noqa: E402


def read_whole(path):
    with open(path, "rb") as file:
        return file.read()


class Vault:
    def __init__(self, root, passfile):
        self.root = os.fsencode(root)
        configuration = Configuration(read_whole(os.path.join(self.root, b"vaultfs.json")))
        keys = configuration.open("passphrase", read_whole(passfile))
        with OpenVault(self.root, keys, Report()) as vault:
            self.backing_paths = {item.path: item.backing for item in vault.walk(vault.root)}
        self.record_size = keys.chunk_size + 32

    def backing(self, path):
        return self.root if path == "." else self.backing_paths[os.fsencode(path)]

    def record(self, path, index):
        with open(self.backing(path), "rb") as file:
            file.seek(128 + index * self.record_size)
            return file.read(self.record_size)

    def put(self, path, at, data):
        with open(self.backing(path), "r+b") as file:
            file.seek(at)
            file.write(data)

    def put_record(self, path, index, record):
        self.put(path, 128 + index * self.record_size, record)

    def flip(self, path, at):
        with open(self.backing(path), "rb") as file:
            file.seek(at)
            byte = file.read(1)[0]
        self.put(path, at, bytes([byte ^ 0x10]))


def flip_record(vault, path, index, at):
    """`at`: of the record (0: IV, 16: ciphertext; negative: from its end)"""
    index, at = int(index), int(at)
    start = 128 + index * vault.record_size
    vault.flip(path, start + (at if at >= 0 else len(vault.record(path, index)) + at))


def flip_header(vault, path, at):
    vault.flip(path, int(at))


def swap(vault, path, i, j):
    a, b = vault.record(path, int(i)), vault.record(path, int(j))
    vault.put_record(path, int(i), b)
    vault.put_record(path, int(j), a)


def take(vault, path, i, other, j):
    vault.put_record(path, int(i), vault.record(other, int(j)))


def zero(vault, path, i):
    vault.put_record(path, int(i), bytes(len(vault.record(path, int(i)))))


def cut(vault, path, size):
    """To `size` bytes of the backing file; negative: off its end"""
    size = int(size)
    backing = vault.backing(path)
    os.truncate(backing, size if size >= 0 else os.stat(backing).st_size + size)


def cut_chunks(vault, path, count):
    os.truncate(vault.backing(path), 128 + int(count) * vault.record_size)


def grow(vault, path, count):
    """By a hole of `count` bytes of the backing file"""
    backing = vault.backing(path)
    os.truncate(backing, os.stat(backing).st_size + int(count))


def extend(vault, path, count):
    with open(vault.backing(path), "ab") as file:
        file.write(vault.record(path, 0) * int(count))


def set_class(vault, path, number):
    target = vault.backing(path)
    if os.path.isdir(target):
        target = os.path.join(target, b"vaultfs.dir")
    with open(target, "r+b") as file:
        file.seek(5)
        file.write(bytes([int(number)]))


def move(vault, path, directory):
    backing = vault.backing(path)
    target = os.path.join(vault.backing(directory), os.path.basename(backing))
    os.rename(backing, target)
    if os.path.exists(backing + b".name"):
        os.rename(backing + b".name", target + b".name")


def copy_name(vault, path, directory):
    """The entry again, in another directory, contents and all"""
    backing = vault.backing(path)
    shutil.copy(backing, os.path.join(vault.backing(directory), os.path.basename(backing)))


def respell(vault, path):
    """Another spelling of the same name: the bits base64url leaves unused"""
    backing = vault.backing(path)
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet[alphabet.index(backing[-1:]) ^ 1:][:1]
    shutil.copy(backing, backing[:-1] + last)


def rename_flip(vault, path):
    backing = vault.backing(path)
    name = os.path.basename(backing)
    os.rename(backing, os.path.join(os.path.dirname(backing), (b"A" if name[:1] != b"A" else b"B") + name[1:]))


def sidecar(vault, path, change):
    """`remove`, `flip` or `swap OTHER` on a long name's sidecar"""
    side = vault.backing(path) + b".name"
    if change == "remove":
        os.unlink(side)
    else:
        data = bytearray(read_whole(side))
        data[20] ^= 1
        with open(side, "wb") as file:
            file.write(data)


def directory_record(vault, path, change, *arguments):
    record = os.path.join(vault.backing(path), b"vaultfs.dir")
    if change == "remove":
        os.unlink(record)
    elif change == "from":
        shutil.copy(os.path.join(vault.backing(arguments[0]), b"vaultfs.dir"), record)
    elif change == "cut":
        os.truncate(record, int(arguments[0]))
    else:
        data = bytearray(read_whole(record))
        data[int(arguments[0])] ^= 0x10
        with open(record, "wb") as file:
            file.write(data)


def link(vault, path, change):
    backing = vault.backing(path)
    target = os.readlink(backing)
    os.unlink(backing)
    if change == "plain":
        target = b"/etc/passwd"
    elif change == "class":
        target = b"2" + target[1:]
    else:
        target = target[:40] + (b"A" if target[40:41] != b"A" else b"B") + target[41:]
    os.symlink(target, backing)


def attribute(vault, path, change):
    backing = vault.backing(path)
    names = [n for n in os.listxattr(backing) if n.startswith("user.vaultfs.")]
    value = os.getxattr(backing, names[0])
    if change == "flip":
        os.setxattr(backing, names[0], value[:-1] + bytes([value[-1] ^ 1]))
    elif change == "swap":
        os.setxattr(backing, names[0], os.getxattr(backing, names[1]))
        os.setxattr(backing, names[1], value)


def configuration(vault, _, pattern, replacement):
    path = os.path.join(vault.root, b"vaultfs.json")
    text = read_whole(path).decode()
    changed, count = re.subn(pattern, replacement, text, count=1)
    if not count:
        sys.exit(f"{pattern} is not in vaultfs.json")
    with open(path, "w") as file:
        file.write(changed)


CHANGES = {f.__name__: f for f in (flip_record, flip_header, swap, take, zero, cut, cut_chunks, grow, extend, set_class, move, copy_name,
                                   respell, rename_flip, sidecar, directory_record, link, attribute, configuration)}

if __name__ == "__main__":
    CHANGES[sys.argv[3]](Vault(sys.argv[1], sys.argv[2]), *sys.argv[4:])
