import LinuxSystem
import Testing
import VaultCrypto
import VaultFormat

/// The keys of a vault without the vault, as input for the parsers and encoders.
struct TestVault {
    let id: VaultID
    let masterKey: SecretBytes

    init() throws {
        id = try VaultID.random()
        masterKey = try SecretBytes.random(count: 32)
    }

    init(id: VaultID, masterKey: SecretBytes) {
        self.id = id
        self.masterKey = masterKey
    }

    func classCipher(_ protectionClass: ProtectionClass = .complete) throws -> SivCipher {
        try SivCipher(key: try KeyDerivation.classKey(master: masterKey, vault: id, protectionClass))
    }

    func linkCipher(_ protectionClass: ProtectionClass = .complete) throws -> SivCipher {
        try SivCipher(key: try KeyDerivation.linkKey(master: masterKey, vault: id, protectionClass))
    }

    func directory(_ protectionClass: ProtectionClass = .complete) throws -> DirectoryKeys {
        try DirectoryRecord.make(
            protectionClass, isRoot: false, classCipher: try classCipher(protectionClass), vault: id
        ).keys
    }
}

extension SecretBytes {
    var revealed: [UInt8] { withUnsafeBytes { Array($0) } }

    static func copy(_ bytes: [UInt8]) -> SecretBytes { bytes.withUnsafeBytes { SecretBytes(copying: $0) } }
}

extension [UInt8] {
    /// All copies with one bit changed, and the number of that bit.
    var withOneBitChanged: some Sequence<(Int, [UInt8])> {
        (0..<count * 8).lazy.map { bit in
            var damaged = self
            damaged[bit / 8] ^= 1 << UInt8(bit % 8)
            return (bit, damaged)
        }
    }
}

func ascii(_ text: String) -> [UInt8] { Array(text.utf8) }

/// The seconds since 1970 of a time `YYYY-MM-DDThh:mm:ssZ`.
func seconds(_ time: String) throws -> Int64 { try #require(UtcTime.seconds(time.utf8)) }

func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

/// Returns the error thrown by `body`. Nil, and a failed expectation, without an error.
func formatError(
    _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
) -> FormatError? {
    #expect(throws: FormatError.self, comment, sourceLocation: sourceLocation) { try body() }
}
