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
