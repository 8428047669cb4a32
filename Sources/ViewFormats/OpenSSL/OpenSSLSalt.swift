internal import LinuxSystem

/// The salt at the start of a file of `openssl enc`: `Salted__` and 8 bytes (openssl-enc(1)).
package struct OpenSSLSalt: Equatable, Sendable {
    static let headerSize: UInt64 = 16
    static let missing = ViewError.malformed(
        "the file has no Salted__ header: not made by openssl enc with a passphrase")
    private static let magic = Array("Salted__".utf8)

    package let bytes: [UInt8]

    /// Reads the first 16 bytes of a file. Any thread. Throws `.malformed`, `.store`.
    package init(of source: SourceFile) throws(ViewError) {
        guard source.size > 0 else { throw .malformed("the file is empty: it has no Salted__ header") }
        guard source.size >= Self.headerSize else { throw Self.missing }
        var header = [UInt8](repeating: 0, count: Int(Self.headerSize))
        try header.withMutableBytes { (header) throws(ViewError) in try source.read(at: 0, into: header) }
        guard header.starts(with: Self.magic) else { throw Self.missing }
        bytes = Array(header[Self.magic.count...])
    }
}
