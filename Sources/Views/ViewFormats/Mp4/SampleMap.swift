/// An MP4 file whose samples are encrypted in place: the plaintext has the length of the file, and each byte its offset.
/// Any thread.
struct SampleMap: Sendable {
    let index: Mp4Index
    let keys: ContentKeys
    /// Bytes of the file.
    let length: UInt64
}
