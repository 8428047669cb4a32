/// Reads a playlist line by line. What counts is what players do (ffmpeg's libavformat/hls.c among them), where they agree
/// with RFC 8216 or it says nothing: a URI is a segment after an `EXTINF`, a variant after an `EXT-X-STREAM-INF`.
struct PlaylistParser {
    private static let byteOrderMark: [UInt8] = [0xEF, 0xBB, 0xBF]

    let text: [UInt8]
    private(set) var playlist: Playlist
    var keys = PlaylistKeys()
    private var isMaster = false
    private var isMedia = false
    private var isFramesOnly = false
    private var isSegmentNext = false
    private var isVariantNext = false
    private var bytesNext: (value: PlaylistValues.Bytes, range: Range<Int>)?
    /// The segment before where it was a byte range: the next one may begin where it ended.
    private var previous: (uri: Range<Int>, end: UInt64)?

    init(_ text: [UInt8]) {
        self.text = text
        playlist = Playlist(text: text)
    }

    mutating func parse() throws(PlaylistError) -> Playlist {
        let start = text.starts(with: Self.byteOrderMark) ? Self.byteOrderMark.count : 0
        var lines = PlaylistLines(text, from: start)
        guard let first = lines.next(), text[first.content].elementsEqual("#EXTM3U".utf8) else {
            throw PlaylistError(line: 1, text: "not a playlist: its first line is not #EXTM3U")
        }
        while let line = lines.next() {
            guard let byte = text[line.content].first else { continue }
            if byte == UInt8(ascii: "#") { tag(line) } else { uri(line) }
            if playlist.references.count > Playlist.maximumReferences { return cut(line.number) }
        }
        finish()
        return playlist
    }

    /// Keeps the first.
    mutating func fail(_ line: Int, _ text: String) {
        if playlist.fault == nil { playlist.fault = PlaylistError(line: line, text: text) }
    }

    /// Returns the playlist without references, as a fault. The unread rest may have keys, so this is a fault in any
    /// case.
    private func cut(_ line: Int) -> Playlist {
        var result = Playlist(text: [])
        result.fault = PlaylistError(line: line, text: "more than \(Playlist.maximumReferences) segments")
        return result
    }

    private mutating func finish() {
        playlist.kind = isMaster ? .master : .media
        if isMaster && isMedia { fail(0, "both a master and a media playlist") }
        playlist.keys = keys.uris
        // A byte range's line may stand before a key's.
        playlist.edits.sort { $0.range.lowerBound < $1.range.lowerBound }
        if !keys.isUsed {
            playlist.complaint = playlist.fault
            playlist.fault = nil
        }
    }

    // MARK: tags

    private mutating func tag(_ line: PlaylistLines.Line) {
        let content = text[line.content]
        // Every tag that matters begins with #EXT, and there may be a million comments.
        guard content.starts(with: "#EXT".utf8) else { return }
        let name = content.prefix { $0 != UInt8(ascii: ":") }
        let value = min(name.endIndex + 1, content.endIndex)..<content.endIndex
        switch String(decoding: name.prefix(32), as: UTF8.self) {
        case "#EXTINF":
            isMedia = true
            isSegmentNext = true
        case "#EXT-X-KEY" where name.endIndex < content.endIndex:
            isMedia = true
            playlist.edits.append(Playlist.Edit(range: line.whole, change: .removed))
            key(line.number, value)
        case "#EXT-X-SESSION-KEY":
            // Only says ahead what the media playlists' keys will be.
            playlist.edits.append(Playlist.Edit(range: line.whole, change: .removed))
        case "#EXT-X-MEDIA-SEQUENCE": mediaSequence(line.number, value)
        case "#EXT-X-BYTERANGE": byteRange(line.number, value)
        case "#EXT-X-MAP": map(line.number, value)
        case "#EXT-X-I-FRAMES-ONLY": isFramesOnly = true
        case "#EXT-X-SKIP": fail(line.number, "EXT-X-SKIP: an update of a playlist, not a whole one")
        case "#EXT-X-STREAM-INF":
            isMaster = true
            isVariantNext = true
        case "#EXT-X-MEDIA", "#EXT-X-I-FRAME-STREAM-INF": masterReference(line.number, value)
        default: break
        }
    }

