"""Makes HLS downloads with ffmpeg: encrypted, and the same run without a key.

hls_files.py KIND DIRECTORY

DIRECTORY/source gets the encrypted one and DIRECTORY/originals the plain one, each with out.m3u8. The kinds:
  one-key        ffmpeg's -hls_key_info_file
  vector         the same with a vector given
  rekey          -hls_flags periodic_rekey, the key info file replaced while ffmpeg runs
  single-file    -hls_flags single_file: byte ranges
  fragments      fMP4 with an initialization section, encrypted by openssl: ffmpeg refuses to
  fragment-file  the same as byte ranges of one file
  variants       a master playlist, and variants in subdirectories"""

import fcntl
import os
import random
import re
import subprocess
import sys
import termios
import time

SECONDS = 6
VARIANTS = ["-map", "0:v", "-map", "0:a", "-map", "0:v", "-map", "0:a", "-b:v:0", "200k", "-b:v:1", "100k"] + [
    "-master_pl_name", "out.m3u8", "-var_stream_map", "v:0,a:0 v:1,a:1"]


def run(command, **options):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, **options)


def ffmpeg(arguments, directory):
    run(["ffmpeg", "-v", "error", "-y", *arguments], cwd=directory)


def make_media(path):
    video = f"testsrc=size=160x90:rate=25:duration={SECONDS}"
    ffmpeg(
        ["-f", "lavfi", "-i", video, "-f", "lavfi", "-i", f"sine=duration={SECONDS}", "-c:v", "libx264"]
        + ["-preset", "ultrafast", "-g", "25", "-pix_fmt", "yuv420p", "-threads", "1", "-c:a", "aac", "-bitexact"]
        + ["-f", "mpegts", path], os.path.dirname(path))


def muxing(media, arguments):
    return ["-i", media, "-c", "copy", "-fflags", "+bitexact", "-f", "hls", "-hls_time", "1", "-hls_list_size", "0"] + [
        *arguments, "v%v/list.m3u8" if arguments[-1:] == VARIANTS[-1:] else "out.m3u8"]


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def key_of(number):
    return random.Random(f"key {number}").randbytes(16)


def write_information(directory, number, vector="", uri=""):
    """Writes key `number`, and the file that names it for ffmpeg, in one step."""
    name = f"key{number}.bin"
    write(os.path.join(directory, name), key_of(number))
    path = os.path.join(directory, "information")
    write(path + ".new", f"{uri}{name}\n{name}\n{vector}\n".encode())
    os.rename(path + ".new", path)


def make_encrypted(media, directory, arguments, vector="", uri=""):
    write_information(directory, 0, vector, uri)
    ffmpeg(muxing(media, ["-hls_key_info_file", "information", *arguments]), directory)
    os.remove(os.path.join(directory, "information"))


def await_drained(pipe, process):
    """Waits until ffmpeg has read all of its input. Its output follows soon."""
    deadline = time.monotonic() + 20
    while int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder):
        if time.monotonic() > deadline or process.poll() is not None:
            sys.exit("hls_files: ffmpeg does not read on")
        time.sleep(0.002)


def make_rekeyed(media, directory):
    """Changes the key whenever ffmpeg, which gets the media in small pieces, has begun two more segments."""
    write_information(directory, 0)
    arguments = ["-hls_key_info_file", "information", "-hls_flags", "periodic_rekey"]
    # Small probes, so that ffmpeg begins to write before it has read everything.
    probing = ["-probesize", "50000", "-analyzeduration", "100000", "-f", "mpegts"]
    process = subprocess.Popen(
        ["ffmpeg", "-v", "error", "-y", *probing, *muxing("pipe:0", arguments)], cwd=directory, stdin=subprocess.PIPE)
    with open(media, "rb") as file:
        data = file.read()
    keys = 1
    step = len(data) // (SECONDS * 8)
    for start in range(0, len(data), step):
        process.stdin.write(data[start : start + step])
        process.stdin.flush()
        await_drained(process.stdin, process)
        if os.path.exists(os.path.join(directory, f"out{2 * keys - 1}.ts")):
            write_information(directory, keys)
            keys += 1
    process.stdin.close()
    if process.wait(20) != 0:
        sys.exit("hls_files: ffmpeg failed")
    os.remove(os.path.join(directory, "information"))
    with open(os.path.join(directory, "out.m3u8")) as file:
        used = set(re.findall('URI="([^"]*)"', file.read()))
    if len(used) < 2:
        sys.exit(f"hls_files: ffmpeg used only {used}")


