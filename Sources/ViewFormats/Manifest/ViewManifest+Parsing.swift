internal import LinuxSystem
internal import VaultFormat

extension ViewManifest {
    private static let place = "view.json"
    /// The values of `format`: those of `vaultfs view`.
    package static let formats = ["cbc-chunks", "cbc", "openssl", "hls"]
    /// A file without an entry of its own is compared with every pattern.
    static let maximumPatternCount = 1000
    /// PATH_MAX of Linux.
    private static let maximumPathSize = 4096
    private static let chunkSizes = 16...(1 << 40)

    /// Reads the bytes of a `view.json`: strict JSON, no unknown members.
    /// - Throws: `malformed`, naming the member.
    package static func parse(_ bytes: [UInt8]) throws(ViewError) -> ViewManifest {
        do throws(FormatError) {
            return try parseFile(bytes)
        } catch {
            throw .malformed(error.reason)
        }
    }

    private static func parseFile(_ bytes: [UInt8]) throws(FormatError) -> ViewManifest {
        let json = try JSONParser.parse(bytes, place: place, maximumSize: maximumSize)
        var members = try JSONMembers(json, place: place)
        let formatText = try members.takeString("format")
        guard let format = formats.first(where: { formatText.elementsEqual($0.utf8) }) else {
            throw malformed("format '\(shown(formatText))' is none of \(formats.joined(separator: ", "))")
        }
        guard case .object(let files) = try members.take("files") else { throw malformed("files is not an object") }
        try members.refuseRest()
        var entries: [[UInt8]: Entry] = [:]
        var patterns: [PathPattern] = []
        entries.reserveCapacity(files.count)
        // In order, so that of several mistakes always the same one is told.
        for (path, value) in files.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) {
            guard isInside(path) else {
                throw malformed(
                    "files: '\(shown(path))' is not a relative path without '.', '..' and empty components")
            }
            entries[path] = try parseEntry(value, place: "\(place): files: '\(shown(path))'")
            if PathPattern.isPattern(path) { patterns.append(PathPattern(path)) }
        }
        guard patterns.count <= maximumPatternCount else {
            throw malformed("\(patterns.count) patterns are more than \(maximumPatternCount)")
        }
        patterns.sort { $0.text.count > $1.text.count }
        return ViewManifest(format: format, entries: entries, patterns: patterns)
    }

    private static func parseEntry(_ value: StrictJSON, place: String) throws(FormatError) -> Entry {
        var members = try JSONMembers(value, place: place)
        var entry = Entry()
        if members.peek("key") != nil {
            let path = try members.takeString("key")
            guard path.first == UInt8(ascii: "/") ? isPath(path) : isInside(path) else {
                throw FormatError(
                    .malformed, "\(place): key '\(shown(path))' leads out of the source or to nothing")
            }
            entry.key = path
        }
        if members.peek("iv") != nil {
            let digits = try members.takeString("iv")
            guard let vector = InitialVector(hexadecimal: digits) else {
                throw FormatError(.malformed, "\(place): iv '\(shown(digits))' is not 32 hexadecimal digits")
            }
            entry.vector = vector
        }
        if members.peek("cipher") != nil {
            let name = try members.takeString("cipher")
            guard let cipher = ViewCipher.allCases.first(where: { name.elementsEqual($0.rawValue.utf8) }) else {
                let ciphers = ViewCipher.allCases.map(\.rawValue).joined(separator: ", ")
                throw FormatError(.malformed, "\(place): cipher '\(shown(name))' is none of \(ciphers)")
            }
            entry.cipher = cipher
        }
        if members.peek("chunkSize") != nil {
            entry.chunkSize = UInt64(try members.takeInteger("chunkSize", in: chunkSizes))
        }
        try members.refuseRest()
        return entry
    }

    private static func isPath(_ path: [UInt8]) -> Bool {
        path.count < maximumPathSize && !path.contains(0)
    }

    /// Relative to the source, and written as the view writes it: another entry could match nothing.
    private static func isInside(_ path: [UInt8]) -> Bool {
        let useless = ["", ".", ".."].map { [UInt8]($0.utf8) }
        return isPath(path) && !PathPattern.split(path).contains(where: useless.contains)
    }

    private static func malformed(_ reason: String) -> FormatError {
        FormatError(.malformed, "\(place): \(reason)")
    }
}

extension InitialVector {
    /// 32 digits in either case, `0x` before them allowed.
    package init?(hexadecimal text: [UInt8]) {
        var digits = text[...]
        if digits.starts(with: "0x".utf8) || digits.starts(with: "0X".utf8) { digits.removeFirst(2) }
        guard let bytes = Hexadecimal.decode(digits) else { return nil }
        guard let vector = bytes.withUnsafeBytes({ InitialVector($0) }) else { return nil }
        self = vector
    }
}
