internal import BackingStore
internal import ViewFormats

/// The plaintext of a file, to be read in order.
enum ExportContent {
    case chained(ChainedFile)
    case text([UInt8])

    /// Bytes.
    var length: UInt64 {
        switch self {
        case .chained(let file): file.length
        case .text(let text): UInt64(text.count)
        }
    }

    /// Fills `buffer` up to the end of the file; returns the bytes read.
    func read(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, _ workspace: ViewWorkspace
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

    /// Where a piece of the file begins that tells whether it was decrypted in the same way: the second chain.
    var secondStart: UInt64 {
        guard case .chained(let file) = self, file.map.count > 1 else { return 0 }
        return file.map[1].plaintext.lowerBound
    }

    /// How it is decrypted, but for the keys. Of more chains than are looked at, the number stands for the rest.
    var description: String {
        guard case .chained(let file) = self else { return "text" }
        let count = file.map.count
        let pieces = (0..<min(count, Self.describedPieces)).map { number in
            let piece = file.map[number]
            return "\(piece.chain.ciphertext) \(piece.plaintext) \(Self.description(of: piece.chain.encryption))"
        }
        return "\(count) chains, \(file.length) bytes\n" + pieces.joined(separator: "\n")
    }

    private static let describedPieces: UInt64 = 4096

    private static func description(of encryption: CipherChain.Encryption?) -> String {
        guard let encryption else { return "plain" }
        let vector =
            switch encryption.vector {
            case .bytes(let vector): "\(vector.high) \(vector.low)"
            case .inFile(let offset): "at \(offset)"
            }
        return "key \(encryption.key), vector \(vector), \(encryption.padding == .none ? "not padded" : "padded")"
    }
}
