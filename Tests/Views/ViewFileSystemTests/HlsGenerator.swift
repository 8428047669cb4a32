import Foundation
import TestSupport

/// A random source directory: playlists, their segments and keys, and the true content of each URI.
struct HlsTree {
    /// The right content of a URI.
    enum Original: Equatable {
        /// The stored bytes.
        case clear
        /// An init segment: the stored bytes, but types of boxes may change.
        case initial
        case bytes([UInt8])
        /// MP4 with clear samples, but types of boxes may change.
        case sampled([UInt8])
        /// The content that the player reads from the source.
        case asPlayed
        /// A content that the source cannot give.
        case impossible
    }

    enum Method { case none, chain, longChain, samples }

    enum Container: CaseIterable { case transport, audio, subtitles, fragments }

    /// The relations between URIs and the names of their files.
    enum Style: CaseIterable {
        case plain, folder, parent, variable
        /// With a query, which the file's name lacks.
        case query
        /// With a query, which the file's name has too.
        case keptQuery
        case absolute, absoluteQuery, absoluteKeptQuery
        /// With `%20`, decoded in the file's name.
        case encoded
        /// With `%20`, which the file's name has too.
        case keptEncoded
    }

    /// An `EXT-X-KEY`, with its lines for other KEYFORMATs.
    struct KeyLine {
        var method: String
        var key: [UInt8]
        var uri: String
        var file: String?
        var vector: String?
        /// More attributes, each with a comma before it.
        var attributes = ""
        /// Whole lines for other KEYFORMATs.
        var before: [String] = []
        var after: [String] = []
        /// A replacement for the whole line.
        var replacement: String?

        var lines: [String] {
            let vector = vector.map { ",IV=\($0)" } ?? ""
            return before + [replacement ?? "#EXT-X-KEY:METHOD=\(method),URI=\"\(uri)\"\(vector)\(attributes)"] + after
        }
    }

    /// The file or range of a URI.
    struct Resource {
        var uri: String
        /// Nil if the download lacks it.
        var file: String?
        var range: Range<Int>?
        var original: Original
        /// The position in `keyLines`. Nil without a key.
        var keyLine: Int?
    }

    struct Segment {
        var resource: Resource
        /// The position in `maps`.
        var map: Int?
        /// The I-frame in the plaintext, from the beginning of the segment.
        var frame: Range<Int>
        /// Lines before its `EXTINF`.
        var before: [(text: String, original: Original?)] = []
    }

    struct Stream {
        var directory: String
        var name: String
        var method: Method
        var keyLines: [KeyLine] = []
        var maps: [Resource] = []
        var segments: [Segment] = []
        var makers: [Mp4Maker] = []
        var sequence: UInt64 = 0
        var isFrames = false
        /// True if `EXT-X-MAP` comes before the key line.
        var mapsFirst = false
        var impliesOffsets = false
        var lineEnd = "\n"
        var header: [String] = []
        /// Encodes the text, for playlists that do not look like one.
        var encoding: @Sendable ([UInt8]) -> [UInt8] = { $0 }
        /// True if the view must decrypt the playlist.
        var isCorrect = true

        var path: String { directory + name }
    }

    struct Options {
        var method: Method?
        var container: Container?
        var isSingleFile: Bool?
        var style: Style?
        var keyStyle: Style?
        var mapStyle: Style?
        var count: ClosedRange<Int> = 1...4
        var rotates: Bool?
        var hasClear: Bool?
        var impliesVector: Bool?
        var atRoot = false
    }

    var random: SeededGenerator
    var files: [String: [UInt8]] = [:]
    /// Keys given by the user, by URI or identifier.
    var given: [String: [UInt8]] = [:]
    var streams: [Stream] = []
    /// True if the view must report nothing.
    var isSilent = true
    /// Files that `mount`, `status` and `export` must name.
    var mustBeNamed: Set<String> = []
    /// For messages.
    var title: [String] = []

    init(seed: UInt64) { random = SeededGenerator(seed: seed) }

    // MARK: Chance

    mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    mutating func pick<Value>(_ values: [Value]) -> Value { values[Int.random(in: 0..<values.count, using: &random)] }

