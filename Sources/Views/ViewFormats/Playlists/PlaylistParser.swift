internal import LinuxSystem

/// Parses a playlist line by line. Follows players (ffmpeg's libavformat/hls.c and others) if RFC 8216 agrees or is
/// silent, so only a URI after an `EXTINF` is a segment.
///
/// Every URI of the playlist becomes a reference, with the keys in force at its line. A defect of a key counts only for
/// the references that need it.
struct PlaylistParser {
    /// Maximum number of keys of different formats in force at once.
    private static let maximumFormats = 16
    /// Maximum number of bytes of a key's URI, which is the key's name for each of its segments.
    private static let maximumKeyURI = 8192
    private static let identity = Array("identity".utf8)
    /// The formats with URIs that name keys, the best first. The URIs of other systems contain data for their players.
    private static let namingFormats = [identity, Array("com.apple.streamingkeydelivery".utf8)]
    /// Tags without media that keys could encrypt.
    private static let dataTags: Set<String> = [
        "#EXT-X-RENDITION-REPORT", "#EXT-X-SESSION-DATA", "#EXT-X-CONTENT-STEERING", "#EXT-X-DATERANGE",
        "#EXT-X-VERSION", "#EXT-X-TARGETDURATION", "#EXT-X-PROGRAM-DATE-TIME", "#EXT-X-PLAYLIST-TYPE",
        "#EXT-X-DISCONTINUITY", "#EXT-X-DISCONTINUITY-SEQUENCE", "#EXT-X-ENDLIST", "#EXT-X-BITRATE",
        "#EXT-X-INDEPENDENT-SEGMENTS", "#EXT-X-START", "#EXT-X-SERVER-CONTROL", "#EXT-X-PART-INF",
        "#EXT-X-ALLOW-CACHE", "#EXTVLCOPT", "#EXTIMG", "#EXTALBUMARTURL", "#EXTGRP", "#EXTALB", "#EXTART", "#EXTGENRE",
    ]

    /// The keys in force (RFC 8216, 4.3.2.4 and 5.2).
    private struct Keys {
        enum Use {
            /// A nil vector stands for the segment's number.
            case chain(key: Int, InitialVector?, ViewCipher)
            case samples(key: Int)
            case unusable(PlaylistError)
        }

        /// Each URI once.
        var uris: [[UInt8]] = []
        private var numbers: [[UInt8]: Int] = [:]
        /// True after a key line without `METHOD=NONE`.
        var isUsed = false
        /// One for each KEYFORMAT, in the order of the text.
        private(set) var inForce: [(format: [UInt8], use: Use)] = []
        /// The use of the best key: a usable one, named by its URI.
        private(set) var use: Use?

        mutating func number(of uri: [UInt8]) -> Int {
            if let number = numbers[uri] { return number }
            uris.append(uri)
            numbers[uri] = uris.count - 1
            return uris.count - 1
        }

        mutating func end() { (inForce, use) = ([], nil) }

        mutating func begin(_ use: Use, format: [UInt8]) {
            isUsed = true
            inForce.removeAll { $0.format == format }
            inForce.append((format, use))
            self.use = best
        }

        private var best: Use? {
            let usable = inForce.filter { if case .unusable = $0.use { false } else { true } }
            let candidates = usable.isEmpty ? inForce : usable
            let naming = PlaylistParser.namingFormats.lazy.compactMap { format in
                candidates.first { $0.format == format }
            }.first
            return (naming ?? candidates.first)?.use
        }
    }

    private let text: [UInt8]
    private let room: Int
    private var playlist: Playlist
    private var keys = Keys()
    private var variables = PlaylistVariables()
    /// The value of `EXT-X-MEDIA-SEQUENCE`. Nil if it is not a number.
    private var firstNumber: UInt64? = 0
    private var segments: UInt64 = 0
    private var isMaster = false
    private var isMedia = false
    private var isFramesOnly = false
    private var isUpdate = false
    private var isSegmentNext = false
    /// True before a segment missing on the server.
    private var isGapNext = false
    /// The position of the `EXT-X-MAP` in force.
    private var map: Int?
    private var isPlaylistNext = false
    /// True if players divide the text into other lines than this parser.
    private var isAmbiguous = false
    private var bytesNext: (value: PlaylistByteRange, range: Range<Int>)?
    /// The previous segment if it was a byte range, because the next range can begin at its end.
    private var previous: (uri: ArraySlice<UInt8>, end: UInt64)?
    /// The same for `EXT-X-PART` and other tags.
    private var previousOther: (uri: ArraySlice<UInt8>, end: UInt64)?

