internal import LinuxSystem

/// URIs in playlists, and the paths that they mean (RFC 8216, 4.1 and 4.3.2.4; RFC 3986).
enum HlsURI {
    /// The paths, relative to the source, that a URI of a playlist in `directory` can mean. The first that exists
    /// counts. Empty if the URI is not relative.
    ///
    /// A server decodes the path and drops the query. A downloader may have kept the whole URI as the file's name, and
    /// ffmpeg neither encodes nor decodes names.
    static func paths(_ uri: [UInt8], directory: [UInt8]) -> [[UInt8]] {
        guard !uri.isEmpty, uri[0] != UInt8(ascii: "/"), !hasScheme(uri) else { return [] }
        var names = [percentDecoded(withoutQuery(uri))]
        if names[0] != uri { names.append(uri) }
        // Decoding can make a path absolute.
        return names.filter { !$0.isEmpty && !$0.contains(0) && $0[0] != UInt8(ascii: "/") }
            .map { joinedPath(directory, $0) }
    }

    /// The files that can hold the key of an `EXT-X-KEY`, relative to the source, in this order: the file that a
    /// relative URI means, unless it is outside the source, and the URI's file name beside the playlist.
    static func keyPaths(_ uri: [UInt8], directory: [UInt8]) -> [[UInt8]] {
        var paths = Self.paths(uri, directory: directory).map(resolved).filter(\.staysInside).map(\.path)
        if let name = fileName(of: uri) {
            let beside = joinedPath(directory, name)
            if !paths.contains(beside) { paths.append(beside) }
        }
        return paths
    }

    /// The last component of the path, percent-decoded. Nil if it is not a file name.
    static func fileName(of uri: [UInt8]) -> [UInt8]? {
        let path = withoutQuery(uri)
        var name = path
        if let slash = path.lastIndex(of: UInt8(ascii: "/")) {
            name = path[(slash + 1)...]
            // No path follows the authority of `scheme://authority` and `//authority`.
            let scheme = path[..<slash].dropLast()
            let isAuthority = scheme.isEmpty || scheme.firstIndex(of: UInt8(ascii: ":")) == scheme.endIndex - 1
            if path[..<slash].last == UInt8(ascii: "/"), isAuthority, !scheme.contains(UInt8(ascii: "/")) { return nil }
        }
        let decoded = percentDecoded(name)
        let isName = !decoded.contains(0) && !decoded.contains(UInt8(ascii: "/"))
        return isName && !["", ".", ".."].contains { decoded.elementsEqual($0.utf8) } ? decoded : nil
    }

    /// True for a `data:` URI (RFC 2397), which contains the key.
    static func isData(_ uri: [UInt8]) -> Bool {
        let scheme = uri.prefix { $0 != UInt8(ascii: ":") }
        return scheme.count < uri.count && scheme.elementsEqual("data".utf8) { $0 | 0x20 == $1 }
    }

    /// A key's URI for a message, without what is secret: the content of a `data:` URI, and a query, which can be a
    /// token.
    static func shownKey(_ uri: [UInt8]) -> String {
        if isData(uri) { return "data:…" }
        guard let query = uri.firstIndex(of: UInt8(ascii: "?")) else { return shown(uri) }
        return shown(uri[..<query]) + "?…"
    }

    // MARK: Paths

    /// The path without `.`, `..` and double slashes. Does not look at the disk.
    static func normalized(_ path: [UInt8]) -> [UInt8] { resolved(path).path }

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

    /// The directory of a path. Empty for the source itself.
    static func directory(of path: [UInt8]) -> [UInt8] {
        path.lastIndex(of: UInt8(ascii: "/")).map { Array(path[..<$0]) } ?? []
    }

    // MARK: Parts of a URI

    private static func withoutQuery(_ uri: [UInt8]) -> ArraySlice<UInt8> {
        uri.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
    }

    /// True if the URI begins with `scheme:` (RFC 3986, 3.1).
    private static func hasScheme(_ uri: [UInt8]) -> Bool {
        guard let colon = uri.firstIndex(of: UInt8(ascii: ":")), let first = uri.first, isLetter(first) else {
            return false
        }
        return uri[..<colon].allSatisfy {
            isLetter($0) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) || "+-.".utf8.contains($0)
        }
    }

    private static func isLetter(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
    }

    /// Leaves a `%` without two digits after it as it is.
    private static func percentDecoded(_ text: ArraySlice<UInt8>) -> [UInt8] {
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