    // MARK: Names

    /// Returns the URI and the file's path of a resource of a playlist in `directory`.
    mutating func name(_ base: String, _ style: Style, in directory: String) -> (uri: String, file: String) {
        switch style {
        case .plain: (base, directory + base)
        case .folder: ("media/\(base)", directory + "media/\(base)")
        case .parent where directory.isEmpty: (base, base)
        case .parent: ("../\(base)", base)
        case .variable: ("{$base}\(base)", directory + "v-\(base)")
        case .query: ("\(base)?token=1", directory + base)
        case .keptQuery: ("\(base)?token=1", directory + "\(base)?token=1")
        case .absolute: ("https://cdn.example/a/\(base)", directory + base)
        case .absoluteQuery: ("https://cdn.example/a/\(base)?token=1", directory + base)
        case .absoluteKeptQuery: ("https://cdn.example/a/\(base)?token=1", directory + "\(base)?token=1")
        case .encoded: ("a%20\(base)", directory + "a \(base)")
        case .keptEncoded: ("a%20\(base)", directory + "a%20\(base)")
        }
    }

    private mutating func style() -> Style { chance(50) ? .plain : pick(Style.allCases) }

    // MARK: Streams

    /// Adds a playlist with files of its own, and returns its position.
    @discardableResult
    mutating func addStream(_ options: Options = Options()) throws -> Int {
        let number = streams.count
        let directory = options.atRoot || chance(60) ? "" : "d\(chance(50) ? 0 : number)/"
        let method = options.method ?? pick([.chain, .chain, .chain, .samples, .samples, .longChain, .none])
        // Subtitles stay clear under SAMPLE-AES.
        let samples = options.method == nil && chance(6) ? Container.subtitles : .fragments
        let container = options.container ?? (method == .samples ? samples : pick(Container.allCases))
        var stream = Stream(directory: directory, name: "p\(number).m3u8", method: method)
        stream.sequence = pick([0, 0, 1, 7, 300, UInt64(UInt32.max) + 5])
        stream.mapsFirst = chance(50)
        stream.impliesOffsets = chance(60)
        stream.lineEnd = pick(["\n", "\n", "\r\n", "\r"])
        let isSingleFile = options.isSingleFile ?? chance(30)
        let styles = (
            media: options.style ?? style(), key: options.keyStyle ?? style(), map: options.mapStyle ?? style()
        )
        // A playlist without keys stays as it is, but the view reports its URIs with a server.
        let remote: Set<Style> = [.absolute, .absoluteQuery, .absoluteKeptQuery]
        if method == .none, remote.contains(styles.media) || remote.contains(styles.map) { isSilent = false }
        if [styles.media, styles.key, styles.map].contains(.variable) {
            stream.header.append("#EXT-X-DEFINE:NAME=\"base\",VALUE=\"v-\"")
        }
        let count = Int.random(in: options.count, using: &random)
        let rotates = options.rotates ?? chance(30)
        let hasClear = options.hasClear ?? chance(25)
        // Choose the key line of each segment. Each period can have an init segment of its own.
        var periods: [Int?] = []
        for _ in 0..<count {
            if method == .none || (hasClear && chance(40)) {
                periods.append(nil)
            } else {
                if stream.keyLines.isEmpty || (rotates && (options.rotates == true || chance(60))) {
                    try addKeyLine(to: &stream, number, styles.key, options)
                }
                periods.append(stream.keyLines.count - 1)
            }
        }
        if method != .none, periods.allSatisfy({ $0 == nil }) {
            try addKeyLine(to: &stream, number, styles.key, options)
            periods[count - 1] = 0
        }
        var single = Single(isUsed: isSingleFile)
        if isSingleFile { (single.uri, single.file) = name("film\(number).bin", styles.media, in: directory) }
        if container == .fragments {
            try addFragments(to: &stream, number, periods, &single, (styles.media, styles.map))
        } else {
            try addSegments(to: &stream, number, periods, container, &single, styles.media)
        }
        if isSingleFile { files[single.file] = single.bytes }
        addHarmlessLines(to: &stream)
        streams.append(stream)
        return number
    }

