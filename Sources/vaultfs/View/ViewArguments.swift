internal import ArgumentParser
internal import Glibc
internal import SystemPackage
internal import VaultCrypto
internal import ViewFormats

/// The formats of views.
enum ViewFormatName: String, CaseIterable, ExpressibleByArgument, Sendable {
    case cbcChunks = "cbc-chunks"
    case cbc
    case openssl
    case hls
}

/// What makes a key of a passphrase.
enum ViewKdf: String, CaseIterable, ExpressibleByArgument, Sendable {
    case sha256
}

extension ViewCipher: ExpressibleByArgument {}
extension OpenSSLDigest: ExpressibleByArgument {}

/// How the files of a source are encrypted, and where their keys are: for a mount and for `export`.
struct ViewArguments: Sendable {
    let formatName: ViewFormatName
    var options: ViewOptions

    /// Whether a passphrase has to be read.
    var takesPassphrase: Bool { formatName == .openssl || options.kdf != nil }
}

/// The same as options, whatever the format.
struct ViewOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The cipher; without it, the key's length tells (openssl: aes-256-cbc).", valueName: "cipher"))
    var cipher: ViewCipher?

    @Option(
        help: ArgumentHelp("cbc-chunks: bytes of plaintext in a piece; 16M unless given.", valueName: "size"))
    var chunkSize: ByteSize?

    @Option(
        help: ArgumentHelp(
            "The key: binary or hexadecimal digits, told apart by length. A pipe will do.", valueName: "file"))
    var keyFile: PathArgument?

    @Option(
        help: ArgumentHelp(
            "Take a passphrase and make the key of it: sha256 is its SHA-256, an AES-256 key.", valueName: "kdf"))
    var kdf: ViewKdf?

    @Option(
        help: ArgumentHelp(
            "Run a command with /bin/sh for each key; it finds VAULTFS_KEY_URI or VAULTFS_KEY_PATH in its environment and prints the key.",
            valueName: "cmd"))
    var keyCommand: String?

    @Option(
        help: ArgumentHelp(
            "hls: the key of this URI is in this file; may be given several times.", valueName: "uri=file"))
    var key: [UriKeyArgument] = []

    @Option(
        help: ArgumentHelp(
            "The initial vector, 32 hexadecimal digits (cbc-chunks: zero unless given).", valueName: "hex"))
    var iv: VectorArgument?

    @Flag(help: "cbc: the initial vector is the first 16 bytes of each file.")
    var ivInFile = false

    @Option(
        help: ArgumentHelp("cbc, cbc-chunks: pkcs7 or none.", valueName: "padding"),
        completion: .list(["pkcs7", "none"]))
    var padding: CipherChain.Padding = .pkcs7

    @Option(
        help: ArgumentHelp(
            "openssl: derive keys with PBKDF2, so many iterations ('openssl enc -pbkdf2' alone: 10000).",
            valueName: "n"))
    var pbkdf2Iterations: Int?

    @Option(help: ArgumentHelp("openssl: the digest of the derivation ('openssl enc -md').", valueName: "digest"))
    var digest: OpenSSLDigest?
}

/// `--key URI=FILE`. The file's path has no `=` that is not within it: the URI ends at the last `=`, unless the whole
/// of what follows an earlier one is a file.
struct UriKeyArgument: ExpressibleByArgument, Sendable {
    let uri: [UInt8]
    var path: FilePath

    init?(argument: String) {
        let bytes = ProcessArguments.bytes(of: argument)
        let ends = bytes.indices.filter { bytes[$0] == UInt8(ascii: "=") }
        let candidates = ends.map { end in (uri: Array(bytes[..<end]), path: Array(bytes[(end + 1)...])) }
            .filter { !$0.uri.isEmpty && !$0.path.isEmpty && !$0.path.contains(0) }
        let existing = candidates.first { candidate in
            FilePath(bytes: candidate.path).withPlatformString { access($0, F_OK) == 0 }
        }
        guard let chosen = existing ?? candidates.last else { return nil }
        uri = chosen.uri
        path = FilePath(bytes: chosen.path)
    }
}

/// `--iv HEX`
struct VectorArgument: ExpressibleByArgument, Sendable {
    let vector: InitialVector

    init?(argument: String) {
        guard let vector = InitialVector(hexadecimal: Array(argument.utf8)) else { return nil }
        self.vector = vector
    }
}

extension CipherChain.Padding: ExpressibleByArgument {
    package init?(argument: String) {
        switch argument {
        case "pkcs7": self = .pkcs7
        case "none": self = .none
        default: return nil
        }
    }
}
