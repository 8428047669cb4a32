internal import ArgumentParser
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import ViewFormats

/// A function for deriving a key from a passphrase.
enum ViewKdf: String, CaseIterable, ExpressibleByArgument, Sendable {
    case sha256
}

extension ViewFormatName: ExpressibleByArgument {}
extension ViewCipher: ExpressibleByArgument {}
extension OpenSSLDigest: ExpressibleByArgument {}
extension CipherChain.Padding: ExpressibleByArgument {}

/// The options of all formats together.
struct ViewOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "cbc-chunks, cbc, openssl: default by the key's length, or aes-256-cbc.", valueName: "cipher"))
    var cipher: ViewCipher?

    @Option(help: ArgumentHelp("cbc-chunks: bytes of plaintext in a piece; default: 16M.", valueName: "size"))
    var chunkSize: ByteSize?

    @Option(
        help: ArgumentHelp(
            "cbc-chunks, cbc: the key, binary or in hexadecimal digits; its length shows which. A pipe is allowed.",
            valueName: "file"))
    var keyFile: PathArgument?

    @Option(
        help: ArgumentHelp(
            "cbc-chunks, cbc: make the key of a passphrase: sha256 is its SHA-256, an AES-256 key.", valueName: "kdf"))
    var kdf: ViewKdf?

    @Option(
        help: ArgumentHelp(
            "Not for openssl: run a command with /bin/sh for each key, such as 'get-key -- \"$VAULTFS_KEY_URI\"', or VAULTFS_KEY_PATH. It prints the key.",
            valueName: "cmd"))
    var keyCommand: String?

    @Option(
        help: ArgumentHelp(
            "hls, mp4: the key of this URI or key ID is in this file; may be given several times.",
            valueName: "uri=file"))
    var key: [ViewKeyArgument] = []

    @Option(
        help: ArgumentHelp(
            "cbc-chunks, cbc, openssl: the initial vector, 32 hexadecimal digits (cbc-chunks: default zero; openssl: default derived).",
            valueName: "hex"))
    var iv: InitialVector?

    @Flag(help: "cbc: the initial vector is the first 16 bytes of each file.")
    var ivInFile = false

    @Option(help: ArgumentHelp("cbc, cbc-chunks: pkcs7 or none.", valueName: "padding"))
    var padding: CipherChain.Padding = .pkcs7

    @Flag(help: "openssl: keys are derived with PBKDF2, as by 'openssl enc -pbkdf2'.")
    var pbkdf2 = false

    @Option(
        name: [.customLong("iter"), .customLong("pbkdf2-iterations")],
        help: ArgumentHelp("openssl: PBKDF2 with this number of iterations; --pbkdf2 alone: 10000.", valueName: "n"))
    var iterations: Int?

    @Option(
        name: [.customLong("md"), .customLong("digest")],
        help: ArgumentHelp("openssl: the digest of the derivation; default: sha256.", valueName: "digest"))
    var digest: OpenSSLDigest?

    @Option(
        help: ArgumentHelp(
            "openssl: the salt of files without a Salted__ header, up to 16 hexadecimal digits as for 'openssl enc -S'; none: -nosalt.",
            valueName: "salt"))
    var salt: ViewSaltArgument?

    @Option(
        help: ArgumentHelp(
            "cbc-chunks, cbc, openssl: show files without this end of their names, so that programs know the type (openssl: default .enc; '' for none).",
            valueName: "suffix"))
    var strip: String?

    /// The usual suffix for files of `openssl enc`.
    static let usualSuffix = ".enc"

    /// The iterations of PBKDF2; nil if the keys are derived without it.
    var pbkdf2Iterations: Int? { iterations ?? (pbkdf2 ? Self.usualIterations : nil) }

    /// The iterations of 'openssl enc -pbkdf2' without -iter (openssl-enc(1)).
    private static let usualIterations = 10_000

    /// An option, its formats, and a function that returns true if the user gave it.
    typealias Row = (name: String, formats: Set<ViewFormatName>, isGiven: @Sendable (ViewOptions) -> Bool)

    /// The rows. Each option declared above must have one.
    static let rows: [Row] = [
        ("--cipher", [.cbcChunks, .cbc, .openssl], { $0.cipher != nil }),
        ("--chunk-size", [.cbcChunks], { $0.chunkSize != nil }),
        ("--key-file", [.cbcChunks, .cbc], { $0.keyFile != nil }),
        ("--kdf", [.cbcChunks, .cbc], { $0.kdf != nil }),
        ("--key-command", [.cbcChunks, .cbc, .hls, .mp4], { $0.keyCommand != nil }),
        ("--key", [.hls, .mp4], { !$0.key.isEmpty }),
        ("--iv", [.cbcChunks, .cbc, .openssl], { $0.iv != nil }),
        ("--iv-in-file", [.cbc], { $0.ivInFile }),
        ("--padding", [.cbcChunks, .cbc], { $0.padding != .pkcs7 }),
        ("--pbkdf2", [.openssl], { $0.pbkdf2 }),
        ("--iter", [.openssl], { $0.iterations != nil }),
        ("--md", [.openssl], { $0.digest != nil }),
        ("--salt", [.openssl], { $0.salt != nil }),
        ("--strip", [.cbcChunks, .cbc, .openssl], { $0.strip != nil }),
    ]

    var given: [String] { Self.rows.filter { $0.isGiven(self) }.map(\.name) }

    func validate(for format: ViewFormatName) throws {
        for option in Self.rows where option.isGiven(self) && !option.formats.contains(format) {
            throw ValidationError("\(option.name) is not for \(format.rawValue)")
        }
    }

    func validate() throws {
        try SecretSource.checkSingle([keyFile.map { _ in "--key-file" }, kdf.map { _ in "--kdf" }])
        try SecretSource.checkSingle([iv.map { _ in "--iv" }, ivInFile ? "--iv-in-file" : nil])
        if keyCommand?.isEmpty == true { throw ValidationError("--key-command is empty") }
        for key in key where key.isBrokenID {
            throw ValidationError("--key \(shown(key.uri)): a key ID has 32 hexadecimal digits")
        }
        if let cipher, kdf != nil, cipher != .aes256CBC {
            throw ValidationError("--kdf sha256 makes a key of aes-256-cbc, not of \(cipher.rawValue)")
        }
        if let size = chunkSize?.bytes {
            guard 1...(1 << 40) ~= size else { throw ValidationError("--chunk-size \(size) is not in 1…1T") }
            guard padding == .pkcs7 || size % 16 == 0 else {
                throw ValidationError("--chunk-size \(size) without padding is not a multiple of 16")
            }
        }
        if let strip, strip.contains("/") { throw ValidationError("--strip takes the end of a name, without '/'") }
        if let iterations = pbkdf2Iterations, !OpenSSLKeyDerivation.iterations.contains(iterations) {
            throw ValidationError("--iter \(iterations) is not in \(OpenSSLKeyDerivation.iterations)")
        }
    }

    /// Makes the paths absolute, because the daemon's working directory is `/`.
    mutating func makeAbsolute() throws(CommandFailure) {
        if let path = keyFile?.path { keyFile?.path = try Self.absolute(path) }
        for index in key.indices { key[index].path = try Self.absolute(key[index].path) }
    }

    private static func absolute(_ path: FilePath) throws(CommandFailure) -> FilePath {
        path.isAbsolute ? path : try CommandFailure.wrapping("cannot open", path, try ResolvedPath.of(path))
    }
}