    /// The single file of a playlist with byte ranges.
    struct Single {
        var isUsed: Bool
        var uri = ""
        var file = ""
        var bytes: [UInt8] = []
    }

    /// Writes a resource's bytes into a file of its own, or at the end of the single one.
    private mutating func add(
        _ bytes: [UInt8], _ base: String, _ style: Style, to single: inout Single, in directory: String,
        original: Original, keyLine: Int?
    ) -> Resource {
        guard single.isUsed else {
            let (uri, file) = name(base, style, in: directory)
            files[file] = bytes
            return Resource(uri: uri, file: file, range: nil, original: original, keyLine: keyLine)
        }
        let start = single.bytes.count
        single.bytes += bytes
        return Resource(
            uri: single.uri, file: single.file, range: start..<single.bytes.count, original: original, keyLine: keyLine)
    }

    mutating func addKeyLine(
        to stream: inout Stream, _ number: Int, _ style: Style, _ options: Options = Options()
    ) throws {
        let base = "k\(number)_\(stream.keyLines.count).key"
        let key = random.bytes(stream.method == .longChain ? 32 : 16)
        let isSamples = stream.method == .samples
        var line = KeyLine(method: isSamples ? "SAMPLE-AES" : "AES-\(8 * key.count)", key: key, uri: "")
        if !isSamples, !(options.impliesVector ?? chance(50)) {
            line.vector = pick(["0x", "0X"]) + hex(random.bytes(pick([16, 16, 3, 1])))
        }
        if options.keyStyle == nil, chance(8) {
            line.uri = "data:text/plain;base64," + Data(key).base64EncodedString()
        } else if options.keyStyle == nil, chance(8) {
            line.uri = "https://keys.example/\(number)?id=\(stream.keyLines.count)"
            given[line.uri] = key
        } else {
            let (uri, file) = name(base, style, in: stream.directory)
            (line.uri, line.file) = (uri, file)
            files[file] = chance(30) ? Array((hex(key) + pick(["", "\n"])).utf8) : key
        }
        let other =
            "#EXT-X-KEY:METHOD=\(line.method),URI=\"skd://film/\(number)\",KEYFORMAT=\"com.apple.streamingkeydelivery\""
        if chance(15) { line.attributes = ",KEYFORMAT=\"identity\"" }
        if isSamples ? chance(30) : chance(5) {
            if chance(50) { line.before = [other] } else { line.after = [other] }
        }
        stream.keyLines.append(line)
    }

    private mutating func addSegments(
        to stream: inout Stream, _ number: Int, _ periods: [Int?], _ container: Container, _ single: inout Single,
        _ style: Style
    ) throws {
        let ending = [Container.transport: "ts", .audio: "aac", .subtitles: "vtt"][container] ?? "bin"
        for (index, period) in periods.enumerated() {
            let content = media(container, index)
            let position = stream.sequence + UInt64(index)
            let isClear = period == nil || stream.method == .samples
            let stored = try isClear ? content : encrypt(content, stream.keyLines[period ?? 0], position)
            // The view recognizes subtitles by the beginning of their file.
            if single.isUsed, container != .subtitles, chance(15) {
                single.bytes += random.bytes(Int.random(in: 1...40, using: &random))
            }
            let resource = add(
                stored, "s\(number)_\(index).\(ending)", style, to: &single, in: stream.directory,
                original: isClear ? .clear : .bytes(content), keyLine: period)
            let start = Int.random(in: 0..<content.count, using: &random)
            stream.segments.append(
                Segment(
                    resource: resource, frame: start..<Int.random(in: (start + 1)...content.count, using: &random)))
        }
    }

    private mutating func media(_ container: Container, _ index: Int) -> [UInt8] {
        switch container {
        case .audio:
            // Return frames of AAC (ADTS).
            return (0..<Int.random(in: 3...6, using: &random)).flatMap { _ in
                let count = Int.random(in: 20...90, using: &random)
                return [0xFF, 0xF1, 0x50, 0x80, UInt8(count >> 3), UInt8(count & 7) << 5 | 0x1F, 0xFC]
                    + random.bytes(count - 7)
            }
        case .subtitles:
            return Array("WEBVTT\n\n00:0\(index).000 --> 00:0\(index + 1).000\nline \(hex(random.bytes(20)))\n".utf8)
        case .transport, .fragments:
            return (0..<Int.random(in: 1...5, using: &random)).flatMap { _ in [0x47] + random.bytes(187) }
        }
    }

