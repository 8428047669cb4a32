internal import LinuxSystem

extension PlaylistParser {
    /// An `EXT-X-KEY`.
    mutating func key(_ line: Int, _ value: Range<Int>) {
        guard let attributes = PlaylistAttributes(text, in: value), let method = attributes["METHOD"] else {
            keys.isUsed = true
            return fail(line, "EXT-X-KEY has no METHOD, or its attributes do not parse")
        }
        if text[method].elementsEqual("NONE".utf8) {
            // Ends them all: it has no KEYFORMAT.
            keys.identity = nil
            keys.foreign = []
            return
        }
        keys.isUsed = true
        guard text[method].elementsEqual("AES-128".utf8) else {
            return fail(line, "METHOD=\(shown(text[method], limit: 32)) is not supported, only NONE and AES-128 are")
        }
        if let format = attributes["KEYFORMAT"], !text[format].elementsEqual("identity".utf8) {
            keys.foreign.insert(Array(text[format]))
            return
        }
        guard let uri = attributes["URI"], !uri.isEmpty else { return fail(line, "EXT-X-KEY has no URI") }
        var vector: InitialVector?
        if let digits = attributes["IV"] {
            vector = PlaylistValues.vector(text[digits])
            guard vector != nil else {
                return fail(line, "the IV of EXT-X-KEY is not 0x and at most 32 hexadecimal digits")
            }
        }
        keys.identity = (keys.number(of: Array(text[uri])), vector)
    }

    /// How what stands at `line` is encrypted.
    mutating func encryption(_ line: Int) -> Playlist.Encryption? {
        if let (key, vector) = keys.identity {
            return Playlist.Encryption(key: key, vector: vector ?? keys.sequenceVector)
        }
        if let format = keys.foreign.first {
            fail(line, "the only key for it has KEYFORMAT \(shown(format, limit: 64)), which is not supported")
        }
        return nil
    }
}
