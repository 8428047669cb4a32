/// What a file of an hls view is.
package enum HlsContent: Sendable {
    /// No playlist says that it is encrypted: shown as it is.
    case plain
    /// Shown rewritten: `HlsIndex.open` gives the text. `size` is its length in bytes; nil where that takes keys.
    case playlist(size: UInt64?)
    case segment(HlsSegment)
    case failed(ViewError)
}
