"""security_key.py STATE PROGRAM ARGUMENT...

Stands in for PROGRAM (fido2-token, fido2-cred or fido2-assert) of fido2-tools 1.12, with the security keys of the JSON
file STATE instead of those of the machine. The arguments, formats, prompts, errors and exit codes are those of the real
programs. A key derives its credentials and their secrets from a secret of its own, as real keys do. `fido2-cred -V` is
the real program: it verifies the attestation that is made here.

STATE maps the path of each key to an object:

  secret      text, from which everything is derived
  pin         the PIN, null if none is set; `failed`: the number of wrong ones since the last right one
  extensions  list of extensions
  untouched   true if nobody touches the key
"""

import base64
import binascii
import getopt
import hashlib
import hmac
import json
import os
import sys
import termios

PIN_REQUIRED = 3
USAGE = {
    "fido2-token": "usage: fido2-token -C [-d] device\n",
    "fido2-cred": "usage: fido2-cred -M [-bdhqruv] [-c cred_protect] [-i input_file] [-o output_file] device [type]\n"
                  "       fido2-cred -V [-dhv] [-c cred_protect] [-i input_file] [-o output_file] [type]\n",
    "fido2-assert": "usage: fido2-assert -G [-bdhpruv] [-t option] [-i input_file] [-o output_file] device\n"
                    "       fido2-assert -V [-dhpv] [-i input_file] key_file [type]\n",
}

state_path, program, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]


def fail(reason):
    """errx(3)"""
    print(f"{program}: {reason}", file=sys.stderr)
    sys.exit(1)


def usage():
    sys.stderr.write(USAGE[program])
    sys.exit(1)


def options(names):
    try:
        found, rest = getopt.getopt(arguments[1:], names)
    except getopt.GetoptError:
        usage()
    if len(rest) != 1:
        usage()
    return dict(found), rest[0]


def blob():
    """A line of base64 on standard input."""
    try:
        return base64.b64decode(line(), validate=True) or fail("input error")
    except binascii.Error:
        fail("input error")


def line():
    text = sys.stdin.readline()
    if not text.endswith("\n"):
        fail("input error")
    return text[:-1]


def encoded(data):
    return base64.b64encode(data).decode()


def cbor_bytes(data):
    return (b"\x58" + bytes([len(data)]) if len(data) < 256 else b"\x59" + len(data).to_bytes(2, "big")) + data


class Key:
    def __init__(self, path):
        with open(state_path, encoding="utf-8") as file:
            self.keys = json.load(file)
        self.path = path
        self.state = self.keys.get(path) or fail(f"fido_dev_open {path}: FIDO_ERR_INTERNAL")

    def derive(self, purpose, *parts):
        return hmac.digest(self.state["secret"].encode(), b"|".join((purpose, *parts)), "sha256")

    def ask_pin(self, call):
        """readpassphrase(3): from the terminal, or from standard input if there is none."""
        prompt = f"Enter PIN for {self.path}: "
        try:
            terminal = open("/dev/tty", "r+b", buffering=0)
        except OSError:
            sys.stderr.write(prompt)
            pin = sys.stdin.readline().rstrip("\n")
        else:
            before = termios.tcgetattr(terminal)
            silent = before[:3] + [before[3] & ~termios.ECHO] + before[4:]
            try:
                termios.tcsetattr(terminal, termios.TCSAFLUSH, silent)
                terminal.write(prompt.encode())
                pin = terminal.readline().decode().rstrip("\n")
                terminal.write(b"\n")
            finally:
                termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
        if not 4 <= len(pin) <= 63:
            fail("invalid PIN length")
        failed = self.state.get("failed", 0)
        if failed >= 8:
            fail(f"{call}: FIDO_ERR_PIN_BLOCKED")
        if failed == 3:
            fail(f"{call}: FIDO_ERR_PIN_AUTH_BLOCKED")
        self.state["failed"] = 0 if pin == self.state["pin"] else failed + 1
        with open(state_path, "w", encoding="utf-8") as file:
            json.dump(self.keys, file)
        if self.state["failed"]:
            fail(f"{call}: FIDO_ERR_PIN_INVALID")

    def touch(self, call):
        if self.state.get("untouched"):
            fail(f"{call}: FIDO_ERR_ACTION_TIMEOUT")

    def tag(self, body, party):
        return self.derive(b"credential", body, party.encode())[:16]