def encrypt(data, key, vector):
    command = ["openssl", "enc", "-aes-128-cbc", "-K", key.hex(), "-iv", f"{vector:032x}"]
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


class Rewriting:
    """Turns a plain fMP4 playlist into an encrypted one, line by line: a vector for the map, segment numbers for the
    rest."""

    def __init__(self, plain, encrypted):
        self.plain, self.encrypted = plain, encrypted
        self.sizes = {}

    def encrypted_part(self, name, byte_range, vector):
        with open(os.path.join(self.plain, name), "rb") as file:
            data = file.read()
        if byte_range:
            size, start = map(int, byte_range.split("@"))
            data = data[start : start + size]
        data = encrypt(data, key_of(0), vector)
        start = self.sizes.get(name, 0)
        with open(os.path.join(self.encrypted, name), "ab") as file:
            file.write(data)
        self.sizes[name] = start + len(data)
        return f"{len(data)}@{start}"

    def lines(self, lines):
        byte_range, number = None, 0
        for line in lines:
            if line.startswith("#EXT-X-MAP"):
                name = re.search('URI="([^"]*)"', line).group(1)
                found = re.search('BYTERANGE="([^"]*)"', line)
                written = self.encrypted_part(name, found and found.group(1), 42)
                yield '#EXT-X-KEY:METHOD=AES-128,URI="key0.bin",IV=0x' + f"{42:032x}"
                yield line.replace(found.group(1), written) if found else line
                yield '#EXT-X-KEY:METHOD=AES-128,URI="key0.bin"'
            elif line.startswith("#EXT-X-BYTERANGE:"):
                byte_range = line.split(":")[1]
            elif line and not line.startswith("#"):
                written = self.encrypted_part(line, byte_range, number)
                if byte_range:
                    yield "#EXT-X-BYTERANGE:" + written
                yield line
                byte_range, number = None, number + 1
            else:
                yield line


def make_fragments(plain, encrypted):
    write(os.path.join(encrypted, "key0.bin"), key_of(0))
    with open(os.path.join(plain, "out.m3u8")) as file:
        lines = file.read().splitlines()
    with open(os.path.join(encrypted, "out.m3u8"), "w") as file:
        file.writelines(line + "\n" for line in Rewriting(plain, encrypted).lines(lines))


def main(kind, directory):
    plain, encrypted = os.path.join(directory, "originals"), os.path.join(directory, "source")
    media = os.path.join(directory, "media.ts")
    make_media(media)
    fragments = ["-hls_segment_type", "fmp4", "-bsf:a", "aac_adtstoasc"]
    arguments = {
        "single-file": ["-hls_flags", "single_file"],
        "fragments": fragments,
        "variants": VARIANTS,
        "fragment-file": [*fragments, "-hls_flags", "single_file"],
    }.get(kind, [])
    ffmpeg(muxing(media, arguments), plain)
    if kind == "rekey":
        make_rekeyed(media, encrypted)
    elif kind.startswith("fragment"):
        make_fragments(plain, encrypted)
    else:
        vector = "0123456789abcdef" * 2 if kind == "vector" else ""
        make_encrypted(media, encrypted, arguments, vector, "../" if kind == "variants" else "")


if __name__ == "__main__":
    main(*sys.argv[1:])
