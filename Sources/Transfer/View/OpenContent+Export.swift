internal import FileSystem
internal import ViewFormats

extension OpenContent {
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