def token():
    if arguments == ["-L"]:
        with open(state_path, encoding="utf-8") as file:
            for path in json.load(file):
                print(f"{path}: vendor=0x1050, product=0x0407 (Yubico YubiKey OTP+FIDO+CCID)")
        return
    found, path = options("Idci:k:")
    if found != {} or arguments[0] != "-I":
        usage()
    state = Key(path).state
    pin = "clientPin" if state["pin"] else "noclientPin"
    print("proto: 0x02\nmajor: 0x05\nminor: 0x04\nbuild: 0x03\ncaps: 0x05 (wink, cbor, msg)")
    print("version strings: U2F_V2, FIDO_2_0, FIDO_2_1_PRE")
    if state["extensions"]:
        print("extension strings: " + ", ".join(state["extensions"]))
    print(f"transport strings: usb\noptions: rk, up, noplat, {pin}, credentialMgmtPreview")
    print("pin retries: 8" if state["pin"] else "pin retries: undefined")


def make():
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    if arguments[:1] == ["-V"]:
        os.execv("/usr/bin/fido2-cred", [program, *arguments])
    if arguments[:1] != ["-M"]:
        usage()
    found, path = options("bdhi:o:c:qruv")
    client, party, _, _ = blob(), line(), line(), blob()
    if len(client) != 32:
        fail("fido_cred_set: FIDO_ERR_INVALID_ARGUMENT")
    key, call = Key(path), "fido_dev_make_cred"
    protection = int(found.get("-c", "0"))
    wanted = (["credProtect"] if protection else []) + (["hmac-secret"] if "-h" in found else [])
    verified = key.state["pin"] is not None
    if verified:
        key.ask_pin(call)
    key.touch(call)
    if any(name not in key.state["extensions"] for name in wanted):
        fail(f"{call}: FIDO_ERR_UNSUPPORTED_EXTENSION")
    body = os.urandom(31) + bytes([protection])
    identity = body + key.tag(body, party)
    private = ec.derive_private_key(int.from_bytes(key.derive(b"private", identity), "big") >> 1 or 1, ec.SECP256R1())
    point = private.public_key().public_numbers()
    cose = (b"\xa5\x01\x02\x03\x26\x20\x01\x21" + cbor_bytes(point.x.to_bytes(32, "big"))
            + b"\x22" + cbor_bytes(point.y.to_bytes(32, "big")))
    values = {"credProtect": bytes([protection]), "hmac-secret": b"\xf5"}
    extensions = bytes([0xA0 | len(wanted)]) + b"".join(
        bytes([0x60 | len(name)]) + name.encode() + values[name] for name in wanted)
    flags = 0x01 | 0x40 | (0x04 if verified else 0) | (0x80 if wanted else 0)
    data = (hashlib.sha256(party.encode()).digest() + bytes([flags]) + bytes(4) + bytes(16)
            + len(identity).to_bytes(2, "big") + identity + cose + (extensions if wanted else b""))
    signature = private.sign(data + client, ec.ECDSA(hashes.SHA256()))
    for text in (encoded(client), party, "packed", encoded(cbor_bytes(data)), encoded(identity), encoded(signature)):
        print(text)


def get():
    if arguments[:1] != ["-G"]:
        usage()
    found, path = options("bdhi:o:prt:uv")
    client, party, identity = blob(), line(), blob()
    salt = blob() if "-h" in found else None
    if salt is not None and len(salt) not in (32, 64):
        fail("fido_assert_set_hmac_salt: FIDO_ERR_INVALID_ARGUMENT")
    key, call = Key(path), "fido_dev_get_assert"
    verified = "-v" in found
    if verified:
        if key.state["pin"] is None:
            fail(f"{call}: FIDO_ERR_PIN_NOT_SET")
        key.ask_pin(call)
    body, tag = identity[:32], identity[32:]
    known = len(identity) == 48 and hmac.compare_digest(tag, key.tag(body, party))
    if not known or (body[31] == PIN_REQUIRED and not verified):
        fail(f"{call}: FIDO_ERR_NO_CREDENTIALS")
    key.touch(call)
    data = hashlib.sha256(party.encode()).digest() + bytes([0x85 if verified else 0x81]) + bytes(4)
    print(encoded(client), party, encoded(cbor_bytes(data)), encoded(key.derive(b"signature", data)), sep="\n")
    if salt is not None:
        # Another secret with the PIN than without it (CTAP 2.1).
        secret = key.derive(b"secret with PIN" if verified else b"secret", identity)
        parts = [salt[start:start + 32] for start in range(0, len(salt), 32)]
        print(encoded(b"".join(hmac.digest(secret, part, "sha256") for part in parts)))


{"fido2-token": token, "fido2-cred": make, "fido2-assert": get}[program]()
