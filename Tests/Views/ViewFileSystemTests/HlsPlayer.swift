import Foundation
import TestSupport

@testable import VaultCrypto

/// A player of HTTP Live Streaming over files. It reads playlists by RFC 8216 and decrypts the files of their URIs. It
/// shares no code with the view, so both are less likely to make the same mistake.
struct HlsPlayer {
    /// An `EXT-X-KEY` currently in force.
    struct Key: Hashable {
        var method: String
        var uri: String
        var vector: String?
        var format: String
    }

    struct Reference {
        enum Role { case segment, frame, map, part, unknown }

        var role: Role
        /// The line of the URI or of its tag, counted from 1.
        var line: Int
        var uri: String
        /// Nil if there is no such file.
        var file: String?
        /// True for a URI with a server.
        var isRemote: Bool
        var range: Range<Int>?
        /// The keys in force, one for each KEYFORMAT.
        var keys: Set<Key>
        /// The media sequence number.
        var number: UInt64
        /// The position of the current `EXT-X-MAP`.
        var map: Int?
    }

    let files: [String: FoundFile]
    /// True for a saved download, in which a server's files may have other names.
    let isDownload: Bool
    /// Keys given by the user, by URI or key identifier.
    var given: [String: [UInt8]] = [:]

    // MARK: Playlists

    /// Tags without a URI, or with one that does not name media of the playlist.
    private static let silentTags: Set<String> = [
        "#EXTM3U", "#EXT-X-VERSION", "#EXT-X-TARGETDURATION", "#EXT-X-ENDLIST", "#EXT-X-SESSION-KEY",
        "#EXT-X-SESSION-DATA", "#EXT-X-MEDIA", "#EXT-X-STREAM-INF", "#EXT-X-I-FRAME-STREAM-INF", "#EXT-X-DATERANGE",
        "#EXT-X-RENDITION-REPORT", "#EXT-X-PROGRAM-DATE-TIME", "#EXT-X-DISCONTINUITY", "#EXT-X-PLAYLIST-TYPE",
    ]

    /// Returns every URI of a playlist, in the order of its text.
    func references(of playlist: String) throws -> [Reference] {
        guard case .bytes(let bytes) = files[playlist] else { throw TestFailure("\(playlist) cannot be read") }
        var reading = Reading(player: self, directory: Self.directory(of: playlist))
        for (index, line) in try Self.lines(Self.text(bytes)).enumerated() { try reading.read(line, number: index + 1) }
        return reading.references
    }

    private struct Reading {
        let player: HlsPlayer
        let directory: String
        var references: [Reference] = []
        var hasBegun = false
        var keys: [Key] = []
        var variables: [String: String] = [:]
        var number: UInt64 = 0
        var map: Int?
        var isSegment = false
        var isFrames = false
        var range: String?
        /// The ends of the last ranges, by resource.
        var ends: [String: Int] = [:]
        var partEnds: [String: Int] = [:]

        mutating func read(_ line: String, number position: Int) throws {
            if line.isEmpty { return }
            guard hasBegun || line.hasPrefix("#EXTM3U") else { throw TestFailure("not a playlist") }
            hasBegun = true
            guard line.hasPrefix("#") else { return uri(line, position) }
            guard line.hasPrefix("#EXT") else { return }
            let name = String(line.prefix { $0 != ":" })
            let value = String(line.dropFirst(name.count + 1))
            switch name {
            case "#EXTINF": isSegment = true
            case "#EXT-X-I-FRAMES-ONLY": isFrames = true
            case "#EXT-X-MEDIA-SEQUENCE": number = UInt64(value) ?? 0
            case "#EXT-X-BYTERANGE": range = value
            case "#EXT-X-KEY": key(value)
            case "#EXT-X-DEFINE":
                guard let attributes = HlsPlayer.attributes(value), let name = attributes["NAME"] else { return }
                variables[name] = attributes["VALUE"] ?? ""
            case "#EXT-X-MAP", "#EXT-X-PART", "#EXT-X-PRELOAD-HINT":
                guard let attributes = HlsPlayer.attributes(value), let uri = attributes["URI"] else {
                    return unknown(value, position)
                }
                let isMap = name == "#EXT-X-MAP"
                var bytes = attributes["BYTERANGE"].flatMap {
                    HlsPlayer.range($0, after: isMap ? 0 : partEnds[uri] ?? 0)
                }
                if let start = attributes["BYTERANGE-START"].flatMap({ Int($0) }) {
                    bytes = start..<(start + (attributes["BYTERANGE-LENGTH"].flatMap { Int($0) } ?? 1 << 30))
                }
                if isMap { map = references.count } else { partEnds[uri] = bytes?.upperBound }
                add(isMap ? .map : .part, uri, bytes, position)
            default: if !HlsPlayer.silentTags.contains(name) { unknown(value, position) }
            }
        }

