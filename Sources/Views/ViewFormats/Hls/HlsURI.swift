internal import LinuxSystem

/// URIs in playlists, and the paths meant by them (RFC 8216, 4.1 and 4.3.2.4; RFC 3986).
package enum HlsURI {
    /// A file that a URI can mean.
    struct Candidate: Equatable {
        /// Relative to the source.
        var path: [UInt8]
        /// The file's name beside the playlist, if that is not where the URI says.
        var name: [UInt8]?
    }

    /// Returns the files that a segment's URI can mean in a playlist in `directory`. The first existing one counts: the
    /// one where the URI says, then its last component beside the playlist, where a downloader saves it.
    static func candidates(_ uri: [UInt8], directory: [UInt8]) -> [Candidate] {
        if isPlain(uri) {
            let path = Candidate(path: joinedPath(directory, uri))
            guard let slash = uri.lastIndex(of: UInt8(ascii: "/")) else { return [path] }
            let name = Array(uri[(slash + 1)...])
            return [path, Candidate(path: joinedPath(directory, name), name: name)]
        }
        var candidates = paths(uri, directory: directory).map { Candidate(path: $0) }
        // Skip a name with a variable, because players would replace it in the shown playlist.
        for name in fileNames(of: uri) where !PlaylistVariables.isUsed(in: name[...]) {
            let path = joinedPath(directory, name)
            if !candidates.contains(where: { $0.path == path }) { candidates.append(Candidate(path: path, name: name)) }
        }
        return candidates
    }

    /// True for most URIs, which have one spelling: a relative path without an escape, a query or a variable.
    private static func isPlain(_ uri: [UInt8]) -> Bool {
        isNormal(uri) && !uri.contains { $0 == 0 || "%?#:{".utf8.contains($0) }
    }

    /// Returns the normalized paths, relative to the source, that a URI of a playlist in `directory` can mean.
    /// The first existing one counts. Empty if the URI is not relative.
    ///
    /// A downloader may have kept the whole URI as the file's name, and ffmpeg neither encodes nor decodes names. A
    /// server decodes the path and drops the query.
    static func paths(_ uri: [UInt8], directory: [UInt8]) -> [[UInt8]] {
        var relative = uri[...]
        if let scheme = scheme(of: uri) {
            // `file:` can stand before a relative path.
            guard isFile(scheme) else { return [] }
            relative = uri[(scheme.endIndex + 1)...]
        }
        guard let first = relative.first, first != UInt8(ascii: "/"), !PlaylistVariables.isUsed(in: relative) else {
            return []
        }
        // Decoding can make a path absolute.
        return spellings(of: relative).filter { !$0.isEmpty && !$0.contains(0) && $0[0] != UInt8(ascii: "/") }
            .map { normalized(joinedPath(directory, $0)) }
    }

    /// Returns the files that can hold the key of an `EXT-X-KEY`, relative to the source. The order is that of a
    /// segment: files meant by a relative URI, unless they are outside the source, then files of its last component
    /// beside the playlist.
    static func keyPaths(_ uri: [UInt8], directory: [UInt8]) -> [[UInt8]] {
        var paths = Self.paths(uri, directory: directory).map(resolved).filter(\.staysInside).map(\.path)
        for name in fileNames(of: uri) {
            let beside = joinedPath(directory, name)
            if !paths.contains(beside) { paths.append(beside) }
        }
        return paths
    }

    /// Returns the forms in which a file can have a path with a query: as it is and decoded, then both without the
    /// query. Each once.
    private static func spellings(of text: ArraySlice<UInt8>) -> [[UInt8]] {
        var spellings: [[UInt8]] = []
        for text in [text, withoutQuery(text)] {
            for spelling in [Array(text), percentDecoded(text)] where !spellings.contains(spelling) {
                spellings.append(spelling)
            }
        }
        return spellings
    }

    /// Returns the last component of the path, percent-decoded. Nil if it is not a file name.
    static func fileName(of uri: [UInt8]) -> [UInt8]? { lastComponent(of: uri).flatMap { name(percentDecoded($0)) } }

    /// Returns the names that a downloader can give a file: the last component with the query, and without it.
    private static func fileNames(of uri: [UInt8]) -> [[UInt8]] {
        guard let component = lastComponent(of: uri) else { return [] }
        return spellings(of: uri[component.startIndex...]).compactMap(name)
    }

    private static func name(_ text: [UInt8]) -> [UInt8]? {
        let isName = !text.contains(0) && !text.contains(UInt8(ascii: "/"))
        return isName && !["", ".", ".."].contains { text.elementsEqual($0.utf8) } ? text : nil
    }

    /// Nil if the URI has no path, or a variable of unknown value decides its last component.
    private static func lastComponent(of uri: [UInt8]) -> ArraySlice<UInt8>? {
        if isData(uri) { return nil }
        let path = withoutQuery(uri[...])
        var rest = path
        if let scheme = scheme(of: uri), isFile(scheme) || path[(scheme.endIndex + 1)...].starts(with: "//".utf8) {
            rest = path[(scheme.endIndex + 1)...]
        }
        if rest.starts(with: "//".utf8) {
            // Skip an authority. If the URI ends with it, there is no path.
            guard let slash = rest.dropFirst(2).firstIndex(of: UInt8(ascii: "/")) else { return nil }
            rest = rest[slash...]
        }
        let component = rest.lastIndex(of: UInt8(ascii: "/")).map { rest[($0 + 1)...] } ?? rest
        return PlaylistVariables.isUsed(in: component) ? nil : component
    }

    /// Returns a reference to a file beside the playlist. Encodes only bytes forbidden by the playlist's syntax,
    /// because players take names as they are (ffmpeg neither encodes nor decodes them).
    /// - Parameter isAttribute: true for the value of an attribute.
    static func reference(to name: [UInt8], isAttribute: Bool) -> [UInt8] {
        var result: [UInt8] = []
        for (position, byte) in name.enumerated() {
            let isBlank = byte == UInt8(ascii: " ") && (position == 0 || position == name.count - 1)
            let endsAttribute = isAttribute && "\",".utf8.contains(byte)
            if byte < 0x20 || byte == 0x7F || isBlank || endsAttribute || (byte == UInt8(ascii: "#") && position == 0) {
                result += Array("%\(Hexadecimal.encode(CollectionOfOne(byte)))".utf8)
            } else {
                result.append(byte)
            }
        }
        return scheme(of: result) == nil ? result : Array("./".utf8) + result
    }

    /// True for a `data:` URI (RFC 2397), which contains the key.
    static func isData(_ uri: [UInt8]) -> Bool {
        scheme(of: uri)?.elementsEqual("data".utf8) { $0 | 0x20 == $1 } == true
    }

    /// Returns the content of a `data:` URI: `data:[type][;base64],content`. Nil if it has none.
    static func data(_ uri: [UInt8]) -> [UInt8]? {
        guard let comma = uri.firstIndex(of: UInt8(ascii: ",")) else { return nil }
        let content = percentDecoded(uri[(comma + 1)...])
        let suffix = uri[..<comma].suffix(";base64".utf8.count).map { $0 | 0x20 }
        guard suffix.elementsEqual(";base64".utf8.map { $0 | 0x20 }) else { return content }
        return base64Decoded(content)
    }

    /// Takes both alphabets, with or without padding (RFC 4648, 4 and 5).
    private static func base64Decoded(_ text: [UInt8]) -> [UInt8]? {
        var result: [UInt8] = []
        var (bits, count): (UInt32, Int) = (0, 0)
        let end = text.lastIndex { $0 != UInt8(ascii: "=") } ?? -1
        for byte in text[...end] {
            let value: UInt8
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = byte - UInt8(ascii: "A")
            case UInt8(ascii: "a")...UInt8(ascii: "z"): value = byte - UInt8(ascii: "a") + 26
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = byte - UInt8(ascii: "0") + 52
            case UInt8(ascii: "+"), UInt8(ascii: "-"): value = 62
            case UInt8(ascii: "/"), UInt8(ascii: "_"): value = 63
            default: return nil
            }
            bits = bits << 6 | UInt32(value)
            count += 6
            if count >= 8 {
                count -= 8
                result.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
            }
        }
        return result
    }

    /// Returns a URI for a message, without secrets: the content of a `data:` URI, and a query, which can be a token.
    package static func text(_ uri: [UInt8]) -> String {
        if isData(uri) { return "data:…" }
        guard let query = uri.firstIndex(of: UInt8(ascii: "?")) else { return shown(uri) }
        return shown(uri[..<query]) + "?…"
    }

    // MARK: Paths

    /// Returns the path without `.`, `..` and double slashes (RFC 3986, 5.2.4). Does not look at the disk. A path that
    /// leads out of the source, or names a directory, is returned as it is.
    private static func normalized(_ path: [UInt8]) -> [UInt8] {
        guard !isNormal(path), path.last != UInt8(ascii: "/") else { return path }
        let (inside, staysInside) = resolved(path)
        return staysInside ? inside : path
    }

    /// True for most paths: no component is empty or begins with a dot.
    private static func isNormal(_ path: [UInt8]) -> Bool {
        var previous = UInt8(ascii: "/")
        for byte in path {
            if previous == UInt8(ascii: "/"), byte == UInt8(ascii: "/") || byte == UInt8(ascii: ".") { return false }
            previous = byte
        }
        return previous != UInt8(ascii: "/")
    }

    /// `staysInside` is true if no `..` of the path leads out of the source.
    private static func resolved(_ path: [UInt8]) -> (path: [UInt8], staysInside: Bool) {
        var components: [ArraySlice<UInt8>] = []
        var staysInside = true
        for component in path.split(separator: UInt8(ascii: "/")) where !component.elementsEqual(".".utf8) {
            if !component.elementsEqual("..".utf8) {
                components.append(component)
            } else if components.popLast() == nil {
                staysInside = false
            }
        }
        return (Array(components.joined(separator: [UInt8(ascii: "/")])), staysInside)
    }

    /// Returns the directory of a path. Empty for the source itself.
    static func directory(of path: [UInt8]) -> [UInt8] {
        path.lastIndex(of: UInt8(ascii: "/")).map { Array(path[..<$0]) } ?? []
    }

    // MARK: Parts of a URI

    static func withoutQuery(_ uri: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        uri.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
    }

    /// The scheme of a URI that begins with `scheme:` (RFC 3986, 3.1).
    private static func scheme(of uri: [UInt8]) -> ArraySlice<UInt8>? {
        guard let colon = uri.firstIndex(of: UInt8(ascii: ":")), let first = uri.first, isLetter(first) else {
            return nil
        }
        let isScheme = uri[..<colon].allSatisfy {
            isLetter($0) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) || "+-.".utf8.contains($0)
        }
        return isScheme ? uri[..<colon] : nil
    }

    private static func isFile(_ scheme: ArraySlice<UInt8>) -> Bool {
        scheme.elementsEqual("file".utf8) { $0 | 0x20 == $1 }
    }

    /// True for a URI that begins with `scheme://`.
    static func hasAuthority(_ uri: ArraySlice<UInt8>) -> Bool {
        let uri = Array(uri)
        return scheme(of: uri).map { uri[($0.endIndex + 1)...].starts(with: "//".utf8) } ?? false
    }

    private static func isLetter(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
    }

    /// Leaves a `%` without two digits after it as it is.
    private static func percentDecoded(_ text: ArraySlice<UInt8>) -> [UInt8] {
        if !text.contains(UInt8(ascii: "%")) { return Array(text) }
        var result: [UInt8] = []
        result.reserveCapacity(text.count)
        var rest = text
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "%"), let high = rest.first.flatMap(Hexadecimal.value),
                let low = rest.dropFirst().first.flatMap(Hexadecimal.value)
            {
                result.append(high << 4 | low)
                rest = rest.dropFirst(2)
            } else {
                result.append(byte)
            }
        }
        return result
    }
}
