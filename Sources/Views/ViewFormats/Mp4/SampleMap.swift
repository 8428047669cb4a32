/// An MP4 file with samples encrypted in place. The plaintext has the file's length and offsets. Any thread.
struct SampleMap: Sendable {
    let index: Mp4Index
    let keys: ContentKeys
    /// Bytes of the file.
    let length: UInt64
}
