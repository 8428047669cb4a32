internal import LinuxSystem

/// Parses a playlist line by line. Follows players (ffmpeg's libavformat/hls.c and others) if they agree with RFC 8216 or
/// it is silent: only a URI after an `EXTINF` is a segment.
struct PlaylistParser {
    private static let byteOrderMark: [UInt8] = [0xEF, 0xBB, 0xBF]

    /// The keys in force (RFC 8216, 4.3.2.4 and 5.2).
    private struct Keys {
        /// Each URI once.
        var uris: [[UInt8]] = []
        private var numbers: [[UInt8]: Int] = [:]
        /// True after a key line without `METHOD=NONE`.
        var isUsed = false
        /// The key that a player without DRM uses. A nil vector stands for the segment's number.
        var identity: (key: Int, vector: InitialVector?)?
        /// The formats of other keys, such as FairPlay's. They alone are of no use here.
        var foreign: Set<[UInt8]> = []

        mutating func number(of uri: [UInt8]) -> Int {
            if let number = numbers[uri] { return number }
            uris.append(uri)
            numbers[uri] = uris.count - 1
            return uris.count - 1
        }
    }

    private let text: [UInt8]
    private var playlist: Playlist
    private var keys = Keys()
    /// `EXT-X-MEDIA-SEQUENCE`.
    private var firstNumber: UInt64 = 0
    private var segments: UInt64 = 0
    private var isMaster = false
    private var isMedia = false
    private var isFramesOnly = false
    private var isSegmentNext = false
    private var bytesNext: (value: PlaylistByteRange, range: Range<Int>)?
    /// The previous segment if it was a byte range. The next range can begin at its end.
    private var previous: (uri: ArraySlice<UInt8>, end: UInt64)?

    init(_ text: [UInt8]) {
        self.text = text
        playlist = Playlist(text: text)
    }

    mutating func parse() throws(PlaylistError) -> Playlist {
        let start = text.starts(with: Self.byteOrderMark) ? Self.byteOrderMark.count : 0
        var lines = PlaylistLines(text[start...])
        guard lines.next()?.content.elementsEqual("#EXTM3U".utf8) == true else {
            throw PlaylistError(line: 1, text: "not a playlist: its first line is not #EXTM3U")
        }
        while let line = lines.next() {
            guard let byte = line.content.first else { continue }
            if byte == UInt8(ascii: "#") { tag(line) } else { uri(line) }
            if playlist.references.count > Playlist.maximumReferences { return cut(line.number) }
        }
        finish()
        return playlist
    }

    /// Keeps the first fault.
    private mutating func fail(_ line: Int, _ text: String) {
        if playlist.fault == nil { playlist.fault = PlaylistError(line: line, text: text) }
    }

    /// The result for too many references. Always a fault, because the unread rest can have keys.
    private func cut(_ line: Int) -> Playlist {
        var result = Playlist(text: [])
        result.fault = PlaylistError(line: line, text: "more than \(Playlist.maximumReferences) segments")
        return result
    }

    private mutating func finish() {
        playlist.kind = isMaster ? .master : .media
        if isMaster && isMedia { fail(0, "both a master and a media playlist") }
        playlist.keys = keys.uris
        // The line of a byte range can stand before a key line.
        playlist.edits.sort { $0.range.lowerBound < $1.range.lowerBound }
        if !keys.isUsed {
            playlist.complaint = playlist.fault
            playlist.fault = nil
        }
    }

    // MARK: Tags

    private mutating func tag(_ line: PlaylistLines.Line) {
        let content = line.content
        // Skip comments early: there can be a million of them.
        guard content.starts(with: "#EXT".utf8) else { return }
        let name = content.prefix { $0 != UInt8(ascii: ":") }
        let value = content[name.endIndex...].dropFirst()
        switch String(decoding: name.prefix(32), as: UTF8.self) {
        case "#EXTINF":
            isMedia = true
            isSegmentNext = true
        case "#EXT-X-KEY" where name.endIndex < content.endIndex:
            isMedia = true
            playlist.edits.append(Playlist.Edit(range: line.whole, change: .removed))
            key(line.number, value)
        case "#EXT-X-SESSION-KEY":
            // Only announces the keys of the media playlists.
            playlist.edits.append(Playlist.Edit(range: line.whole, change: .removed))
        case "#EXT-X-MEDIA-SEQUENCE":
            guard let number = PlaylistByteRange.decimal(value) else {
                return fail(line.number, "EXT-X-MEDIA-SEQUENCE is no number")
            }
            firstNumber = number
        case "#EXT-X-BYTERANGE":
            guard let bytes = PlaylistByteRange(value) else {
                return fail(line.number, "EXT-X-BYTERANGE is no byte range")
            }
            bytesNext = (bytes, value.indices)
        case "#EXT-X-MAP": map(line.number, value)
        case "#EXT-X-I-FRAMES-ONLY": isFramesOnly = true
        case "#EXT-X-SKIP": fail(line.number, "EXT-X-SKIP: an update of a playlist, not a whole one")
        case "#EXT-X-STREAM-INF", "#EXT-X-MEDIA", "#EXT-X-I-FRAME-STREAM-INF": isMaster = true
        default: break
        }
    }