    private mutating func mediaSequence(_ line: Int, _ value: Range<Int>) {
        guard let number = PlaylistValues.decimal(text[value]) else {
            return fail(line, "EXT-X-MEDIA-SEQUENCE is no number")
        }
        keys.firstNumber = number
    }

    private mutating func byteRange(_ line: Int, _ value: Range<Int>) {
        guard let bytes = PlaylistValues.bytes(text[value]) else {
            return fail(line, "EXT-X-BYTERANGE is no byte range")
        }
        bytesNext = (bytes, value)
    }

    private mutating func masterReference(_ line: Int, _ value: Range<Int>) {
        isMaster = true
        guard let uri = PlaylistAttributes(text, in: value)?["URI"] else { return }
        playlist.references.append(Playlist.Reference(role: .playlist, line: line, uri: uri))
    }

    private mutating func map(_ line: Int, _ value: Range<Int>) {
        guard let attributes = PlaylistAttributes(text, in: value), let uri = attributes["URI"] else {
            return fail(line, "EXT-X-MAP has no URI")
        }
        var reference = Playlist.Reference(role: .map, line: line, uri: uri)
        if let range = attributes["BYTERANGE"] {
            // Without an offset it is the resource's beginning (RFC 8216, 4.3.2.5).
            guard let value = PlaylistValues.bytes(text[range]), let bytes = value.range(from: 0) else {
                return fail(line, "the BYTERANGE of EXT-X-MAP is no byte range")
            }
            reference.bytes = bytes
            addBytes(range, showsOffset: value.offset != nil)
        }
        // With AES-128 there has to be an IV (RFC 8216, 4.3.2.5). Where it lacks, ffmpeg takes the number of the segment
        // that follows, hls.js 0; those are mostly the same.
        reference.encryption = encryption(line)
        playlist.references.append(reference)
    }

    // MARK: URIs

    private mutating func uri(_ line: PlaylistLines.Line) {
        if isVariantNext {
            isVariantNext = false
            playlist.references.append(Playlist.Reference(role: .playlist, line: line.number, uri: line.content))
        }
        guard isSegmentNext else { return }
        isSegmentNext = false
        var reference = Playlist.Reference(role: .segment, line: line.number, uri: line.content)
        defer {
            bytesNext = nil
            keys.countSegment()
        }
        reference.encryption = encryption(line.number)
        // What has a wrong range is still referred to: it fails with the playlist.
        let bytes = bytesNext.flatMap { range(of: $0.value, line) }
        if let bytes, let (value, range) = bytesNext {
            reference.bytes = bytes
            if isFramesOnly { reference.role = .frame }
            addBytes(range, showsOffset: value.offset != nil)
        }
        previous = bytes.map { (line.content, $0.upperBound) }
        playlist.references.append(reference)
    }

    private mutating func range(of bytes: PlaylistValues.Bytes, _ line: PlaylistLines.Line) -> Range<UInt64>? {
        let implied = previous.flatMap { text[$0.uri].elementsEqual(text[line.content]) ? $0.end : nil }
        guard bytes.offset != nil || implied != nil else {
            fail(line.number, "the byte range has no offset, and does not follow one of the same resource")
            return nil
        }
        guard let range = bytes.range(from: implied ?? 0) else {
            fail(line.number, "the byte range is larger than any file")
            return nil
        }
        return range
    }

    /// To be called before the reference is added.
    private mutating func addBytes(_ range: Range<Int>, showsOffset: Bool) {
        let change = Playlist.Edit.Change.bytes(reference: playlist.references.count, showsOffset: showsOffset)
        playlist.edits.append(Playlist.Edit(range: range, change: change))
    }
}

extension Playlist.Reference {
    fileprivate init(role: Playlist.Role, line: Int, uri: Range<Int>) {
        self.init(role: role, line: line, uri: uri, bytes: nil, encryption: nil)
    }
}
