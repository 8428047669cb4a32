"""Makes files as other programs would: encrypted files, the same files before encryption, and their keys.

view_files.py KIND DIRECTORY PASSFILE [ARGUMENT...]

Files go to DIRECTORY/source, /originals and /keys. The kinds:
  chunks SIZE CIPHER PADDING LENGTH...   cbc-chunks, by the Python package cryptography; the vector is VECTOR
  aescrypt SIZE LENGTH...                cbc-chunks as AESCrypt-ObjC has it: the key a SHA-256, the vector zero
  cbc CIPHER PADDING LENGTH...           one chain, by cryptography; the vector is VECTOR
  cbc-with-vector CIPHER LENGTH...       the same after its vector
  enc CIPHER LENGTH...                   'openssl enc -K -iv'
  salted CIPHER OPTIONS LENGTH...        'openssl enc -pass file:' with more options, in one word"""

import hashlib
import os
import random
import subprocess
import sys

VECTOR = bytes.fromhex("000102030405060708090a0b0c0d0e0f")


def key_of(cipher):
    """The key is the same in every run; `aes-192-cbc`."""
    return random.Random(cipher).randbytes(int(cipher.split("-")[1]) // 8)


def content(length):
    return random.Random(length).randbytes(length)


def cbc(key, vector, plaintext, padding="pkcs7"):
    # Programs that import this for another purpose do not need it.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    if padding == "pkcs7":
        padder = PKCS7(128).padder()
        plaintext = padder.update(plaintext) + padder.finalize()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(plaintext) + encryptor.finalize()


def chunks(key, vector, plaintext, size, padding="pkcs7"):
    return b"".join(
        cbc(key, vector, plaintext[start : start + size], padding) for start in range(0, len(plaintext), size))


class Place:
    def __init__(self, directory, passfile):
        self.directory, self.passfile = directory, passfile

    def write(self, kind, name, data):
        path = os.path.join(self.directory, kind, name)
        with open(path, "wb") as file:
            file.write(data)
        if kind == "keys":
            os.chmod(path, 0o600)

    def add(self, lengths, encrypt):
        for length in map(int, lengths):
            plaintext = content(length)
            self.write("originals", f"file-{length}", plaintext)
            self.write("source", f"file-{length}", encrypt(plaintext))

    def add_key(self, cipher):
        """Binary, and as people write it."""
        key = key_of(cipher)
        self.write("keys", "binary", key)
        self.write("keys", "hex", key.hex().encode() + b"\n")
        return key

    def openssl(self, cipher, options, lengths):
        def encrypt(plaintext):
            command = ["openssl", "enc", "-" + cipher, *options]
            return subprocess.run(command, input=plaintext, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout

        self.add(lengths, encrypt)


def main(kind, directory, passfile, *arguments):
    place = Place(directory, passfile)
    if kind == "chunks":
        size, cipher, padding, *lengths = arguments
        key = place.add_key(cipher)
        place.add(lengths, lambda plaintext: chunks(key, VECTOR, plaintext, int(size), padding))
    elif kind == "aescrypt":
        size, *lengths = arguments
        with open(passfile, "rb") as file:
            key = hashlib.sha256(file.read()).digest()
        place.add(lengths, lambda plaintext: chunks(key, bytes(16), plaintext, int(size)))
    elif kind == "cbc":
        cipher, padding, *lengths = arguments
        key = place.add_key(cipher)
        place.add(lengths, lambda plaintext: cbc(key, VECTOR, plaintext, padding))
    elif kind == "cbc-with-vector":
        cipher, *lengths = arguments
        key = place.add_key(cipher)
        place.add(lengths, lambda plaintext: VECTOR + cbc(key, VECTOR, plaintext))
    elif kind == "enc":
        cipher, *lengths = arguments
        place.openssl(cipher, ["-K", place.add_key(cipher).hex(), "-iv", VECTOR.hex()], lengths)
    elif kind == "salted":
        cipher, options, *lengths = arguments
        place.openssl(cipher, ["-pass", "file:" + passfile, *options.split()], lengths)
    else:
        sys.exit(f"view_files: unknown kind {kind}")


if __name__ == "__main__":
    main(*sys.argv[1:])