    func encrypt(_ content: [UInt8], _ line: KeyLine, _ number: UInt64) throws -> [UInt8] {
        let padding = 16 - content.count % 16
        return try cbc(
            content + [UInt8](repeating: UInt8(padding), count: padding), key: line.key,
            vector: Self.vector(line, number), encrypts: true)
    }

    static func vector(_ line: KeyLine, _ number: UInt64) -> [UInt8] {
        guard let text = line.vector?.dropFirst(2) else { return Mp4Maker.big(0, 8) + Mp4Maker.big(Int(number), 8) }
        let digits = Array(String(repeating: "0", count: 32 - text.count) + text)
        return (0..<16).map { UInt8(String(digits[(2 * $0)...(2 * $0 + 1)]), radix: 16) ?? 0 }
    }

    /// Adds segments of MP4, with one init segment for all, or one for each key.
    private mutating func addFragments(
        to stream: inout Stream, _ number: Int, _ periods: [Int?], _ single: inout Single,
        _ styles: (media: Style, map: Style)
    ) throws {
        let isSamples = stream.method == .samples
        let first = Mp4Maker(&random)
        stream.makers = stream.keyLines.enumerated().map { index, line in
            var maker = first
            maker.key = line.key
            if index > 0 { maker.identifier = random.bytes(16) }
            return maker
        }
        if stream.makers.isEmpty { stream.makers = [first] }
        // The fragments name the key if one init segment has several. Otherwise each key has an init segment.
        let sharesMap = stream.keyLines.count < 2 || first.isGrouped || !isSamples
        // A view need not handle two init segments in one file.
        if single.isUsed && !sharesMap { stream.isCorrect = false }
        if isSamples {
            // A URI names the key only if the file has a single one.
            let isNeeded = first.isGrouped || stream.makers.count > 1
            for (line, maker) in zip(stream.keyLines, stream.makers) where isNeeded || chance(40) {
                if chance(20) {
                    given[hex(maker.identifier)] = line.key
                } else {
                    files[stream.directory + hex(maker.identifier) + ".key"] = line.key
                }
            }
        }
        // The clear beginning has an init segment of its own, or is under the key line.
        let hasClearMap = isSamples && !single.isUsed && chance(30)
        let isLeadKeyed = !hasClearMap && chance(30)
        /// The map of each key line. Clear segments have theirs at -1.
        var maps: [Int: Int] = [:]
        for (index, period) in periods.enumerated() {
            let isClear = period == nil && hasClearMap
            let wanted = isClear ? -1 : sharesMap ? 0 : period ?? 0
            let maker = stream.makers[period ?? 0]
            if maps[wanted] == nil {
                maps[wanted] = stream.maps.count
                let initial = maker.initial(isProtected: isSamples && !isClear)
                try addMap(to: &stream, number, initial, period, &single, styles.map)
            }
            let fragment: Mp4Maker.Fragment
            var resource: Resource
            let base = "s\(number)_\(index).m4s"
            if isSamples {
                fragment = try maker.fragment(index, isProtected: period != nil, isOfClearFilm: isClear, &random)
                resource = add(
                    fragment.stored, base, styles.media, to: &single, in: stream.directory,
                    original: .sampled(fragment.clear), keyLine: period ?? (isLeadKeyed ? 0 : nil))
            } else {
                fragment = try maker.fragment(index, isProtected: false, isOfClearFilm: true, &random)
                let content = fragment.clear
                let stored = try period.map {
                    try encrypt(content, stream.keyLines[$0], stream.sequence + UInt64(index))
                }
                resource = add(
                    stored ?? content, base, styles.media, to: &single, in: stream.directory,
                    original: period == nil ? .clear : .bytes(content), keyLine: period)
            }
            stream.segments.append(Segment(resource: resource, map: maps[wanted], frame: fragment.frame))
        }
    }

