/// The one decision about a file in an hls view, from everything that speaks of the file. The text of each playlist,
/// the lines of `mount` and `status`, and the exit code of `export` follow from it, so they never contradict it.
package enum HlsDecision: Sendable {
    /// A playlist, shown rewritten: `HlsIndex.open` returns the text. `size` is its bytes; nil before the first
    /// rendering.
    case playlist(size: UInt64?)
    /// Plaintext in the source, too, because a playlist names it where no key is in force.
    case clear
    /// Decrypted as these parts.
    case chains(HlsSegment)
    /// The samples inside are decrypted, as described by the boxes.
    case samples(HlsSamples)
    /// Not shown, for this reason.
    case refused(ViewError)
    /// Shown as it is in the source, because no playlist names it as a segment.
    case asItIs
    /// Shown as it is in the source, with the key lines of all that name it, for this reason.
    case left(String)

    /// True if the mount decrypts the file, or refuses its undecryptable parts. Then a reference needs no key. Any
    /// other file keeps its keys, even if another line declares it to be plaintext.
    var isDecrypted: Bool {
        switch self {
        case .chains, .samples: true
        case .clear, .playlist, .refused, .asItIs, .left: false
        }
    }

    /// Returns true if bytes named by a tag under a key, but not as a segment, are plaintext in the mount: they lie
    /// within one decrypted chain, or the file's samples are decrypted.
    /// - Parameters:
    ///   - bytes: ciphertext offsets; nil for the whole file.
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
