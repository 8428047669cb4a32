internal import LinuxSystem
internal import VaultCrypto

/// What a file at the destination is called until it is whole: `.vaultfs-export-FILE-CONTENT`, both 16 hexadecimal digits
/// of a SHA-256: of the name that it will have, and of which source it is made of and how.
struct PartialName: Equatable {
    private static let prefix = Array(".vaultfs-export-".utf8)
    private static let digits = 16

    let file: [UInt8]
    let content: [UInt8]

    init(file: [UInt8], content: String) throws(CryptoError) {
        self.file = try Self.digest(file)
        self.content = try Self.digest(Array(content.utf8))
    }

    /// Nil for any other name.
    init?(_ name: [UInt8]) {
        let parts = name.dropFirst(Self.prefix.count).split(
            separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
        guard name.starts(with: Self.prefix), parts.count == 2, parts.allSatisfy({ $0.count == Self.digits }) else {
            return nil
        }
        file = Array(parts[0])
        content = Array(parts[1])
    }

    var bytes: [UInt8] { Self.prefix + file + [UInt8(ascii: "-")] + content }

    private static func digest(_ bytes: [UInt8]) throws(CryptoError) -> [UInt8] {
        Array(Hexadecimal.encode(try Sha256.digest(bytes).prefix(digits / 2)).utf8)
    }
}
