internal import CLinux
internal import Glibc
package import LinuxSystem
package import SystemPackage
package import VaultCrypto

/// Reads keys from files: in binary or as hexadecimal digits, as the length shows. Any thread.
package enum KeyFile {
    /// Maximum size of a key file or of a key command's output.
    static let maximumSize = 4096

    package struct Found: Sendable {
        package let key: SecretBytes
        /// For the user: an ambiguity in the file, and how it was resolved.
        package let notice: String?
    }

    // MARK: Reading

    /// Reads a key file of the command line, which can be a pipe (`/dev/fd/3`). Blocks until the writer closes it, so only
    /// for use before the mount.
    /// - Throws: `noKey`.
    package static func readOnce(_ path: FilePath, cipher: ViewCipher?) throws(ViewError) -> Found {
        try read("key file \(path.shown)", cipher) { (buffer) throws(StoreError) in
            let file = try open(path, flags: O_RDONLY | O_NOCTTY)
            var count = 0
            while count < buffer.count {
                let piece = buffer.slice(count...)
                let read = try retrying { Glibc.read(file.fd, piece.baseAddress, piece.count) }
                if read == 0 { break }
                count += read
            }
            return count
        }
    }

    /// Reads a key from a file of the user. Follows links. Does not block: the file must be a regular file.
    /// - Throws: `noKey`.
    package static func read(_ path: FilePath, cipher: ViewCipher?) throws(ViewError) -> Found {
        try read("key file \(path.shown)", cipher) { (buffer) throws(StoreError) in
            try open(path, flags: linux_O_PATH).openedRegularFile().read(at: 0, into: buffer)
        }
    }

    /// Reads a key from a regular file inside the source. Follows no links.
    /// - Parameter path: relative to `root`, without `..`.
    /// - Throws: `noKey`.
    package static func read(_ path: [UInt8], in root: Descriptor, cipher: ViewCipher?) throws(ViewError) -> Found {
        try read("key file \(shown(path))", cipher) { (buffer) throws(StoreError) in
            try Descriptor(object: path, in: root).openedRegularFile().read(at: 0, into: buffer)
        }
    }

    private static func open(_ path: FilePath, flags: Int32) throws(StoreError) -> Descriptor {
        Descriptor(owning: try retrying { path.withPlatformString { Glibc.open($0, flags | O_CLOEXEC) } })
    }

    private static func read(
        _ name: String, _ cipher: ViewCipher?,
        fill: (UnsafeMutableRawBufferPointer) throws(StoreError) -> Int
    ) throws(ViewError) -> Found {
        // One byte more than the maximum, to detect a longer file.
        let bytes = WipedBytes(capacity: maximumSize + 1)
        do throws(StoreError) { try bytes.fill(fill) } catch { throw .noKey("cannot read \(name): \(error.reason)") }
        return try bytes.withBytes { (bytes) throws(ViewError) in try parse(bytes, cipher: cipher, name: name) }
    }

    // MARK: Parsing

    /// Parses the bytes of a key file.
    ///
    /// Without a cipher, 32 hexadecimal digits are an AES-128 key. They could be the bytes of an AES-256 key, but a random
    /// key does not consist of digits only.
    /// - Parameters:
    ///   - cipher: nil if a key of any length will do.
    ///   - name: the file's name in messages.
    /// - Throws: `noKey`, with the actual and the expected length.
    package static func parse(_ bytes: [UInt8], cipher: ViewCipher?, name: String) throws(ViewError) -> Found {
        guard bytes.count <= maximumSize else {
            throw .noKey("\(name) has more than \(maximumSize) bytes, where \(expectation(cipher)) is expected")
        }
        let sizes = cipher.map { [$0.keySize] } ?? ViewCipher.allCases.map(\.keySize)
        // First, because 32 digits without a cipher are AES-128. With one size, no length is ambiguous.
        if let key = try hexadecimal(bytes, sizes: sizes) { return Found(key: key, notice: nil) }
        if sizes.contains(bytes.count) {
            // Without this notice, an AES-128 key in hexadecimal given for AES-256 would fail without a hint.
            let looksWrong = bytes.count == ViewCipher.aes256CBC.keySize && bytes.allSatisfy(isDigit)
            return Found(
                key: bytes.withUnsafeBytes { SecretBytes(copying: $0) },
                notice: looksWrong ? "\(name): 32 hexadecimal digits are taken as the 32 bytes of a key" : nil)
        }
        let newline = bytes.last != UInt8(ascii: "\n") ? 0 : bytes.dropLast().last == UInt8(ascii: "\r") ? 2 : 1
        if newline > 0, sizes.contains(bytes.count - newline) {
            return Found(
                key: bytes.dropLast(newline).withUnsafeBytes { SecretBytes(copying: $0) },
                notice: "\(name): \(bytes.count) bytes are taken as a key without the newline at the end")
        }
        throw .noKey("\(name) has \(bytes.count) bytes, which is not \(expectation(cipher))")
    }

    private static func expectation(_ cipher: ViewCipher?) -> String {
        guard let cipher else { return "a key of 16, 24 or 32 bytes, or twice as many hexadecimal digits" }
        return "a key of \(cipher.keySize) bytes or \(2 * cipher.keySize) hexadecimal digits"
    }

    private static func isDigit(_ byte: UInt8) -> Bool { Hexadecimal.value(of: byte) != nil }

    /// The key if the bytes are its digits, optionally with `0x` before and white space behind them.
    private static func hexadecimal(_ bytes: [UInt8], sizes: [Int]) throws(ViewError) -> SecretBytes? {
        let end = bytes.lastIndex { !" \t\r\n".utf8.contains($0) } ?? -1
        let digits = Hexadecimal.withoutPrefix(bytes[...end]) ?? bytes[...end]
        guard sizes.contains(where: { 2 * $0 == digits.count }), digits.allSatisfy(isDigit) else { return nil }
        return try ViewError.ofCrypto { () throws(CryptoError) in
            try SecretBytes(count: digits.count / 2) { key in
                for (index, digit) in digits.enumerated() {
                    key[index / 2] = key[index / 2] << 4 | (Hexadecimal.value(of: digit) ?? 0)
                }
            }
        }
    }
}