    private mutating func addMap(
        to stream: inout Stream, _ number: Int, _ initial: [UInt8], _ period: Int?, _ single: inout Single,
        _ style: Style
    ) throws {
        let base = "i\(number)_\(stream.maps.count).mp4"
        // AES-128 requires a vector for the map (RFC 8216, 4.3.2.5).
        if stream.method == .samples || period == nil || chance(30) {
            let original = stream.method == .samples ? Original.initial : .clear
            let resource = add(
                initial, base, style, to: &single, in: stream.directory, original: original, keyLine: nil)
            return stream.maps.append(resource)
        }
        var line = stream.keyLines[period ?? 0]
        if line.vector == nil {
            line.vector = "0x" + hex(random.bytes(16))
            stream.keyLines.append(line)
        }
        let keyLine = line.vector == stream.keyLines[period ?? 0].vector ? period : stream.keyLines.count - 1
        stream.maps.append(
            add(
                try encrypt(initial, line, 0), base, style, to: &single, in: stream.directory,
                original: .bytes(initial),
                keyLine: keyLine))
    }

    // MARK: Other tags

    /// Lines without a file, which players ignore.
    private static let harmlessLines = [
        "#EXT-X-DISCONTINUITY", "#EXT-X-BITRATE:1200", "#EXT-X-CUE-OUT:DURATION=30", "#EXT-X-CUE-IN", "# comment",
        "#EXT-OATCLS-SCTE35:/DAlAAAAAAAAAP/wFAUAAAABf+/+AAAAAH4AUmXAAAAAAAA=", "#EXTGRP:news",
        "#EXT-X-SCTE35:CUE=\"/DAIAAAAAAAAAAAQAAZ/I0VniQAQAgBDVUVJQAAAAH+cAAAAAA==\",TYPE=0x34",
        "#EXT-X-PROGRAM-DATE-TIME:2026-11-28T10:00:00.000Z", "#EXTVLCOPT:http-user-agent=player",
        "#EXT-X-DATERANGE:ID=\"a\",START-DATE=\"2026-11-28T10:00:00Z\",X-ASSET-URI=\"https://ads.example/a.m3u8\"",
        "#EXT-X-TWITCH-INFO:ORIGIN=\"s3\",REGION=\"EU\"", "#EXT-X-ASSET:CAID=0x12,TITLE=\"A film, or two\"",
    ]

    private mutating func addHarmlessLines(to stream: inout Stream) {
        for index in stream.segments.indices where chance(20) {
            stream.segments[index].before.append((pick(Self.harmlessLines), nil))
        }
    }

    // MARK: More playlists of the same segments

    /// Adds a playlist of another one's last segments, and returns its position.
    @discardableResult
    mutating func addCopy(of number: Int, dropping dropped: Int = 0) -> Int {
        var stream = streams[number]
        stream.name = "q\(streams.count).m3u8"
        stream.segments.removeFirst(min(dropped, stream.segments.count - 1))
        stream.sequence += UInt64(streams[number].segments.count - stream.segments.count)
        // The dropped segments may be the only ones with a key line.
        if stream.segments.allSatisfy({ $0.resource.keyLine == nil }) { isSilent = false }
        streams.append(stream)
        return streams.count - 1
    }

    /// Adds an I-frame playlist of segments in files of their own.
    mutating func addFrames(of number: Int) {
        var stream = streams[number]
        // Subtitles have no frames.
        let hasFrames = stream.method != .samples || !stream.makers.isEmpty
        guard hasFrames, stream.segments.allSatisfy({ $0.resource.range == nil }) else { return }
        stream.name = "f\(streams.count).m3u8"
        stream.isFrames = true
        for index in stream.segments.indices {
            let frame = stream.segments[index].frame
            switch stream.segments[index].resource.original {
            case .bytes(let bytes): stream.segments[index].resource.original = .bytes(Array(bytes[frame]))
            case .sampled(let bytes): stream.segments[index].resource.original = .sampled(Array(bytes[frame]))
            case .clear, .initial, .asPlayed, .impossible: break
            }
            stream.segments[index].resource.range = frame
        }
        streams.append(stream)
    }

