/// How an hls view shows a file of its source: the one decision about it, made from all that speaks of the file. The text of each
/// playlist, the lines of `mount` and `status`, and the exit code of `export` are read from it, so they cannot
/// contradict what is shown.
package enum HlsDecision: Sendable {
    /// A playlist, shown rewritten: `HlsIndex.open` returns the text. `size` is its length in bytes. Nil until it was
    /// rendered.
    case playlist(size: UInt64?)
    /// Plaintext in the source, too, because a playlist names it where no key is in force.
    case clear
    /// Decrypted as these parts.
    case chains(HlsSegment)
    /// The samples inside are decrypted, as the boxes say.
    case samples(HlsSamples)
    /// Not shown, and why.
    case refused(ViewError)
    /// Shown as it is in the source, because no playlist names it as a segment.
    case asItIs
    /// Shown as it is in the source, with the key lines of all that name it, and why.
    case left(String)

    /// True if the mount decrypts the file, or refuses what it cannot decrypt of it. Then a reference needs no key. Anything
    /// else keeps its keys, even if another line says that it is plaintext.
    var isDecrypted: Bool {
        switch self {
        case .chains, .samples: true
        case .clear, .playlist, .refused, .asItIs, .left: false
        }
    }

    /// True if bytes that a tag names under a key, not as a segment, are plaintext in the mount: they lie within what is
    /// decrypted as one chain, or samples of the file are.
    /// - Parameters:
    ///   - bytes: ciphertext offsets. Nil for the whole file.
    ///   - size: bytes of the file.
    func shows(_ bytes: Range<UInt64>?, _ form: HlsClaim.Form, size: UInt64) -> Bool {
        switch self {
        case .chains(let segment):
            form == .chain
                && segment.parts.contains { part in
                    let (whole, named) = (part.bytes ?? 0..<size, bytes ?? 0..<size)
                    return whole.lowerBound <= named.lowerBound && named.upperBound <= whole.upperBound
                }
        case .samples: form == .samples
        case .clear, .playlist, .refused, .asItIs, .left: false
        }
    }
}