        mutating func key(_ value: String) {
            let attributes = HlsPlayer.attributes(value)
            guard attributes?["METHOD"] != "NONE" else {
                keys = []
                return
            }
            let key = Key(
                method: attributes?["METHOD"] ?? "", uri: expanded(attributes?["URI"] ?? value),
                vector: attributes?["IV"], format: attributes?["KEYFORMAT"] ?? "identity")
            keys.removeAll { $0.format == key.format }
            keys.append(key)
        }

        mutating func uri(_ line: String, _ position: Int) {
            guard isSegment else { return add(.unknown, line, nil, position) }
            let bytes = range.flatMap { HlsPlayer.range($0, after: ends[line] ?? 0) }
            ends = [line: bytes?.upperBound ?? 0]
            add(isFrames && bytes != nil ? .frame : .segment, line, bytes, position)
            (isSegment, range) = (false, nil)
            number += 1
        }

        /// Adds references for an unknown tag, because any part of its value may be a URI.
        mutating func unknown(_ value: String, _ position: Int) {
            for part in value.split(whereSeparator: { "\",".contains($0) }) {
                let name = part.prefix { $0.isUppercase || $0 == "-" }
                let isAttribute = part.dropFirst(name.count).first == "="
                add(.unknown, String(isAttribute ? part.dropFirst(name.count + 1) : part), nil, position)
            }
        }

        mutating func add(_ role: Reference.Role, _ uri: String, _ range: Range<Int>?, _ line: Int) {
            let uri = expanded(uri)
            references.append(
                Reference(
                    role: role, line: line, uri: uri,
                    file: player.file(of: uri, in: directory, isExact: role == .unknown),
                    isRemote: uri.contains("://"), range: range, keys: Set(keys), number: number, map: map))
        }

        func expanded(_ text: String) -> String {
            guard text.contains("{$") else { return text }
            return variables.reduce(text) { $0.replacing("{$\($1.key)}", with: $1.value) }
        }
    }

    /// Undoes UTF-16, and gzip without compression.
    private static func text(_ bytes: [UInt8]) throws -> [UInt8] {
        if bytes.starts(with: [0x1F, 0x8B]) {
            let size = Int(bytes[11]) | Int(bytes[12]) << 8
            guard bytes[10] == 1, bytes.count == size + 23 else { throw TestFailure("compressed") }
            return Array(bytes[15..<(15 + size)])
        }
        if bytes.starts(with: [0xFF, 0xFE]) {
            let units = stride(from: 2, to: bytes.count, by: 2).map { UInt16(bytes[$0]) | UInt16(bytes[$0 + 1]) << 8 }
            return Array(String(decoding: units, as: UTF16.self).utf8)
        }
        return bytes.starts(with: [0xEF, 0xBB, 0xBF]) ? Array(bytes.dropFirst(3)) : bytes
    }

    /// Splits text into lines, which end with LF, CRLF, CR or NUL.
    private static func lines(_ text: [UInt8]) -> [String] {
        var lines: [String] = []
        var rest = text[...]
        while !rest.isEmpty {
            let line = rest.prefix { ![0, 10, 13].contains($0) }
            rest = rest[line.endIndex...]
            rest = rest.dropFirst(rest.starts(with: [13, 10]) ? 2 : 1)
            let end = line.lastIndex { $0 != 32 && $0 != 9 } ?? line.startIndex - 1
            lines.append(String(decoding: line[...end], as: UTF8.self))
        }
        return lines
    }

