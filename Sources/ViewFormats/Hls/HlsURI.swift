internal import LinuxSystem
internal import VaultFormat

/// Where in the tree a playlist's URI leads (RFC 8216, 4.1; RFC 3986).
enum HlsURI {
    /// The paths, relative to the source, that a URI of a playlist in `directory` may mean; the first that exists is
    /// meant. Empty where it is not relative, and thus no file of the tree.
    ///
    /// A server takes the path percent-decoded and without the query. A downloader may have kept all of it in the file's
    /// name, and ffmpeg neither encodes nor decodes names.
    static func paths(_ uri: [UInt8], directory: [UInt8]) -> [[UInt8]] {
        guard !uri.isEmpty, uri[0] != UInt8(ascii: "/"), !hasScheme(uri) else { return [] }
        let path = uri.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
        var names = [percentDecoded(path)]
        if names[0] != uri { names.append(uri) }
        let prefix = directory.isEmpty ? [] : directory + [UInt8(ascii: "/")]
        // An absolute path may come out of decoding.
        return names.filter { !$0.isEmpty && !$0.contains(0) && $0[0] != UInt8(ascii: "/") }.map { prefix + $0 }
    }

    /// The path without `.`, `..` and double slashes, by its text alone.
    static func normalized(_ path: [UInt8]) -> [UInt8] {
        var components: [ArraySlice<UInt8>] = []
        for component in path.split(separator: UInt8(ascii: "/")) where !component.elementsEqual(".".utf8) {
            if component.elementsEqual("..".utf8) { _ = components.popLast() } else { components.append(component) }
        }
        return Array(components.joined(separator: [UInt8(ascii: "/")]))
    }

    /// Whether no `..` of the path leads out of the source, by its text alone.
    static func staysInside(_ path: [UInt8]) -> Bool {
        var depth = 0
        for component in path.split(separator: UInt8(ascii: "/")) where !component.elementsEqual(".".utf8) {
            depth += component.elementsEqual("..".utf8) ? -1 : 1
            if depth < 0 { return false }
        }
        return true
    }

    /// The directory of a path; empty: the source itself.
    static func directory(of path: [UInt8]) -> [UInt8] {
        path.lastIndex(of: UInt8(ascii: "/")).map { Array(path[..<$0]) } ?? []
    }

    /// Whether it begins with `scheme:` (RFC 3986, 3.1).
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

    /// `%` without two digits behind it stays as it is.
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
