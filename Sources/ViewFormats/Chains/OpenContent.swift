package import FileSystem

/// The plaintext of a file that is open: decrypted from its source as it is read, or the text of a playlist. Any thread.
package enum OpenContent: Sendable {
    case chained(ChainedFile)
    case text([UInt8])

    /// - Parameter token: names what is cached of it.
    package init(_ content: FileContent, of source: SourceFile, token: UInt64, cache: BlockCache, counters: Counters) {
        switch content {
        case .chained(let map, let keys):
            self = .chained(
                ChainedFile(source: source, map: map, keys: keys, token: token, cache: cache, counters: counters))
        case .text(let text):
            self = .text(text)
        }
    }

    /// Bytes.
    package var length: UInt64 {
        switch self {
        case .chained(let file): file.length
        case .text(let text): UInt64(text.count)
        }
    }

    /// Fills `buffer` up to the end of the file; returns the bytes read.
    /// - Throws: as ``ChainedFile/read(at:into:workspace:)``.
    package func read(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, workspace: ViewWorkspace
    ) throws(ViewError) -> Int {
        switch self {
        case .chained(let file):
            return try file.read(at: plaintextOffset, into: buffer, workspace: workspace)
        case .text(let text):
            guard plaintextOffset < UInt64(text.count) else { return 0 }
            let rest = text[Int(plaintextOffset)...].prefix(buffer.count)
            buffer.copyBytes(from: rest)
            return rest.count
        }
    }
}