    /// - Parameter room: number of references that may say something of a file. More are not parsed.
    init(_ text: [UInt8], room: Int) {
        (self.text, self.room) = (text, room)
        playlist = Playlist(text: text)
    }

    mutating func parse() throws(PlaylistError) -> Playlist {
        var lines = PlaylistLines(PlaylistBeginning.withoutMark(text))
        guard let first = lines.next(), Self.isFirst(first.content) else {
            throw PlaylistError(line: 1, text: "not a playlist: its first line is not #EXTM3U")
        }
        if text.contains(0) {
            isAmbiguous = true
            fail(0, "it has a NUL, which ends a line for some players")
        }
        while let line = lines.next() {
            guard let byte = line.content.first else { continue }
            if byte == UInt8(ascii: "#") { tag(line) } else { uri(line) }
            if playlist.references.count > Playlist.maximumReferences || playlist.claimCount > room {
                return cut(line.number, "more than \(Playlist.maximumReferences) segments")
            }
            if keys.inForce.count > Self.maximumFormats {
                return cut(line.number, "more than \(Self.maximumFormats) keys at once")
            }
        }
        finish()
        return playlist
    }

    /// Accepts attributes after `#EXTM3U`, as players do (hls.js and VLC).
    private static func isFirst(_ line: ArraySlice<UInt8>) -> Bool {
        line.starts(with: "#EXTM3U".utf8) && (line.dropFirst(7).first.map { " \t".utf8.contains($0) } ?? true)
    }

    /// Keeps the first fault.
    private mutating func fail(_ line: Int, _ text: String) {
        if playlist.fault == nil { playlist.fault = PlaylistError(line: line, text: text) }
    }

    /// Returns the result for too many references or keys. Always a fault, because the unread rest can have keys.
    private func cut(_ line: Int, _ text: String) -> Playlist {
        var result = Playlist(text: [])
        // A result without references makes no claims, but shows that there is no room.
        if playlist.claimCount > room { result.claimCount = playlist.claimCount }
        result.fault = PlaylistError(line: line, text: text)
        return result
    }

    private mutating func finish() {
        playlist.kind = isMaster ? .master : .media
        if isMaster && isMedia { fail(0, "both a master and a media playlist") }
        playlist.keys = keys.uris
        playlist.usesKeys = keys.isUsed
        if isFramesOnly { turnMapsIntoFrames() }
        // Keep the fault of an update, because the part left out by it can have keys.
        if !keys.isUsed, !isUpdate, !isAmbiguous {
            playlist.complaint = playlist.fault
            playlist.fault = nil
        }
    }

    /// Turns maps of an I-frame playlist into frames: both are byte ranges of a segment's plaintext.
    private mutating func turnMapsIntoFrames() {
        for number in playlist.references.indices where playlist.references[number].role == .map {
            guard case .chain = playlist.references[number].encryption, playlist.references[number].bytes != nil else {
                continue
            }
            playlist.references[number].role = .frame
        }
    }

    // MARK: Tags

    private mutating func tag(_ line: PlaylistLines.Line) {
        let content = line.content
        // Skip comments early, because there can be a million of them.
        guard content.starts(with: "#EXT".utf8) else { return }
        // Nearly every second line, so it is not made a string first.
        if content.starts(with: "#EXTINF:".utf8) {
            (isMedia, isSegmentNext) = (true, true)
            return
        }
        let end = content.prefix { $0 != UInt8(ascii: ":") }.endIndex
        let value = content[end...].dropFirst()
        let name = String(decoding: content[..<end].prefix(32), as: UTF8.self)
        switch name {
        case "#EXTINF":
            isMedia = true
            isSegmentNext = true
        case "#EXT-X-KEY" where end < content.endIndex:
            isMedia = true
            key(line, value)
        case "#EXT-X-SESSION-KEY":
            // The line only announces the keys of the media playlists.
            playlist.sessionKeyLines.append(line.whole)
        case "#EXT-X-MEDIA-SEQUENCE": firstNumber = PlaylistByteRange.decimal(withoutBlanks(value))
        case "#EXT-X-BYTERANGE":
            let value = withoutBlanks(value)
            guard let bytes = PlaylistByteRange(value) else {
                return fail(line.number, "EXT-X-BYTERANGE is no byte range")
            }
            bytesNext = (bytes, value.indices)
        case "#EXT-X-MAP": map(line, value)
        case "#EXT-X-I-FRAMES-ONLY": isFramesOnly = true
        case "#EXT-X-SKIP":
            isUpdate = true
            fail(line.number, "EXT-X-SKIP: an update of a playlist, not a whole one")
        case "#EXT-X-GAP": isGapNext = true
        case "#EXT-X-DEFINE":
            if let attributes = PlaylistAttributes(value), !variables.define(attributes) {
                fail(line.number, "EXT-X-DEFINE gives a variable another value than before")
            }
        case "#EXT-X-STREAM-INF": (isMaster, isPlaylistNext) = (true, true)
        case "#EXT-X-MEDIA", "#EXT-X-I-FRAME-STREAM-INF":
            isMaster = true
            guard let uri = PlaylistAttributes(value)?["URI"] else { return }
            add(reference(.playlist, line, uri))
        default: if !Self.dataTags.contains(name) { other(line, value) }
        }
    }