    /// Returns an attribute list's values, or nil if it does not parse.
    private static func attributes(_ list: String) -> [String: String]? {
        var result: [String: String] = [:]
        var rest = Array(list.utf8)[...]
        func text(_ bytes: ArraySlice<UInt8>) -> String {
            String(decoding: bytes, as: UTF8.self).trimmingCharacters(in: .whitespaces)
        }
        while !rest.isEmpty {
            guard let equals = rest.firstIndex(of: UInt8(ascii: "=")) else { return nil }
            let name = text(rest[..<equals])
            rest = rest[(equals + 1)...]
            var value = rest.prefix { $0 != UInt8(ascii: ",") }
            if rest.first == UInt8(ascii: "\"") {
                guard let close = rest.dropFirst().firstIndex(of: UInt8(ascii: "\"")) else { return nil }
                value = rest[(rest.startIndex + 1)..<close]
                guard text(rest[(close + 1)...].prefix { $0 != UInt8(ascii: ",") }).isEmpty else { return nil }
                rest = rest[(close + 1)...].drop { $0 != UInt8(ascii: ",") }.dropFirst()
            } else {
                rest = rest[value.endIndex...].dropFirst()
            }
            if name.contains(",") { return nil }
            // Of two attributes with one name the last counts, as in ffmpeg.
            result[name] = text(value)
        }
        return result
    }

    /// Parses `n[@o]`.
    private static func range(_ text: String, after end: Int) -> Range<Int>? {
        let parts = text.split(separator: "@").map { Int($0.trimmingCharacters(in: .whitespaces)) }
        guard let count = parts.first ?? nil, let start = parts.count > 1 ? parts[1] : end else { return nil }
        return start..<(start + count)
    }

    // MARK: Files

    static func directory(of path: String) -> String {
        path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
    }

    /// Finds the file of a URI: by the name as written, then decoded, then without the query. In a download it also
    /// tries the URI's last component beside the playlist.
    /// - Parameter isExact: true for a text that may not be a name at all.
    func file(of uri: String, in directory: String, isExact: Bool = false) -> String? {
        let bare = String(uri.prefix { $0 != "?" && $0 != "#" })
        var names = [uri, uri.removingPercentEncoding ?? uri, bare, bare.removingPercentEncoding ?? bare]
        if uri.contains("://") { names = [] }
        if isDownload && !isExact, !uri.hasPrefix("data:") {
            let last = String(bare[(bare.lastIndex(of: "/").map { bare.index(after: $0) } ?? bare.startIndex)...])
            let whole = last + uri.dropFirst(bare.count)
            names += [whole, last, last.removingPercentEncoding ?? last]
        }
        return names.lazy.compactMap { Self.joined(directory, $0) }.first { files[$0] != nil }
    }

    /// Returns the joined path, or nil if it leads out of the source.
    private static func joined(_ directory: String, _ name: String) -> String? {
        guard name.contains("/") || !directory.isEmpty else { return name }
        var parts: [Substring] = []
        for part in (directory + "/" + name).split(separator: "/") where part != "." {
            if part != ".." { parts.append(part) } else if parts.popLast() == nil { return nil }
        }
        return parts.joined(separator: "/")
    }

    /// Returns a reference's stored bytes. A range past the end is cut, as servers do.
    func stored(_ reference: Reference) throws -> [UInt8] {
        guard let file = reference.file, let found = files[file] else { throw TestFailure("no file") }
        guard case .bytes(let bytes) = found else { throw TestFailure("unreadable") }
        guard let range = reference.range else { return bytes }
        guard range.lowerBound < bytes.count else { throw TestFailure("the range is past the end") }
        return Array(bytes[range.clamped(to: 0..<bytes.count)])
    }

    private func key(_ uri: String, in directory: String) throws -> [UInt8] {
        if let key = given[uri] { return key }
        if uri.hasPrefix("data:") {
            guard let key = Data(base64Encoded: String(uri.drop { $0 != "," }.dropFirst())) else {
                throw TestFailure("no base64")
            }
            return Array(key)
        }
        guard let file = file(of: uri, in: directory), case .bytes(let bytes) = files[file] else {
            throw TestFailure("no key \(uri)")
        }
        return try Self.key(bytes)
    }

