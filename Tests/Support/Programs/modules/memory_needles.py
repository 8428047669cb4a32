"""Byte strings to search for in a daemon's memory, for programs that test the effect of a lock on it."""

import os
import subprocess
import sys


def last_round_keys(key):
    """Round keys 13 and 14 of AES-256 (FIPS 197, 5.2): the part of a schedule that is not in the key."""
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


def is_daemon(pid, mountpoint):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as words, open(f"/proc/{pid}/comm") as name:
            return os.fsencode(mountpoint) in words.read().split(b"\0") and name.read() == "vaultfs\n"
    except (FileNotFoundError, ProcessLookupError):
        # Another process, which has just ended.
        return False


def find_daemon(mountpoint):
    processes = sorted(map(int, filter(str.isdigit, os.listdir("/proc"))), reverse=True)
    return next(pid for pid in processes if is_daemon(pid, mountpoint))
