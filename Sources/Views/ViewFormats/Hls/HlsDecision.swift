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

    /// True if the mount decrypts the file, or refuses what it cannot decrypt of it. Then a reference needs no key. Anything
    /// else keeps its keys, even if another line says that it is plaintext.
    var isDecrypted: Bool {
        switch self {
        case .chains, .samples: true
        case .clear, .playlist, .refused, .asItIs: false
        }
    }
}