    private mutating func key(_ line: PlaylistLines.Line, _ value: ArraySlice<UInt8>) {
        let attributes = PlaylistAttributes(value)
        let isNone = attributes?["METHOD"]?.elementsEqual("NONE".utf8) == true
        let format = attributes?["KEYFORMAT"].map { Array($0) } ?? Self.identity
        playlist.keyLines.append(Playlist.KeyLine(whole: line.whole, format: isNone ? nil : format))
        // NONE ends all keys, because it has no KEYFORMAT.
        if isNone { return keys.end() }
        do throws(PlaylistError) {
            keys.begin(try use(line.number, attributes, format), format: format)
        } catch {
            keys.begin(.unusable(error), format: format)
        }
    }

    /// Returns the use of a key. Also decides about methods with segments of another form than one chain.
    private mutating func use(
        _ line: Int, _ attributes: PlaylistAttributes?, _ format: [UInt8]
    ) throws(PlaylistError) -> Keys.Use {
        func unusable(_ text: String) -> PlaylistError { PlaylistError(line: line, text: text) }
        guard let attributes, let method = attributes["METHOD"] else {
            throw unusable("EXT-X-KEY has no METHOD, or its attributes do not parse")
        }
        let cipher: ViewCipher?
        switch String(decoding: method.prefix(32), as: UTF8.self) {
        case "AES-128": cipher = .aes128CBC
        // Decrypt it as hls.js does: the same with a longer key.
        case "AES-256": cipher = .aes256CBC
        case "SAMPLE-AES": cipher = nil
        case "SAMPLE-AES-CTR":
            throw unusable("METHOD=SAMPLE-AES-CTR is AES-CTR, which is not CBC, and is not supported")
        default:
            let known = "only NONE, AES-128, AES-256 and SAMPLE-AES are"
            throw unusable("METHOD=\(shown(method, limit: 32)) is not supported, \(known)")
        }
        // Accept any format for samples, because their boxes name the keys, whatever system delivers these to a player.
        guard cipher == nil || format == Self.identity else {
            throw unusable("the only key has KEYFORMAT \(shown(format, limit: 64)), which is not supported")
        }
        guard let text = attributes["URI"], !text.isEmpty else { throw unusable("EXT-X-KEY has no URI") }
        let uri = variables.expanded(text) ?? Array(text)
        guard uri.count <= Self.maximumKeyURI else {
            throw unusable("the URI of EXT-X-KEY has more than \(Self.maximumKeyURI) bytes")
        }
        guard let cipher else {
            playlist.usesSamples = true
            return .samples(key: keys.number(of: uri))
        }
        var vector: InitialVector?
        if let text = attributes["IV"] {
            let value = variables.expanded(text)?[...] ?? text
            // The IV is a number, so fewer than 32 digits are its lower ones (RFC 8216, 4.2).
            vector = Hexadecimal.withoutPrefix(value).flatMap { InitialVector(digits: $0) }
            guard vector != nil else {
                throw unusable("the IV of EXT-X-KEY is not 0x and at most 32 hexadecimal digits")
            }
        }
        let key = keys.number(of: uri)
        playlist.keyCiphers[key] = cipher
        return .chain(key: key, vector, cipher)
    }

    private mutating func map(_ line: PlaylistLines.Line, _ value: ArraySlice<UInt8>) {
        guard let attributes = PlaylistAttributes(value), let uri = attributes["URI"] else {
            return fail(line.number, "EXT-X-MAP has no URI")
        }
        // AES-128 requires an IV here (RFC 8216, 4.3.2.5). Without one, ffmpeg takes the number of the next segment,
        // and hls.js 0. These are mostly the same.
        var reference = self.reference(.map, line, uri)
        if let range = attributes["BYTERANGE"] {
            // A range without an offset begins at 0 (RFC 8216, 4.3.2.5).
            guard let value = PlaylistByteRange(range), let bytes = value.range(from: 0) else {
                return fail(line.number, "the BYTERANGE of EXT-X-MAP is no byte range")
            }
            reference.bytes = bytes
            reference.bytesText = (range.indices, value.offset != nil)
        }
        map = playlist.references.count
        add(reference)
    }

