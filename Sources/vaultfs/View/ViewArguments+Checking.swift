internal import ArgumentParser
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import ViewFormats

extension ViewArguments {
    /// That the options given belong to the format.
    func validate() throws {
        for option in options.given where !option.formats.contains(formatName) {
            throw ValidationError("\(option.name) is not for \(formatName.rawValue)")
        }
    }

    func check(_ passphrase: PassphraseOptions) throws(CommandFailure) {
        guard !takesPassphrase, let given = passphrase.sources.first else { return }
        throw CommandFailure(.usage, "\(given) is for openssl, and for a key that --kdf makes")
    }

    /// That what a playlist refers to is there with it.
    func check(_ place: ViewPlace) throws(CommandFailure) {
        guard formatName == .hls, let name = place.onlyName else { return }
        throw CommandFailure(
            .usage, "\(FilePath(bytes: name).shown) is a file: hls takes the directory that it is in, with its segments"
        )
    }

    /// That the key file can be read again, by another process and after a lock that forgets.
    func checkKeyFileStays() throws(CommandFailure) {
        guard let path = options.keyFile?.path else { return }
        var status = stat()
        // One that is not there is told of when it is read.
        guard path.withPlatformString({ stat($0, &status) }) == 0, status.st_mode & S_IFMT != S_IFREG else { return }
        throw CommandFailure(
            .usage,
            "--key-file \(path.shown) is a pipe, which no unlock can read again: give a file, or --on-lock refuse")
    }

    /// That there is something to have keys from, and an initial vector.
    func check(_ manifest: ViewManifest?) throws(CommandFailure) {
        if let manifest, manifest.format != formatName.rawValue {
            throw CommandFailure(
                .failure, "view.json is for the format \(manifest.format), not for \(formatName.rawValue)")
        }
        guard manifest == nil, formatName == .cbc || formatName == .cbcChunks else { return }
        if options.keyFile == nil && options.kdf == nil && options.keyCommand == nil {
            throw CommandFailure(
                .usage, "no key: give --key-file, --key-command or --kdf, or name keys in a view.json in the source")
        }
        if formatName == .cbc && options.iv == nil && !options.ivInFile {
            throw CommandFailure(.usage, "no initial vector: give --iv or --iv-in-file, or name them in a view.json")
        }
    }
}

extension ViewOptions {
    /// The options that are not for every format, as far as they are given.
    var given: [(name: String, formats: Set<ViewFormatName>)] {
        let all: [(name: String, isGiven: Bool, formats: Set<ViewFormatName>)] = [
            ("--cipher", cipher != nil, [.cbcChunks, .cbc, .openssl]),
            ("--chunk-size", chunkSize != nil, [.cbcChunks]),
            ("--key-file", keyFile != nil, [.cbcChunks, .cbc]),
            ("--kdf", kdf != nil, [.cbcChunks, .cbc]),
            ("--key-command", keyCommand != nil, [.cbcChunks, .cbc, .hls]),
            ("--key", !key.isEmpty, [.hls]),
            ("--iv", iv != nil, [.cbcChunks, .cbc]),
            ("--iv-in-file", ivInFile, [.cbc]),
            ("--padding", padding != .pkcs7, [.cbcChunks, .cbc]),
            ("--pbkdf2-iterations", pbkdf2Iterations != nil, [.openssl]),
            ("--digest", digest != nil, [.openssl]),
        ]
        return all.filter(\.isGiven).map { ($0.name, $0.formats) }
    }

    /// That they belong to each other.
    func validate() throws {
        try PassphraseOptions.checkSingle(
            [keyFile == nil ? nil : "--key-file", kdf == nil ? nil : "--kdf"].compactMap { $0 })
        if iv != nil && ivInFile { throw ValidationError("only one of --iv, --iv-in-file can be given") }
        if let cipher, kdf != nil, cipher != .aes256CBC {
            throw ValidationError("--kdf sha256 makes a key of aes-256-cbc, not of \(cipher.rawValue)")
        }
        try validateNumbers()
    }

    private func validateNumbers() throws {
        if let size = chunkSize?.bytes {
            guard 1...(1 << 40) ~= size else { throw ValidationError("--chunk-size \(size) is not in 1…1T") }
            guard padding == .pkcs7 || size % 16 == 0 else {
                throw ValidationError("--chunk-size \(size) without padding is not a multiple of 16")
            }
        }
        if let iterations = pbkdf2Iterations, !OpenSSLKeyDerivation.iterations.contains(iterations) {
            throw ValidationError("--pbkdf2-iterations \(iterations) is not in \(OpenSSLKeyDerivation.iterations)")
        }
    }
}
