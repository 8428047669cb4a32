internal import FileSystem
internal import LinuxSystem
internal import VaultCrypto

/// The names of unfinished files: `.vaultfs-transfer-` and 16 random hexadecimal digits. A large file, inside which the
/// next transfer can go on, has `FILE-CONTENT` instead. Each part is 16 digits of a SHA-256: of the file's final name,
/// and of its source's identity, times and decryption.
package enum TemporaryName {
    private static let prefix = Array(".vaultfs-transfer-".utf8)
    private static let digits = 16

    /// The name of a file that marks a destination until the transfer that made it has ended. Never a random name.
    static let mark = prefix + Array(String(repeating: "0", count: digits).utf8)

    static func make() throws(StoreError) -> [UInt8] {
        let number: UInt64
        do { number = try SecureRandom.integer() } catch { throw StoreError(error) }
        return prefix + Array(Hexadecimal.encode(number).utf8)
    }

    static func resumable(_ name: [UInt8], content: String) throws(StoreError) -> [UInt8] {
        do throws(CryptoError) {
            return try prefix + digest(name) + [UInt8(ascii: "-")] + digest(Array(content.utf8))
        } catch {
            throw StoreError(error)
        }
    }

    private static func digest(_ bytes: [UInt8]) throws(CryptoError) -> [UInt8] {
        Array(Hexadecimal.encode(try Sha256.digest(bytes).prefix(digits / 2)).utf8)
    }

    /// True for both forms.
    package static func isOne(_ name: [UInt8]) -> Bool {
        guard name.starts(with: prefix) else { return false }
        let parts = name.dropFirst(prefix.count).split(separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
        return (1...2).contains(parts.count)
            && parts.allSatisfy { part in
                part.count == digits && part.allSatisfy { Array("0123456789abcdef".utf8).contains($0) }
            }
    }

    static func isResumable(_ name: [UInt8]) -> Bool { name.count > prefix.count + digits && isOne(name) }

    /// True if both are resumable names of the same file.
    static func isSameFile(_ one: [UInt8], _ other: [UInt8]) -> Bool {
        isResumable(one) && isResumable(other)
            && one.prefix(prefix.count + digits) == other.prefix(prefix.count + digits)
    }
}
