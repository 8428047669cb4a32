internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore
internal import ViewFileSystem
internal import ViewFormats

/// The encryption of a source's files and the sources of their keys, for a mount and for `export`.
struct ViewArguments: Codable, Sendable {
    private static let defaultChunkSize: UInt64 = 16 << 20

    let formatName: ViewFormatName
    let format: ViewFormat
    let origin: ViewSecrets.Origin
    let keyFile: FilePath?
    let keyCommand: String?
    let keys: [ViewKeyArgument]
    /// The suffix, in UTF-8.
    let strippedSuffix: String

    /// - Parameter options: with absolute paths.
    init(formatName: ViewFormatName, options: ViewOptions) {
        self.formatName = formatName
        let layout: ViewFormat.Layout =
            switch formatName {
            case .cbcChunks: .chunks(size: options.chunkSize.map { UInt64($0.bytes) } ?? Self.defaultChunkSize)
            case .cbc: .stream(isVectorInFile: options.ivInFile)
            case .openssl: .openssl
            case .hls: .hls
            case .mp4: .mp4
            }
        format = ViewFormat(
            layout: layout, cipher: options.cipher, vector: options.iv, padding: options.padding,
            salt: options.salt?.bytes)
        if formatName == .openssl {
            let digest = options.digest ?? .sha256
            origin = .passphrase(
                options.pbkdf2Iterations.map { .pbkdf2(digest, iterations: $0) } ?? .bytesToKey(digest))
        } else if options.kdf != nil {
            origin = .hashedPassphrase
        } else {
            origin = options.keyFile.map { .keyFile($0.path, options.cipher) } ?? .none
        }
        keyFile = options.keyFile?.path
        keyCommand = options.keyCommand
        keys = options.key
        strippedSuffix = options.strip ?? (formatName == .openssl ? ViewOptions.usualSuffix : "")
    }

    /// True if the command must read a passphrase.
    var needsPassphrase: Bool {
        switch origin {
        case .passphrase, .hashedPassphrase: true
        case .keyFile, .none: false
        }
    }

    func check(_ passphrase: PassphraseOptions) throws(CommandFailure) {
        guard !needsPassphrase, let given = passphrase.given.first else { return }
        throw CommandFailure(.usage, "\(given.option) is for openssl, and for a key that --kdf makes")
    }

    /// Opens the source. Checks that it can have a playlist's segments, and that there are keys.
    func location(_ path: FilePath) throws -> ViewLocation {
        let location = try ViewLocation(path)
        if formatName == .hls, let name = location.onlyName {
            let directory = path.removingLastComponent().quotedForShell
            throw CommandFailure(
                .usage,
                "\(FilePath(bytes: name).shown) is a file, and hls takes the directory that it is in, with its segments: "
                    + "vaultfs view hls \(directory) MOUNTPOINT")
        }
        let configuration = VaultDirectory.configurationEntry
        if location.onlyName == nil, (try? location.root.status(of: configuration)) != nil {
            throw CommandFailure(.usage, "\(path.shown) is a vault: vaultfs mount \(path.quotedForShell) MOUNTPOINT")
        }
        try check(location.manifest())
        return location
    }

    /// Checks that the daemon, and an unlock after a forgetting lock, can read the key file again.
    func checkKeyFileStays() throws(CommandFailure) {
        guard let keyFile else { return }
        // Allow a missing file, which is reported when it is read.
        guard let status = try? Descriptor(path: keyFile, flags: linux_O_PATH).status(),
            status.st_mode & S_IFMT != S_IFREG
        else { return }
        throw CommandFailure(
            .usage,
            "--key-file \(keyFile.shown) is a pipe, which no unlock can read again: give a file, or keep the keys (--on-lock refuse, lock without --forget)"
        )
    }

    /// Checks that there are keys and an initial vector.
    private func check(_ manifest: ViewManifest?) throws(CommandFailure) {
        if let manifest, manifest.format != formatName {
            throw CommandFailure(
                .failure, "view.json is for the format \(manifest.format.rawValue), not for \(formatName.rawValue)")
        }
        guard manifest == nil, formatName == .cbc || formatName == .cbcChunks else { return }
        if keyFile == nil && !needsPassphrase && keyCommand == nil {
            throw CommandFailure(
                .usage, "no key: give --key-file, --key-command or --kdf, or name keys in a view.json in the source")
        }
        if formatName == .cbc && format.vector == nil && format.layout != .stream(isVectorInFile: true) {
            throw CommandFailure(.usage, "no initial vector: give --iv or --iv-in-file, or name them in a view.json")
        }
    }

    /// Opens the view of a source.
    /// - Parameters:
    ///   - keyFile: the key of `--key-file`, if given.
    ///   - log: called with the errors of the key command.
    func source(
        _ location: ViewLocation, secrets: ViewSecrets, keyFile: SecretBytes, log: @escaping @Sendable (String) -> Void
    ) throws -> ViewSource {
        let manifest = try location.manifest()
        try check(manifest)
        let shared = try secrets.sharedKey(keyFile)
        let sources = KeySources(
            root: location.root, uriFiles: Dictionary(keys.map { ($0.uri, $0.path) }) { _, last in last },
            command: keyCommand.map { KeyCommand(ProcessArguments.bytes(of: $0), log: log) },
            derive: { [weak secrets] (salt, cipher) throws(ViewError) in
                guard let secrets else { throw .store(.locked) }
                return try secrets.derive(salt: salt, cipher: cipher)
            })
        return ViewSource(
            root: location.root, onlyName: location.onlyName, format: format, manifest: manifest,
            keys: KeyStore(sources, shared: shared), hasSharedKey: shared != nil,
            strippedSuffix: Array(strippedSuffix.utf8))
    }

    /// Reads the passphrase or key of the files. Returns an empty secret if they need none.
    func readSecret(_ passphrase: PassphraseOptions) throws -> SecretBytes {
        if needsPassphrase { return try passphrase.read(isFirstLine: formatName == .openssl).bytes }
        guard let keyFile else { return SecretBytes(copying: UnsafeRawBufferPointer(start: nil, count: 0)) }
        if let file = try? Descriptor(path: keyFile, flags: linux_O_PATH) {
            SecretWarning.checkMode(of: file, path: keyFile)
        }
        return try KeyFile.readOnce(keyFile, cipher: format.cipher).key
    }
}
