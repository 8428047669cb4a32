"""Makes MP4 files with encrypted samples from films of ffmpeg, as packagers write them (ISO/IEC 23001-7).

mp4_files.py KIND DIRECTORY [small | MEBIBYTES]: DIRECTORY/source has film.mp4 encrypted, /originals what a view of it must show,
byte for byte, /clear the film of ffmpeg, and /keys a file for each key, named by its identifier. A small film has some
kilobytes. MEBIBYTES: of the kind filled.

The kinds:
  h264 hevc aac          cbcs in fragments: pattern 1:9 for video, whole samples for audio
  both                   video and audio in one file, with a key each
  pattern-5-5 pattern-10-0
  cbc1                   one chain for each sample
  vectors                cbcs with a vector for each sample
  lead                   the first fragment is clear
  rotation               a key for each fragment, named by groups of samples
  auxiliary              without senc: the information is in front of the samples, where saio points
  unindexed              without a sidx, which the others in fragments have
  whole                  without fragments
  huge                   a gap of 5 GiB between the fragments, and 64-bit sizes; /originals is sparse, too
  long                   1 GiB: the first fragment 960 times, each with a box before it, and a hole at its end
  filled                 a fragment of six seconds again and again, for scripts/bench/view.py
  lying                  3000 track fragments of 4 million samples without bytes each, in 130 KB; no /originals
  hls-KIND               an init segment, a segment for each fragment, and film.m3u8
  ranges-KIND            film.m3u8 with byte ranges of film.mp4"""

import os
import random
import struct
import subprocess
import sys

from view_files import cbc