    private mutating func key(_ line: Int, _ value: ArraySlice<UInt8>) {
        guard let attributes = PlaylistAttributes(value), let method = attributes["METHOD"] else {
            keys.isUsed = true
            return fail(line, "EXT-X-KEY has no METHOD, or its attributes do not parse")
        }
        if method.elementsEqual("NONE".utf8) {
            // Ends all keys: it has no KEYFORMAT.
            keys.identity = nil
            keys.foreign = []
            return
        }
        keys.isUsed = true
        guard method.elementsEqual("AES-128".utf8) else {
            return fail(line, "METHOD=\(shown(method, limit: 32)) is not supported, only NONE and AES-128 are")
        }
        if let format = attributes["KEYFORMAT"], !format.elementsEqual("identity".utf8) {
            keys.foreign.insert(Array(format))
            return
        }
        guard let uri = attributes["URI"], !uri.isEmpty else { return fail(line, "EXT-X-KEY has no URI") }
        var vector: InitialVector?
        if let value = attributes["IV"] {
            // A number, so fewer than 32 digits are its lower ones (RFC 8216, 4.2).
            vector = Hexadecimal.withoutPrefix(value).flatMap { InitialVector(digits: $0) }
            guard vector != nil else {
                return fail(line, "the IV of EXT-X-KEY is not 0x and at most 32 hexadecimal digits")
            }
        }
        keys.identity = (keys.number(of: Array(uri)), vector)
    }

    private mutating func map(_ line: Int, _ value: ArraySlice<UInt8>) {
        guard let attributes = PlaylistAttributes(value), let uri = attributes["URI"] else {
            return fail(line, "EXT-X-MAP has no URI")
        }
        var reference = Playlist.Reference(role: .map, line: line, uri: uri.indices)
        if let range = attributes["BYTERANGE"] {
            // Without an offset it begins at 0 (RFC 8216, 4.3.2.5).
            guard let value = PlaylistByteRange(range), let bytes = value.range(from: 0) else {
                return fail(line, "the BYTERANGE of EXT-X-MAP is no byte range")
            }
            reference.bytes = bytes
            addBytes(range.indices, showsOffset: value.offset != nil)
        }
        // AES-128 requires an IV here (RFC 8216, 4.3.2.5). Without one, ffmpeg takes the number of the next segment, and
        // hls.js 0. These are mostly the same.
        reference.encryption = encryption(line)
        playlist.references.append(reference)
    }

    /// The encryption of a reference at `line`.
    private mutating func encryption(_ line: Int) -> Playlist.Encryption? {
        if let (key, vector) = keys.identity {
            let (low, overflow) = firstNumber.addingReportingOverflow(segments)
            let sequenceNumber = InitialVector(high: overflow ? 1 : 0, low: low)
            return Playlist.Encryption(key: key, vector: vector ?? sequenceNumber)
        }
        if let format = keys.foreign.first {
            fail(line, "the only key for it has KEYFORMAT \(shown(format, limit: 64)), which is not supported")
        }
        return nil
    }

    // MARK: URIs

    private mutating func uri(_ line: PlaylistLines.Line) {
        guard isSegmentNext else { return }
        isSegmentNext = false
        var reference = Playlist.Reference(role: .segment, line: line.number, uri: line.content.indices)
        reference.encryption = encryption(line.number)
        // A reference with a wrong range is kept, so that its file fails with the playlist.
        if let (value, range) = bytesNext, let bytes = bytes(value, line) {
            reference.bytes = bytes
            if isFramesOnly { reference.role = .frame }
            addBytes(range, showsOffset: value.offset != nil)
        }
        bytesNext = nil
        segments += 1
        previous = reference.bytes.map { (line.content, $0.upperBound) }
        playlist.references.append(reference)
    }

    private mutating func bytes(_ range: PlaylistByteRange, _ line: PlaylistLines.Line) -> Range<UInt64>? {
        let implied = previous.flatMap { $0.uri == line.content ? $0.end : nil }
        let bytes = range.range(from: implied ?? 0)
        if range.offset == nil && implied == nil {
            fail(line.number, "the byte range has no offset, and does not follow one of the same resource")
            return nil
        }
        if bytes == nil { fail(line.number, "the byte range is larger than any file") }
        return bytes
    }

    /// Call this before the reference is added.
    private mutating func addBytes(_ range: Range<Int>, showsOffset: Bool) {
        let change = Playlist.Edit.Change.bytes(reference: playlist.references.count, showsOffset: showsOffset)
        playlist.edits.append(Playlist.Edit(range: range, change: change))
    }
}
