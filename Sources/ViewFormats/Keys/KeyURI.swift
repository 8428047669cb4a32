internal import LinuxSystem
internal import VaultFormat

/// The URIs of `EXT-X-KEY` (RFC 8216, 4.3.2.4; RFC 3986), as far as a local key file is looked for.
enum KeyURI {
    /// Whether it is a `data:` URI (RFC 2397): those hold the key.
    static func isData(_ uri: [UInt8]) -> Bool {
        let scheme = uri.prefix { $0 != UInt8(ascii: ":") }
        return scheme.count < uri.count && scheme.elementsEqual("data".utf8) { $0 | 0x20 == $1 }
    }

    /// The files that may hold the key, relative to the source, in this order: where a relative URI leads from the
    /// directory of its playlist, unless that is out of the source, and the file of its last component beside the playlist.
    static func paths(of uri: [UInt8], from directory: [UInt8]) -> [[UInt8]] {
        var paths = HlsURI.paths(uri, directory: directory).filter(HlsURI.staysInside).map(HlsURI.normalized)
        if let name = fileName(of: uri) {
            let beside = directory.isEmpty ? name : directory + [UInt8(ascii: "/")] + name
            if !paths.contains(beside) { paths.append(beside) }
        }
        return paths
    }

    /// The last component of its path, percent-decoded, without query and fragment: the name of a file. Nil where there
    /// is none that is a name.
    static func fileName(of uri: [UInt8]) -> [UInt8]? {
        var path = uri[..<(uri.firstIndex { $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "#") } ?? uri.endIndex)]
        if let authority = authority(of: path) {
            // Without a slash behind it there is no path.
            guard let slash = path[authority...].firstIndex(of: UInt8(ascii: "/")) else { return nil }
            path = path[slash...]
        }
        let last = path.lastIndex(of: UInt8(ascii: "/")).map { path[($0 + 1)...] } ?? path
        let name = percentDecoded(last)
        let isName = !name.isEmpty && !name.contains(0) && !name.contains(UInt8(ascii: "/"))
        return isName && name != [UInt8](".".utf8) && name != [UInt8]("..".utf8) ? name : nil
    }

    /// Where the authority begins, behind the first `//` at the start or after the scheme's colon.
    private static func authority(of path: ArraySlice<UInt8>) -> Int? {
        let scheme = path.prefix { $0 != UInt8(ascii: ":") && $0 != UInt8(ascii: "/") }
        var start = scheme.endIndex
        if start < path.endIndex, path[start] == UInt8(ascii: ":") { start += 1 }
        return path[start...].starts(with: "//".utf8) && (start > scheme.endIndex || scheme.isEmpty) ? start + 2 : nil
    }

    /// `%` without two digits behind it stays as it is.
    private static func percentDecoded(_ text: ArraySlice<UInt8>) -> [UInt8] {
        var result: [UInt8] = []
        var rest = text
        while let byte = rest.popFirst() {
            let digits = rest.prefix(2).compactMap(Hexadecimal.value)
            if byte == UInt8(ascii: "%"), digits.count == 2 {
                result.append(digits[0] << 4 | digits[1])
                rest = rest.dropFirst(2)
            } else {
                result.append(byte)
            }
        }
        return result
    }
}

/// A key's URI as a message may show it: a `data:` URI holds the key, and a query may hold a token that gets it.
func shownURI(_ uri: [UInt8]) -> String {
    if KeyURI.isData(uri) { return "data:…" }
    guard let query = uri.firstIndex(of: UInt8(ascii: "?")) else { return shown(uri) }
    return shown(uri[..<query]) + "?…"
}
