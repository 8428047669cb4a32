/// Which key is in force while a media playlist is read (RFC 8216, 4.3.2.4 and 5.2).
struct PlaylistKeys {
    /// The URIs, each once.
    private(set) var uris: [[UInt8]] = []
    private var numbers: [[UInt8]: Int] = [:]
    /// Whether there was a key line that does not say `METHOD=NONE`.
    var isUsed = false
    /// The key that a player without DRM takes; a nil vector is the segment's number.
    var identity: (key: Int, vector: InitialVector?)?
    /// The formats of the other keys in force, such as FairPlay's: alone they are of no use here.
    var foreign: Set<[UInt8]> = []
    /// `EXT-X-MEDIA-SEQUENCE`.
    var firstNumber: UInt64 = 0
    private var segments: UInt64 = 0

    mutating func countSegment() {
        segments += 1
    }

    /// The number of the segment that comes next, as 16 bytes.
    var sequenceVector: InitialVector {
        let (low, overflow) = firstNumber.addingReportingOverflow(segments)
        return InitialVector(high: overflow ? 1 : 0, low: low)
    }

    mutating func number(of uri: [UInt8]) -> Int {
        if let number = numbers[uri] { return number }
        uris.append(uri)
        numbers[uri] = uris.count - 1
        return uris.count - 1
    }
}

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
