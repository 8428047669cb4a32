"""Checks that a mounted HLS download equals the files that ffmpeg wrote without a key, and plays like the encrypted
one.

hls_compare.py MOUNT ORIGINALS SOURCE: each with out.m3u8; prints what differs."""

import os
import re
import subprocess
import sys

from range_server import serve

mountpoint, originals, source = sys.argv[1:]
PLAYLIST = "out.m3u8"
FRAMES = 150
# Near a segment's end, and near the film's.
SEEKS = ("2.9", "5.2")
FORMAT = "format=format_name,nb_streams,start_time,duration"
PACKETS = "packet=stream_index,pts,dts,duration,size,flags,data_hash"


def stop(*what):
    sys.exit("FAILED: " + " ".join(map(str, what)))


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def output(command, directory):
    result = subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    # ffmpeg reports errors in its own fragments after a seek.
    if result.returncode:
        stop(" ".join(command), "in", directory, result.stderr.decode())
    return result.stdout


def compare_files():
    names = [
        os.path.relpath(os.path.join(directory, name), originals)
        for directory, _, names in os.walk(originals) for name in sorted(names)]
    for name in names:
        expected = read(originals, name)
        if read(mountpoint, name) != expected:
            stop(name, "differs")
        if os.stat(os.path.join(mountpoint, name)).st_size != len(expected):
            stop(name, "stat says", os.stat(os.path.join(mountpoint, name)).st_size)
    if len(names) < 2:
        stop("no segments")


def seen(directory, url, options=()):
    """The complete output of ffprobe and ffmpeg, played from the beginning and from other positions."""
    packets = ["ffprobe", "-v", "error", *options, "-show_data_hash", "md5", "-show_entries", f"{FORMAT}:{PACKETS}", url]
    frames = ["-i", url, "-f", "framemd5", "-"]
    return [output(packets, directory), output(["ffmpeg", "-v", "error", *options, *frames], directory)] + [
        output(["ffmpeg", "-v", "error", *options, "-ss", seek, *frames[:2], "-t", "0.5", *frames[2:]], directory)
        for seek in SEEKS]


# Before it is played: no cache has any data, and sizes are wrong until the first open.
compare_files()
expected = seen(originals, PLAYLIST)
if len(re.findall(rb"\n0, ", expected[1])) != FRAMES:
    stop("the original has", expected[1].decode())
encrypted = ["-allowed_extensions", "ALL"]
# By a web server, because for a local file ffmpeg uses another vector than a byte range has.
encrypted_url, url = (f"http://127.0.0.1:{serve(directory)}/{PLAYLIST}" for directory in (source, mountpoint))
for name, found in (
    ("the mount", seen(mountpoint, PLAYLIST)),
    ("the encrypted original", seen("/", encrypted_url, encrypted)),
    ("a web server of the mount", seen("/", url)),
):
    for number, (one, other) in enumerate(zip(found, expected)):
        if one != other:
            stop(name, "differs, case", number, one.decode()[:3000], other.decode()[:3000])