    /// Returns a key from binary or hexadecimal digits.
    private static func key(_ bytes: [UInt8]) throws -> [UInt8] {
        let digits = String(decoding: bytes, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
        if digits.utf8.count == 32 || digits.utf8.count == 64, let key = hexadecimal(digits) { return key }
        guard bytes.count == 16 || bytes.count == 32 else { throw TestFailure("no key") }
        return bytes
    }

    private static func hexadecimal(_ digits: String) -> [UInt8]? {
        let values = digits.utf8.map { digit -> UInt8 in
            switch digit {
            case 48...57: digit - 48
            case 65...70, 97...102: (digit | 32) - 87
            default: 255
            }
        }
        if values.contains(255) { return nil }
        return stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
    }

    // MARK: Playing

    /// Returns a reference's plaintext, as a player with all keys gets it.
    func played(_ number: Int, of references: [Reference], in playlist: String) throws -> [UInt8] {
        let reference = references[number]
        let directory = Self.directory(of: playlist)
        var stored = try stored(reference)
        guard !reference.keys.isEmpty else {
            guard reference.role == .segment || reference.role == .frame, Mp4Segment.isOne(stored) else {
                return stored
            }
            let initial = reference.map.flatMap { try? self.stored(references[$0]) }
            // Throw if any sample needs a key.
            if let segment = try? Mp4Segment(stored, initial: initial, isCut: reference.role == .frame) {
                _ = try segment.decrypted { _ in throw TestFailure("encrypted samples without a key line") }
            }
            return stored
        }
        if reference.keys.contains(where: { $0.method == "SAMPLE-AES" }) {
            guard reference.role != .map else { return stored }
            return try playedSamples(stored, reference, references, directory)
        }
        guard let key = reference.keys.first(where: { $0.format == "identity" }), key.method.hasPrefix("AES-") else {
            throw TestFailure("a method or KEYFORMAT that this player does not know")
        }
        let bytes = try self.key(key.uri, in: directory)
        guard bytes.count * 8 == Int(key.method.dropFirst(4)) else {
            throw TestFailure("a key of \(bytes.count) bytes")
        }
        // An I-frame playlist's frames are ranges of the plaintext.
        if reference.role == .frame {
            var whole = reference
            whole.range = nil
            stored = try self.stored(whole)
        }
        guard !stored.isEmpty, stored.count % 16 == 0 else { throw TestFailure("cut") }
        let plaintext = try cbc(stored, key: bytes, vector: vector(key, reference.number), encrypts: false)
        let padding = Int(plaintext.last ?? 0)
        guard 1...16 ~= padding, plaintext.suffix(padding).allSatisfy({ $0 == padding }) else {
            throw TestFailure("the padding is wrong")
        }
        let result = Array(plaintext.dropLast(padding))
        guard reference.role == .frame, let range = reference.range else { return result }
        guard range.upperBound <= result.count else { throw TestFailure("the frame is past the end") }
        return Array(result[range])
    }

    private func vector(_ key: Key, _ number: UInt64) throws -> [UInt8] {
        guard let text = key.vector else {
            return [UInt8](repeating: 0, count: 8) + (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) }
        }
        let digits = String(text.dropFirst(2))
        guard text.lowercased().hasPrefix("0x"), digits.utf8.count <= 32,
            let vector = Self.hexadecimal(String(repeating: "0", count: 32 - digits.utf8.count) + digits)
        else { throw TestFailure("the IV is wrong") }
        return vector
    }

    private func playedSamples(
        _ stored: [UInt8], _ reference: Reference, _ references: [Reference], _ directory: String
    ) throws -> [UInt8] {
        if stored.starts(with: "WEBVTT".utf8) { return stored }
        let initial = try reference.map.map { try self.stored(references[$0]) }
        let segment = try Mp4Segment(stored, initial: initial, isCut: reference.role == .frame)
        let uris = reference.keys.filter { $0.format == "identity" }.map(\.uri)
        return try segment.decrypted { identifier in
            if let key = given[hex(identifier)] { return key }
            let file = (directory.isEmpty ? "" : directory + "/") + hex(identifier) + ".key"
            if case .bytes(let bytes) = files[file] { return try Self.key(bytes) }
            guard let uri = uris.first else { throw TestFailure("no key \(hex(identifier))") }
            return try key(uri, in: directory)
        }
    }
}

/// Runs AES in CBC mode over whole blocks.
func cbc(_ bytes: some Collection<UInt8>, key: [UInt8], vector: [UInt8], encrypts: Bool) throws -> [UInt8] {
    let input = Array(bytes)
    var output = [UInt8](repeating: 0, count: input.count)
    let context = try CipherContext(Library.loaded().aesCBC(keySize: key.count), encrypts: encrypts)
    try key.withUnsafeBytes { try context.setKey($0) }
    try context.setVector(vector)
    try context.transform(input, into: &output, size: input.count)
    return output
}

func hex(_ bytes: some Sequence<UInt8>) -> String {
    bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
}