    /// Returns a tree of correct playlists.
    static func correct(seed: UInt64) throws -> HlsTree {
        var tree = HlsTree(seed: seed)
        for _ in 0..<tree.pick([1, 1, 2, 3]) { try tree.addStream() }
        let number = Int.random(in: 0..<tree.streams.count, using: &tree.random)
        switch Int.random(in: 0..<10, using: &tree.random) {
        case 0: tree.addCopy(of: number)
        case 1: tree.addCopy(of: number, dropping: 1)
        case 2, 3: tree.addFrames(of: number)
        default: break
        }
        if tree.chance(10) {
            let lines = tree.streams.map { "#EXT-X-STREAM-INF:BANDWIDTH=1\n\($0.path)\n" }
            tree.files["master.m3u8"] = Array("#EXTM3U\n\(lines.joined())".utf8)
        }
        return tree
    }

    // MARK: Text

    /// Returns a playlist's text, and the original of each line with a URI.
    func rendered(_ stream: Stream) -> (bytes: [UInt8], originals: [Int: Original]) {
        var text = Text(stream: stream)
        text.add("#EXTM3U")
        text.add("#EXT-X-VERSION:7")
        text.add("#EXT-X-TARGETDURATION:2")
        if stream.sequence > 0 { text.add("#EXT-X-MEDIA-SEQUENCE:\(stream.sequence)") }
        if stream.isFrames { text.add("#EXT-X-I-FRAMES-ONLY") }
        for line in stream.header { text.add(line) }
        for segment in stream.segments { text.add(segment) }
        text.add("#EXT-X-ENDLIST")
        let bytes = Array((text.lines.joined(separator: stream.lineEnd) + stream.lineEnd).utf8)
        return (stream.encoding(bytes), text.originals)
    }

    private struct Text {
        let stream: Stream
        var lines: [String] = []
        var originals: [Int: Original] = [:]
        var keyLine: Int?
        var map: Int?
        var end: (uri: String, position: Int)?

        init(stream: Stream) { self.stream = stream }

        mutating func add(_ line: String, _ original: Original? = nil) {
            lines.append(line)
            if let original { originals[lines.count] = original }
        }

        mutating func add(keyLine wanted: Int?) {
            guard wanted != keyLine else { return }
            if let wanted {
                // A line for one KEYFORMAT leaves those for the others in force.
                if let keyLine, Set(stream.keyLines[keyLine].formats) != Set(stream.keyLines[wanted].formats) {
                    add("#EXT-X-KEY:METHOD=NONE")
                }
                for line in stream.keyLines[wanted].lines { add(line) }
            } else {
                add("#EXT-X-KEY:METHOD=NONE")
            }
            keyLine = wanted
        }

        mutating func add(_ segment: Segment) {
            let isSamples = stream.method == .samples
            if isSamples && !stream.mapsFirst { add(keyLine: segment.resource.keyLine) }
            if let wanted = segment.map, wanted != map {
                let resource = stream.maps[wanted]
                if !isSamples { add(keyLine: resource.keyLine) }
                let range = resource.range.map { ",BYTERANGE=\"\($0.count)@\($0.lowerBound)\"" } ?? ""
                add("#EXT-X-MAP:URI=\"\(resource.uri)\"\(range)", resource.original)
                map = wanted
            }
            add(keyLine: segment.resource.keyLine)
            for line in segment.before { add(line.text, line.original) }
            add("#EXTINF:2,")
            let uri = segment.resource.uri
            if let range = segment.resource.range {
                let isImplied = stream.impliesOffsets && end.map { $0 == (uri, range.lowerBound) } ?? false
                add("#EXT-X-BYTERANGE:\(range.count)" + (isImplied ? "" : "@\(range.lowerBound)"))
                end = (uri, range.upperBound)
            } else {
                end = nil
            }
            add(uri, segment.resource.original)
        }
    }
}

extension HlsTree.KeyLine {
    fileprivate var formats: [String] { (before + after).isEmpty ? [] : ["other"] }
}