/// `--key URI=FILE`. The URI ends at the first `=` before the path of an existing file, or without one at the last `=`.
struct ViewKeyArgument: Codable, ExpressibleByArgument, Sendable {
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
        guard let chosen = existing ?? candidates.last,
            !PathArgument.isUnexpanded(ProcessArguments.text(of: chosen.path))
        else { return nil }
        uri = chosen.uri
        path = FilePath(bytes: chosen.path)
    }

    /// True for a key ID with a digit too many or too few, or a prefix. It would count as a URI, but match no playlist.
    var isBrokenID: Bool {
        let digits = (Hexadecimal.withoutPrefix(uri[...]) ?? uri[...]).filter { $0 != UInt8(ascii: "-") }
        return KeyID(text: uri) == nil && 31...33 ~= digits.count
            && digits.allSatisfy { Hexadecimal.value(of: $0) != nil }
    }
}

/// `--salt HEX`. Fewer than 16 digits are the first ones, as in `openssl enc -S`.
struct ViewSaltArgument: ExpressibleByArgument, Sendable {
    let bytes: [UInt8]

    init?(argument: String) {
        if argument == "none" {
            bytes = []
            return
        }
        let size = OpenSSLKeyDerivation.saltSize
        let digits = argument + String(repeating: "0", count: max(0, 2 * size - argument.utf8.count))
        guard !argument.isEmpty, let bytes = Hexadecimal.decode(digits.utf8), bytes.count == size else { return nil }
        self.bytes = bytes
    }
}

/// `--iv HEX`
extension InitialVector: ExpressibleByArgument {
    package init?(argument: String) { self.init(hexadecimal: Array(argument.utf8)) }
}