    /// Adds references for any other tag: every attribute with a URI, and every other possible URI. The tag's meaning
    /// is unknown, so its files are shown decrypted only if a segment is the same file.
    private mutating func other(_ line: PlaylistLines.Line, _ value: ArraySlice<UInt8>) {
        // Skip tags before the first key, because plaintext cannot come under a key there.
        guard keys.isUsed, !value.isEmpty else { return }
        let attributes = PlaylistAttributes(value)
        let uris = attributes?.values(withSuffix: "URI") ?? []
        for uri in uris {
            var reference = self.reference(.other, line, uri)
            if uris.count == 1, let range = attributes?["BYTERANGE"], let value = PlaylistByteRange(range) {
                let implied = previousOther.flatMap { $0.uri == uri ? $0.end : nil }
                reference.bytes = value.range(from: implied ?? 0)
                reference.bytesText = (range.indices, value.offset != nil)
                previousOther = reference.bytes.map { (uri, $0.upperBound) }
            }
            add(reference)
        }
        if !uris.isEmpty || keys.inForce.isEmpty { return }
        // Keep the whole list if it does not parse, because a player may find a URI in it.
        let mayNameURI = attributes == nil && PlaylistAttributes.mayName("URI", in: value)
        guard !mayNameURI, let tokens = PlaylistAttributes.tokens(of: value) else {
            return add(reference(.other, line, value))
        }
        for token in tokens {
            var reference = self.reference(.other, line, token)
            reference.isGuess = !HlsURI.hasAuthority(token)
            add(reference)
        }
    }

    /// Adds a reference, up to the maximum, because one line can have millions of URIs.
    private mutating func add(_ reference: Playlist.Reference) {
        guard playlist.references.count <= Playlist.maximumReferences else { return }
        playlist.references.append(reference)
        if reference.mayClaim { playlist.claimCount += 1 }
    }

    private mutating func reference(
        _ role: Playlist.Role, _ line: PlaylistLines.Line, _ uri: ArraySlice<UInt8>
    ) -> Playlist.Reference {
        var result = Playlist.Reference(
            role: role, line: line.number, start: line.whole.lowerBound, uri: uri.indices,
            keyLines: playlist.keyLines.count)
        result.expanded = variables.expanded(uri)
        if role != .playlist { result.encryption = encryption(line.number) }
        if case .chain(_, nil, _) = keys.use { result.isVectorImplied = true }
        return result
    }

    /// Returns the encryption of a reference at `line`.
    private func encryption(_ line: Int) -> Playlist.Encryption? {
        switch keys.use {
        case nil: return nil
        case .unusable(let reason): return .unusable(reason)
        case .samples(let key): return .samples(key: key)
        case .chain(let key, let vector?, let cipher): return .chain(key: key, vector: vector, cipher: cipher)
        case .chain(let key, nil, let cipher):
            guard let firstNumber else {
                let reason = "the key has no IV, and EXT-X-MEDIA-SEQUENCE is no number to use instead"
                return .unusable(PlaylistError(line: line, text: reason))
            }
            let (low, overflow) = firstNumber.addingReportingOverflow(segments)
            return .chain(key: key, vector: InitialVector(high: overflow ? 1 : 0, low: low), cipher: cipher)
        }
    }

    // MARK: URIs

    private mutating func uri(_ line: PlaylistLines.Line) {
        if isPlaylistNext {
            isPlaylistNext = false
            return add(reference(.playlist, line, line.content))
        }
        guard isSegmentNext else {
            if keys.isUsed { add(reference(.other, line, line.content)) }
            return
        }
        isSegmentNext = false
        var reference = self.reference(.segment, line, line.content)
        // Keep a reference with a wrong range, so that its file fails with the playlist.
        if let (value, range) = bytesNext, let bytes = bytes(value, line) {
            reference.bytes = bytes
            if isFramesOnly { reference.role = .frame }
            reference.bytesText = (range, value.offset != nil)
        }
        bytesNext = nil
        (reference.isGuess, isGapNext) = (isGapNext, false)
        reference.map = map
        segments += 1
        previous = reference.bytes.map { (line.content, $0.upperBound) }
        add(reference)
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
}
