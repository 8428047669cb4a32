internal import FileSystem
internal import LinuxSystem
internal import VaultCrypto

/// What is being written is called `.vaultfs-transfer-` and 16 hexadecimal digits until it is whole.
package enum TemporaryName {
    private static let prefix = Array(".vaultfs-transfer-".utf8)
    private static let digits = 16

    /// Of a file in a destination that was made for a transfer which has not ended: none is drawn so.
    static let mark = prefix + Array(String(repeating: "0", count: digits).utf8)

    static func make() throws(StoreError) -> [UInt8] {
        let number: UInt64
        do { number = try SecureRandom.integer() } catch { throw StoreError(error) }
        return prefix + Array(Hexadecimal.encode(number).utf8)
    }

    /// Whether it can only be a name of this kind.
    package static func isOne(_ name: [UInt8]) -> Bool {
        name.count == prefix.count + digits && name.starts(with: prefix)
            && name.dropFirst(prefix.count).allSatisfy { Array("0123456789abcdef".utf8).contains($0) }
    }
}
