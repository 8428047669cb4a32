internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat
internal import ViewFileSystem
internal import ViewFormats

extension ViewArguments {
    private static let defaultChunkSize: UInt64 = 16 << 20

    var format: ViewFormat {
        let layout: ViewFormat.Layout =
            switch formatName {
            case .cbcChunks: .chunks(size: options.chunkSize.map { UInt64($0.bytes) } ?? Self.defaultChunkSize)
            case .cbc: .stream(isVectorInFile: options.ivInFile)
            case .openssl: .openssl
            case .hls: .hls
            }
        return ViewFormat(
            layout: layout, cipher: options.cipher, vector: options.iv?.vector, padding: options.padding)
    }

    var origin: ViewSecrets.Origin {
        if formatName == .openssl {
            let digest = options.digest ?? .sha256
            return .passphrase(options.pbkdf2Iterations.map { .pbkdf2(digest, iterations: $0) } ?? .bytesToKey(digest))
        }
        if options.kdf != nil { return .hashedPassphrase }
        return options.keyFile.map { .keyFile($0.path, options.cipher) } ?? .none
    }

    /// The view of what is at `place`.
    /// - Parameters:
    ///   - keyFile: the key, where `--key-file` was given.
    ///   - log: told what the user should know.
    func source(
        _ place: ViewPlace, secrets: ViewSecrets, keyFile: SecretBytes, log: @escaping @Sendable (String) -> Void
    ) throws -> ViewSource {
        let manifest = try place.manifest()
        try check(manifest)
        let shared = try secrets.sharedKey(keyFile)
        let sources = KeySources(
            root: place.root, uriFiles: Dictionary(options.key.map { ($0.uri, $0.path) }) { _, last in last },
            command: options.keyCommand.map { KeyCommand(ProcessArguments.bytes(of: $0), log: log) },
            derive: { [weak secrets] (salt, cipher) throws(ViewError) in
                guard let secrets else { throw .store(.locked) }
                return try secrets.derive(salt: salt, cipher: cipher)
            }, notice: log)
        return try ViewSource(
            root: place.root, onlyName: place.onlyName, format: format, manifest: manifest,
            keys: KeyStore(sources, shared: shared), hasSharedKey: shared != nil)
    }

    /// The passphrase or key that the files need, empty where they need none.
    func readSecret(_ passphrase: PassphraseOptions) throws -> SecretBytes {
        if takesPassphrase { return try passphrase.passphrase().bytes }
        guard let keyFile = options.keyFile else {
            return SecretBytes(copying: UnsafeRawBufferPointer(start: nil, count: 0))
        }
        let found = try KeyFile.readOnce(keyFile.path, cipher: options.cipher)
        if let notice = found.notice { Console.report(notice) }
        return found.key
    }
}

extension ViewOptions {
    /// Paths as the daemon, which works in `/`, finds them.
    mutating func makeAbsolute() throws(CommandFailure) {
        if let keyFile { self.keyFile = PathArgument(path: try Self.absolute(keyFile.path)) }
        for index in key.indices { key[index].path = try Self.absolute(key[index].path) }
    }

    private static func absolute(_ path: FilePath) throws(CommandFailure) -> FilePath {
        path.isAbsolute ? path : try resolve(path)
    }

    /// The path, absolute and without links.
    static func resolve(_ path: FilePath) throws(CommandFailure) -> FilePath {
        do throws(Errno) { return try ResolvedPath.of(path) } catch {
            throw CommandFailure(.failure, "cannot open \(path.shown): \(error)")
        }
    }

    /// From which the daemon makes the same again; without the format's name.
    var words: [[UInt8]] {
        var words: [String] = []
        if let cipher { words.append("--cipher=\(cipher.rawValue)") }
        if let chunkSize { words.append("--chunk-size=\(chunkSize.bytes)") }
        if let kdf { words.append("--kdf=\(kdf.rawValue)") }
        if let keyCommand { words.append("--key-command=\(keyCommand)") }
        if let iv { words.append("--iv=\(iv.vector.hexadecimal)") }
        if ivInFile { words.append("--iv-in-file") }
        if padding == .none { words.append("--padding=none") }
        if let pbkdf2Iterations { words.append("--pbkdf2-iterations=\(pbkdf2Iterations)") }
        if let digest { words.append("--digest=\(digest.rawValue)") }
        var result = words.map { ProcessArguments.bytes(of: $0) }
        if let keyFile { result.append(Array("--key-file=".utf8) + keyFile.path.bytes) }
        for key in key { result.append(Array("--key=".utf8) + key.uri + [UInt8(ascii: "=")] + key.path.bytes) }
        return result
    }
}