CONTAINERS = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"mvex", b"moof", b"traf"}
VECTOR = bytes.fromhex("00112233445566778899aabbccddeeff")
GAPS = {"huge": 5 << 30, "long": (1 << 30) // 960}
SYSTEMS = [  # A line of another system can come first.
    'METHOD=SAMPLE-AES,URI="data:text/plain;base64,AAAAAA==",KEYFORMAT="urn:uuid:edef8ba9-79d6-4ace-a3c8-27dcd51d21ed"',
    'METHOD=SAMPLE-AES,URI="skd://film",KEYFORMAT="com.apple.streamingkeydelivery",KEYFORMATVERSIONS="1"']


def key_of(identifier):
    return random.Random(identifier).randbytes(16)


class Box:
    def __init__(self, kind, payload=b"", children=None):
        self.kind, self.payload, self.children = kind, payload, children

    def bytes(self):
        body = self.payload + b"".join(child.bytes() for child in self.children or [])
        return struct.pack(">I", 8 + len(body)) + self.kind + body

    def all(self, *path):
        if not path:
            return [self]
        return [found for child in self.children if child.kind == path[0] for found in child.all(*path[1:])]

    def one(self, *path):
        found, = self.all(*path)
        return found


def parse(data):
    boxes, position = [], 0
    while position < len(data):
        size, kind = struct.unpack_from(">I4s", data, position)
        header = 8
        if size == 1:
            size, header = struct.unpack_from(">Q", data, position + 8)[0], 16
        payload = data[position + header : position + size]
        boxes.append(Box(kind, children=parse(payload)) if kind in CONTAINERS else Box(kind, payload))
        position += size
    return boxes


def full(kind, flags, payload, version=0):
    return Box(kind, struct.pack(">I", version << 24 | flags) + payload)


class Protection:
    """How the samples of a track are encrypted."""

    def __init__(self, kind, identifier, codec):
        self.scheme = b"cbc1" if kind == "cbc1" else b"cbcs"
        self.codec, self.identifier = codec, identifier
        self.vector_size = 16 if kind in ("cbc1", "vectors") else 0
        self.pattern = {"pattern-5-5": (5, 5), "pattern-10-0": (10, 0)}.get(kind, (1, 9))
        if self.scheme == b"cbc1" or codec == b"mp4a":
            self.pattern = (0, 0)

    def fields(self, identifier, vector):
        """Fields of tenc and seig, after the reserved byte."""
        constant = b"" if self.vector_size else struct.pack("B", len(vector)) + vector
        return struct.pack("BBB", self.pattern[0] << 4 | self.pattern[1], 1, self.vector_size) + identifier + constant

    def sinf(self, identifier):
        return Box(b"sinf", children=[
            Box(b"frma", self.codec), full(b"schm", 0, self.scheme + struct.pack(">I", 0x10000)),
            Box(b"schi", children=[full(b"tenc", 0, b"\0" + self.fields(identifier, VECTOR), version=1)])])

    def parts(self, sample):
        """(clear, protected) for each part of a sample. None for a sample without parts."""
        if self.codec == b"mp4a":
            return None
        parts, position, clear = [], 0, 0
        while position < len(sample):
            end = position + 4 + struct.unpack_from(">I", sample, position)[0]
            header = sample[position + 4]
            is_slice = header & 31 in (1, 5) if self.codec == b"avc1" else header >> 1 & 63 < 32
            # A header of the slice stays clear. Its length is no constant.
            keep = min(end - position, 4 + 9 + end % 7) if is_slice else end - position
            if self.scheme == b"cbc1":
                keep += (end - position - keep) % 16
            clear += keep
            if end - position > keep:
                parts.append((clear, end - position - keep))
                clear = 0
            position = end
        if clear:
            parts.append((clear, 0))
        return parts

    def encrypt(self, sample, parts, key, vector):
        result, position = b"", 0
        for clear, count in parts or [(0, len(sample))]:
            result += sample[position : position + clear]
            position += clear
            blocks = [sample[at : at + 16] for at in range(position, position + count - count % 16, 16)]
            crypt, skip = self.pattern if self.pattern[1] else (1, 0)
            chosen = [at for at in range(len(blocks)) if at % (crypt + skip) < crypt]
            encrypted = cbc(key, vector, b"".join(blocks[at] for at in chosen), padding="none")
            for number, at in enumerate(chosen):
                blocks[at] = encrypted[16 * number : 16 * number + 16]
            if self.scheme == b"cbc1" and encrypted:
                vector = encrypted[-16:]
            result += b"".join(blocks) + sample[position + count - count % 16 : position + count]
            position += count
        return result + sample[position:]


def protect_entries(moov, kind, protections):
    """Changes the sample entries of a moov. Fills in the protection of each track."""
    for number, trak in enumerate(moov.all(b"trak")):
        track, = struct.unpack_from(">I", trak.one(b"tkhd").payload, 12)
        stsd = trak.one(b"mdia", b"minf", b"stbl", b"stsd")
        size, codec = struct.unpack_from(">I4s", stsd.payload, 8)
        codec = b"avc1" if codec == b"avc1" else codec
        entry = stsd.payload[8 : 8 + size]
        identifier = bytes([0x10 + number]) * 16
        protection = protections[track] = Protection(kind, identifier, codec)
        named = bytes(16) if kind == "rotation" else identifier
        body = entry[8:] + protection.sinf(named).bytes()
        changed = Box(b"enca" if codec == b"mp4a" else b"encv", body).bytes()
        entries = [changed, entry] if kind == "lead" else [changed]
        stsd.payload = struct.pack(">II", 0, len(entries)) + b"".join(entries)


def information(protection, samples, vectors):
    """The entries of senc."""
    entries = []
    for sample, vector in zip(samples, vectors):
        parts = protection.parts(sample)
        entry = vector if protection.vector_size else b""
        if parts is not None:
            entry += struct.pack(">H", len(parts)) + b"".join(struct.pack(">HI", *part) for part in parts)
        entries.append(entry)
    return entries


class Film:
    """An encrypted film and the view of it, written side by side."""

    def __init__(self, kind, directory):
        self.kind, self.directory, self.protections, self.keys = kind, directory, {}, {}
        self.files = []

    def begin(self, name):
        """Writes this file from now on."""
        for file in self.files:
            file.truncate(file.tell())
            file.close()
        self.files = [open(f"{self.directory}/{tree}/{name}", "wb") for tree in ("source", "originals")]

    def write(self, encrypted, plain=None):
        for file, data in zip(self.files, (encrypted, encrypted if plain is None else plain)):
            file.write(data)

    def skip(self, count):
        self.write(struct.pack(">I4sQ", 1, b"free", count))
        self.hole(count - 16)

    def hole(self, count):
        for file in self.files:
            file.seek(count, os.SEEK_CUR)

    def key(self, identifier):
        self.keys[identifier.hex()] = key_of(identifier)
        return self.keys[identifier.hex()]

    def finish(self):
        self.begin("end")
        for file in self.files:
            file.close()
            os.unlink(file.name)
        for name, key in self.keys.items():
            with open(f"{self.directory}/keys/{name}", "w") as file:
                file.write(key.hex() + "\n")

    @staticmethod
    def shown(data):
        """Boxes as the view shows them."""
        for kind in (b"sinf", b"senc", b"saiz", b"saio", b"pssh"):
            data = data.replace(kind, b"free")
        # These occur with the type roll, too.
        for kind in (b"sgpd", b"sbgp"):
            position = data.find(kind)
            while position >= 0:
                if data[position + 8 : position + 12] == b"seig":
                    data = data[:position] + b"free" + data[position + 4 :]
                position = data.find(kind, position + 4)
        return data

    def shown_moov(self, data):
        for protection in self.protections.values():
            entry = b"enca" if protection.codec == b"mp4a" else b"encv"
            data = data.replace(entry, protection.codec)
        return self.shown(data)

    def moov(self, moov):
        protect_entries(moov, self.kind, self.protections)
        if self.kind == "lead":
            self.protections_of_entry = dict(self.protections)
        moov.children.append(full(b"pssh", 0, bytes(16) + struct.pack(">I", 4) + b"data"))

    def secrets(self, protection, number):
        """The identifier, the vector and the vectors of the samples of a fragment."""
        if self.kind == "rotation":
            return bytes([0xA0 + number, *range(1, 16)]), bytes([number]) * 16
        return protection.identifier, VECTOR

    def fragment(self, moof, mdat, number):
        is_clear = self.kind == "lead" and number == 0
        tracks, plain, encrypted = [], b"", b""
        start = len(moof.bytes()) + 8
        for traf in moof.all(b"traf"):
            header = traf.one(b"tfhd")
            flags, track = struct.unpack_from(">II", header.payload)
            samples, sizes = [], []
            position = None
            for trun in traf.all(b"trun"):
                parsed = Run(trun, header.payload)
                position = parsed.offset - start
                for size in parsed.sizes:
                    samples.append(mdat[position : position + size])
                    position += size
            tracks.append((traf, track, samples))
            protection = self.protections[track]
            if is_clear:
                # The second sample entry.
                header.payload = (
                    struct.pack(">III", flags | 2, track, 2) + header.payload[8 + (4 if flags & 2 else 0) :])
                continue
            identifier, vector = self.secrets(protection, number)
            vectors = [random.Random(f"{track} {number} {at}").randbytes(16) for at in range(len(samples))]
            entries = information(protection, samples, vectors)
            has_parts = protection.parts(samples[0]) is not None
            traf.information = entries
            if self.kind != "auxiliary":
                traf.children.append(full(
                    b"senc", 2 if has_parts else 0, struct.pack(">I", len(entries)) + b"".join(entries)))
            if any(entries):
                traf.children.append(full(
                    b"saiz", 0, struct.pack(">BI", 0, len(entries)) + bytes(map(len, entries))))
                traf.children.append(full(b"saio", 0, struct.pack(">II", 1, 0)))
            if self.kind == "rotation":
                fields = b"\0" + protection.fields(identifier, vector)
                traf.children.append(full(
                    b"sgpd", 0, b"seig" + struct.pack(">II", len(fields), 1) + fields, version=1))
                traf.children.append(full(b"sbgp", 0, b"seig" + struct.pack(">III", 1, len(samples), 0x10001)))
        # Now that all boxes are there, their sizes are known.
        header_size = 16 if self.kind == "huge" else 8
        moof_size = len(moof.bytes())
        for traf, track, samples in tracks:
            protection = self.protections[track]
            if self.kind == "auxiliary" and not is_clear:
                traf.one(b"saio").payload = struct.pack(">III", 0, 1, moof_size + header_size + len(plain))
                extra = b"".join(traf.information)
                plain += extra
                encrypted += extra
            elif traf.all(b"saio"):
                before = moof.bytes()
                position = before.find(traf.one(b"senc").bytes()) + 16
                traf.one(b"saio").payload = struct.pack(">III", 0, 1, position)
            for trun in traf.all(b"trun"):
                flags, count = struct.unpack_from(">II", trun.payload)
                sizes = Run(trun, traf.one(b"tfhd").payload).sizes
                trun.payload = struct.pack(">IIi", flags, count, moof_size + header_size + len(plain)) + trun.payload[12:]
                for at in range(count):
                    sample = samples.pop(0)
                    assert len(sample) == sizes[at]
                    plain += sample
                    if is_clear:
                        encrypted += sample
                        continue
                    identifier, vector = self.secrets(protection, number)
                    if protection.vector_size:
                        index = len(traf.information) - len(samples) - 1
                        vector = traf.information[index][:16]
                    encrypted += protection.encrypt(sample, protection.parts(sample), self.key(identifier), vector)
        data = moof.bytes()
        size = header_size + len(plain) + (GAPS["long"] if self.kind == "long" else 0)
        mdat_header = (
            struct.pack(">I4sQ", 1, b"mdat", size) if header_size == 16 else struct.pack(">I4s", size, b"mdat"))
        return data + mdat_header + encrypted, self.shown(data) + mdat_header + plain

    def whole(self, moov, mdat, mdat_start):
        """A film without fragments, its moov at the end."""
        data = bytearray(mdat)
        for trak in moov.all(b"trak"):
            track, = struct.unpack_from(">I", trak.one(b"tkhd").payload, 12)
            protection = self.protections[track]
            stbl = trak.one(b"mdia", b"minf", b"stbl")
            offsets = struct.unpack_from(">%dI" % struct.unpack_from(">I", stbl.one(b"stco").payload, 4), stbl.one(
                b"stco").payload, 8)
            size, count = struct.unpack_from(">II", stbl.one(b"stsz").payload, 4)
            sizes = [size] * count if size else struct.unpack_from(">%dI" % count, stbl.one(b"stsz").payload, 12)
            stsc = stbl.one(b"stsc").payload
            chunks = [struct.unpack_from(">III", stsc, 8 + 12 * at) for at in range(struct.unpack_from(">I", stsc, 4)[0])]
            at, samples = 0, []
            for number, offset in enumerate(offsets, 1):
                for _ in range([chunk for chunk in chunks if chunk[0] <= number][-1][1]):
                    samples.append((offset - mdat_start, sizes[at]))
                    offset += sizes[at]
                    at += 1
            plain = [mdat[start : start + size] for start, size in samples]
            entries = information(protection, plain, [VECTOR] * len(plain))
            for (start, size), sample in zip(samples, plain):
                data[start : start + size] = protection.encrypt(
                    sample, protection.parts(sample), self.key(protection.identifier), VECTOR)
            has_parts = protection.parts(plain[0]) is not None
            stbl.children.append(full(
                b"senc", 2 if has_parts else 0, struct.pack(">I", len(entries)) + b"".join(entries)))
        return bytes(data)


class Run:
    """The position and the sizes of the samples of a trun."""

    def __init__(self, trun, header):
        flags, _ = struct.unpack_from(">II", header)
        position = 8 + (8 if flags & 1 else 0) + (4 if flags & 2 else 0) + (4 if flags & 8 else 0)
        default = struct.unpack_from(">I", header, position)[0] if flags & 16 else 0
        flags, count, self.offset = struct.unpack_from(">IIi", trun.payload)
        assert flags & 1
        position, self.sizes = 12 + (4 if flags & 4 else 0), []
        for _ in range(count):
            position += 4 if flags & 0x100 else 0
            self.sizes.append(struct.unpack_from(">I", trun.payload, position)[0] if flags & 0x200 else default)
            position += sum(4 for flag in (0x200, 0x400, 0x800) if flags & flag)


def film(kind, path, is_small):
    """Writes a clear film of three seconds, in three fragments."""
    size, rate = ("64x64", "5") if is_small else ("320x180", "25")
    video = ["-f", "lavfi", "-i", f"testsrc2=size={size}:rate={rate}:duration=3"]
    audio = ["-f", "lavfi", "-i", "sine=frequency=440:duration=3"]
    x264 = ["-c:v", "libx264", "-preset", "ultrafast", "-g", rate, "-x264-params", "slices=2"]
    x265 = ["-c:v", "libx265", "-preset", "ultrafast", "-g", rate, "-tag:v", "hvc1", "-x265-params", "log-level=error"]
    aac = ["-c:a", "aac"]
    coding = {"hevc": video + x265, "aac": audio + aac}.get(
        kind, video + audio + x264 + aac if kind in ("both", "whole") else video + x264)
    fragments = ["-frag_duration", "1000000", "-movflags", "empty_moov+default_base_moof"]
    if kind == "filled":
        coding[3] = "testsrc2=size=640x360:rate=25:duration=12"
        fragments[1] = "6000000"
    if kind == "whole":
        fragments = []
    subprocess.run(
        ["ffmpeg", "-v", "error", "-y", *coding, "-threads", "1", *fragments, path], stdin=subprocess.DEVNULL,
        check=True)


def index(fragments, gap):
    """A sidx of the fragments, which follows the moov."""
    references = b"".join(struct.pack(">III", len(data) + gap, 1000, 0x90000000) for data, _ in fragments)
    return full(b"sidx", 0, struct.pack(">IIIIHH", 1, 1000, 0, 0, 0, len(fragments)) + references).bytes()


def playlist(directory, lines, keyed):
    """Writes the playlist. The key lines are before the line with the number `keyed`."""
    for tree, keys in (("source", SYSTEMS), ("originals", [])):
        with open(f"{directory}/{tree}/film.m3u8", "w") as file:
            for line in ["#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-TARGETDURATION:1", *lines[:keyed]]:
                file.write(line + "\n")
            for line in [f"#EXT-X-KEY:{key}" for key in keys] + lines[keyed:] + ["#EXT-X-ENDLIST"]:
                file.write(line + "\n")


def make(kind, directory, size=None):
    form, _, rest = kind.partition("-")
    form, kind = (form, rest) if form in ("hls", "ranges") else ("", kind)
    for name in ("source", "originals", "clear", "keys"):
        os.makedirs(f"{directory}/{name}", exist_ok=True)
    film(kind, f"{directory}/clear/film.mp4", size == "small")
    with open(f"{directory}/clear/film.mp4", "rb") as file:
        boxes = parse(file.read())
    made = Film(kind, directory)
    moov = next(box for box in boxes if box.kind == b"moov")
    made.moov(moov)
    made.begin("init.mp4" if form == "hls" else "film.mp4")
    made.write(next(box for box in boxes if box.kind == b"ftyp").bytes())
    if kind == "whole":
        mdat = next(box for box in boxes if box.kind == b"mdat")
        before = b"".join(box.bytes() for box in boxes[1 : boxes.index(mdat)])
        start = made.files[0].tell() + len(before) + 8
        encrypted = made.whole(moov, mdat.payload, start)
        header = struct.pack(">I4s", 8 + len(encrypted), b"mdat")
        made.write(before + header + encrypted + moov.bytes(), before + header + mdat.payload + made.shown_moov(moov.bytes()))
        return made.finish()
    made.write(moov.bytes(), made.shown_moov(moov.bytes()))
    if kind == "lying":
        lie = Box(b"traf", children=[full(b"tfhd", 0x20010, struct.pack(">II", 1, 0)), full(b"trun", 0, struct.pack(">I", 1 << 22))])
        made.write(Box(b"moof", children=[lie] * 3000).bytes() + Box(b"mdat", bytes(100)).bytes())
        for protection in made.protections.values():
            made.key(protection.identifier)
        return made.finish()
    moofs = [at for at, box in enumerate(boxes) if box.kind == b"moof"]
    fragments = [made.fragment(boxes[at], boxes[at + 1].payload, number) for number, at in enumerate(moofs)]
    assert len(fragments) >= 2
    if kind == "long":
        fragments = fragments[:1] * 960
    if kind == "filled":
        fragments = fragments[:1] * ((int(size) << 20) // len(fragments[0][0]))
    lines = [f'#EXT-X-MAP:URI="{"init.mp4" if form == "hls" else "film.mp4"}"']
    if form == "ranges":
        lines[0] += f',BYTERANGE="{made.files[0].tell()}@0"'
    if kind not in ("unindexed", "huge") and form != "hls":
        made.write(index(fragments, GAPS["long"] + 64 if kind == "long" else 0))
    for number, fragment in enumerate(fragments):
        if kind == "long":
            made.skip(64)
        if kind == "huge" and number == 1:
            made.skip(GAPS[kind])
        if form == "hls":
            made.begin(f"{number}.m4s")
        lines += ["#EXTINF:1,", *([f"#EXT-X-BYTERANGE:{len(fragment[0])}@{made.files[0].tell()}"] if not form == "hls" else []),
                  f"{number}.m4s" if form == "hls" else "film.mp4"]
        made.write(*fragment)
        if kind == "long":
            made.hole(GAPS[kind])
    made.finish()
    if form:
        # As packagers do: after a clear segment, but before all byte ranges of a file.
        playlist(directory, lines, 3 if kind == "lead" and form == "hls" else 1)


if __name__ == "__main__":
    make(*sys.argv[1:])
