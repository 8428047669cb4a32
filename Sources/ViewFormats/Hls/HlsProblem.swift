/// Something in a playlist that does not work, for people to read.
package struct HlsProblem: Hashable, Sendable {
    /// Of the playlist, relative to the source.
    package var path: [UInt8]
    /// Counted from 1; 0: the whole of it.
    package var line: Int
    package var text: String

    /// `path:line: text`.
    package var description: String { "\(HlsPlace(path: path, line: line)): \(text)" }
}
