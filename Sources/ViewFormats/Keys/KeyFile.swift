internal import FileSystem
internal import Glibc
internal import LinuxSystem
package import VaultCrypto
internal import VaultFormat

/// Key files: a key in binary or as hexadecimal digits, told apart by length. Any thread.
package enum KeyFile {
    /// The most bytes that are read of a file or of a command's output.
    static let maximumSize = 4096

    package struct Found: Sendable {
        package let key: SecretBytes
        /// What the user should know about how the file was understood.
        package let notice: String?
    }

    private enum Ending: Int {
        case lf = 1
        case crlf = 2
    }

    /// The key in the bytes of a file.
    ///
    /// Without a cipher, 32 hexadecimal digits are a key of AES-128, though they might be the bytes of one of AES-256:
    /// nobody has met a random key that is all digits.
    /// - Parameters:
    ///   - cipher: whose key it is; nil where any length does.
    ///   - name: what messages call the file.
    /// - Throws: `noKey` with the length that it has and what was expected.
    package static func parse(
        _ bytes: UnsafeRawBufferPointer, cipher: ViewCipher?, name: String
    ) throws(ViewError) -> Found {
        guard bytes.count <= maximumSize else {
            throw .noKey("\(name) has more than \(maximumSize) bytes, where \(expectation(cipher)) is expected")
        }
        let sizes = cipher.map { [$0.keySize] } ?? ViewCipher.allCases.map(\.keySize)
        // First, for the sake of the 32 digits: with one size in question, no length is both.
        if let found = try hexadecimal(bytes, sizes: sizes) { return found }
        if sizes.contains(bytes.count) {
            // 32 digits where 32 bytes are wanted: a key of AES-128 in hex for AES-256 would otherwise fail without a hint.
            let looksWrong = bytes.count == ViewCipher.aes256CBC.keySize && bytes.allSatisfy(isDigit)
            return Found(
                key: SecretBytes(copying: bytes),
                notice: looksWrong ? "\(name): 32 hexadecimal digits are taken as the 32 bytes of a key" : nil)
        }
        if let ending = ending(of: bytes), sizes.contains(bytes.count - ending.rawValue) {
            let key = UnsafeRawBufferPointer(rebasing: bytes.dropLast(ending.rawValue))
            return Found(
                key: SecretBytes(copying: key),
                notice: "\(name): \(bytes.count) bytes are taken as a key without the newline at the end")
        }
        throw .noKey("\(name) has \(bytes.count) bytes, which is not \(expectation(cipher))")
    }

    private static func expectation(_ cipher: ViewCipher?) -> String {
        guard let cipher else { return "a key of 16, 24 or 32 bytes, or twice as many hexadecimal digits" }
        return "a key of \(cipher.keySize) bytes or \(2 * cipher.keySize) hexadecimal digits"
    }

    private static func ending(of bytes: UnsafeRawBufferPointer) -> Ending? {
        guard bytes.last == UInt8(ascii: "\n") else { return nil }
        return bytes.dropLast().last == UInt8(ascii: "\r") ? .crlf : .lf
    }

    private static func isDigit(_ byte: UInt8) -> Bool { Hexadecimal.value(of: byte) != nil }

    /// The key where the bytes are its digits: `0x` before them and white space behind them are allowed.
    private static func hexadecimal(
        _ bytes: UnsafeRawBufferPointer, sizes: [Int]
    ) throws(ViewError) -> Found? {
        let blanks = [UInt8](" \t\r\n".utf8)
        var digits = bytes[...]
        while let last = digits.last, blanks.contains(last) { digits.removeLast() }
        if digits.starts(with: "0x".utf8) || digits.starts(with: "0X".utf8) { digits.removeFirst(2) }
        guard sizes.contains(where: { 2 * $0 == digits.count }), digits.allSatisfy(isDigit) else { return nil }
        let first = digits.startIndex
        do throws(CryptoError) {
            let key = try SecretBytes(count: digits.count / 2) { key in
                for index in key.indices {
                    let high = Hexadecimal.value(of: digits[first + 2 * index]) ?? 0
                    let low = Hexadecimal.value(of: digits[first + 2 * index + 1]) ?? 0
                    key[index] = high << 4 | low
                }
            }
            return Found(key: key, notice: nil)
        } catch {
            throw .store(StoreError(error))
        }
    }
}
