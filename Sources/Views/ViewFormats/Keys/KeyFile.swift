internal import CLinux
internal import Glibc
package import LinuxSystem
package import SystemPackage
internal import VaultCrypto

/// Reads keys from files, in binary or hexadecimal digits, which the length distinguishes. Any thread.
package enum KeyFile {
    /// Maximum size of a key file or of a key command's output.
    static let maximumSize = 4096

    // MARK: Reading

    /// Reads a key file named on the command line, which can be a pipe (`/dev/fd/3`). Call it before the mount only,
    /// because it blocks until the writer closes the pipe.
    /// - Throws: `noKey`.
    package static func readOnce(_ path: FilePath, cipher: ViewCipher?) throws(ViewError) -> KeyMaterial {
        try read("key file \(path.shown)", cipher) { (buffer) throws(StoreError) in
            let file = try Descriptor(path: path, flags: O_RDONLY | O_NOCTTY)
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

    /// Reads a key from a file of the user. Follows links. Cannot block, because the file must be a regular file.
    /// - Throws: `noKey`.
    package static func read(_ path: FilePath, cipher: ViewCipher?) throws(ViewError) -> KeyMaterial {
        try read("key file \(path.shown)", cipher) { (buffer) throws(StoreError) in
            try Descriptor(path: path, flags: linux_O_PATH).openedRegularFile().read(at: 0, into: buffer)
        }
    }

    /// Reads a key from a regular file inside the source. Follows no links.
    /// - Parameter path: relative to `root`, without `..`.
    /// - Throws: `noKey`.
    package static func read(_ path: [UInt8], in root: Descriptor, cipher: ViewCipher?) throws(ViewError) -> KeyMaterial
    {
        try read("key file \(shown(path))", cipher) { (buffer) throws(StoreError) in
            try Descriptor(object: path, in: root).openedRegularFile().read(at: 0, into: buffer)
        }
    }

    private static func read(
        _ name: String, _ cipher: ViewCipher?,
        fill: (UnsafeMutableRawBufferPointer) throws(StoreError) -> Int
    ) throws(ViewError) -> KeyMaterial {
        // Read one byte more than the maximum, to detect a longer file.
        let bytes = WipedBytes(capacity: maximumSize + 1)
        do throws(StoreError) { try bytes.fill(fill) } catch { throw .noKey("cannot read \(name): \(error.reason)") }
        return try bytes.withBytes { (bytes) throws(ViewError) in try parse(bytes, cipher: cipher, name: name) }
    }

    // MARK: Parsing

    /// Parses the bytes of a key file.
    ///
    /// Without a cipher, 32 hexadecimal digits are an AES-128 key. They could be the bytes of an AES-256 key, but a
    /// random key does not consist of digits only.
    /// - Parameters:
    ///   - cipher: nil if a key of any length will do.
    ///   - name: the file's name in messages.
    /// - Throws: `noKey`, with the actual and the expected length.
    package static func parse(_ bytes: [UInt8], cipher: ViewCipher?, name: String) throws(ViewError) -> KeyMaterial {
        guard bytes.count <= maximumSize else {
            throw .noKey("\(name) has more than \(maximumSize) bytes, where \(expectation(cipher)) is expected")
        }
        let sizes = cipher.map { [$0.keySize] } ?? ViewCipher.allCases.map(\.keySize)
        // Try digits first, because 32 digits without a cipher are AES-128. With one size, a length is never ambiguous.
        if let key = try hexadecimal(bytes, sizes: sizes) { return KeyMaterial(key: key) }
        if isBase64(bytes) { throw .noKey("\(name) looks like a key in base64: decode it with 'base64 -d'") }
        let newline = bytes.last != UInt8(ascii: "\n") ? 0 : bytes.dropLast().last == UInt8(ascii: "\r") ? 2 : 1
        for end in [0, newline] where sizes.contains(bytes.count - end) {
            return KeyMaterial(key: bytes.dropLast(end).withUnsafeBytes { SecretBytes(copying: $0) })
        }
        throw .noKey("\(name) has \(bytes.count) bytes, which is not \(expectation(cipher))")
    }

    private static func expectation(_ cipher: ViewCipher?) -> String {
        guard let cipher else { return "a key of 16, 24 or 32 bytes, or twice as many hexadecimal digits" }
        return "a key of \(cipher.keySize) bytes or \(2 * cipher.keySize) hexadecimal digits"
    }

    /// Returns true for 16 or 32 bytes in base64, which can have the length of another key. Unlike a binary key of
    /// text, they end with a padding character.
    private static func isBase64(_ bytes: [UInt8]) -> Bool {
        let end = bytes.lastIndex { !" \t\r\n".utf8.contains($0) } ?? -1
        let text = bytes[...end]
        let padding = text.reversed().prefix { $0 == UInt8(ascii: "=") }.count
        return (text.count, padding) == (24, 2) || (text.count, padding) == (44, 1)
            ? text.dropLast(padding).allSatisfy { Base64.standard.isDigit($0) || Base64.url.isDigit($0) } : false
    }

    private static func isDigit(_ byte: UInt8) -> Bool { Hexadecimal.value(of: byte) != nil }

    /// Returns the key if the bytes are its digits, optionally with `0x` before and white space after them.
    private static func hexadecimal(_ bytes: [UInt8], sizes: [Int]) throws(ViewError) -> SecretBytes? {
        let end = bytes.lastIndex { !" \t\r\n".utf8.contains($0) } ?? -1
        let digits = Hexadecimal.withoutPrefix(bytes[...end]) ?? bytes[...end]
        guard sizes.contains(where: { 2 * $0 == digits.count }), digits.allSatisfy(isDigit) else { return nil }
        return try ViewError.ofCrypto(
            SecretBytes(count: digits.count / 2) { key in
                for (index, digit) in digits.enumerated() {
                    key[index / 2] = key[index / 2] << 4 | (Hexadecimal.value(of: digit) ?? 0)
                }
            })
    }
}

/// The sources of a view's keys. Any thread. Loading blocks.
package struct KeySources: Sendable {
    /// Derives a key from the passphrase, for a salt and a cipher. Throws `noKey` if the passphrase is forgotten.
    package typealias Derivation = @Sendable ([UInt8], ViewCipher) throws(ViewError) -> KeyMaterial

    /// The source directory.
    let root: Descriptor
    /// `--key URI=FILE`, with absolute paths.
    let uriFiles: [[UInt8]: FilePath]
    /// The files of `uriFiles` with identifiers of keys for URIs.
    private let idFiles: [KeyID: FilePath]
    let command: KeyCommand?
    let derive: Derivation?

    package init(
        root: Descriptor, uriFiles: [[UInt8]: FilePath] = [:], command: KeyCommand? = nil, derive: Derivation? = nil
    ) {
        self.root = root
        self.uriFiles = uriFiles
        idFiles = Dictionary(
            uriFiles.compactMap { name, path in KeyID(text: name).map { ($0, path) } }, uniquingKeysWith: { $1 })
        self.command = command
        self.derive = derive
    }

    /// Reads, derives or asks for a key. Blocks for little more than the key command's timeout, unless the disk hangs.
    /// - Throws: `noKey`, with the key's subject and the tried sources.
    func load(_ name: KeyName) throws(ViewError) -> KeyMaterial {
        do throws(ViewError) {
            switch name {
            case .shared: throw .noKey("the view's key is not in memory: unlock the view")
            case .manifest(let path, let cipher): return try manifestKey(path, cipher: cipher)
            case .path(let path, let cipher):
                guard let command else { throw .noKey("give --key-file or --key-command, or name one in view.json") }
                return try command.key(for: .path(path), cipher: cipher)
            case .uri(let uri, let directory, let cipher):
                return try uriKey(uri, directory: directory, cipher: cipher)
            case .derived(let salt, let cipher):
                guard let derive else { throw .noKey("no passphrase was given") }
                return try derive(salt, cipher)
            case .content(let id, let uri, let isOfURI, let directory):
                return try contentKey(id, isOfURI ? uri : nil, command: uri, directory: directory)
            }
        } catch .noKey(let reason) {
            switch name {
            case .path(let path, _): throw .noKey("no key for \(shown(path)): \(reason)")
            case .uri(let uri, _, _): throw .noKey("no key for \(HlsURI.text(uri)): \(reason)")
            case .content(let id, let uri, _, _):
                throw .noKey("no key for \(id.text)\(uri.map { ", " + HlsURI.text($0) } ?? ""): \(reason)")
            case .shared, .manifest, .derived: throw .noKey(reason)
            }
        }
    }

    /// Returns true if the key comes from the key command.
    func asksCommand(for name: KeyName) -> Bool {
        if case .uri(let uri, _, _) = name, HlsURI.isData(uri) { return false }
        return command != nil && name.mayComeFromCommand && givenFile(of: name) == nil
    }

    /// Returns the file of `--key` for a key.
    func givenFile(of name: KeyName) -> FilePath? {
        switch name {
        case .uri(let uri, _, _): uriFiles[uri]
        case .content(let id, let uri, let isOfURI, _): idFiles[id] ?? (isOfURI ? uri.flatMap { uriFiles[$0] } : nil)
        case .shared, .manifest, .path, .derived: nil
        }
    }

    private func manifestKey(_ path: [UInt8], cipher: ViewCipher?) throws(ViewError) -> KeyMaterial {
        if path.first == UInt8(ascii: "/") {
            return try KeyFile.read(withCString(path) { FilePath(platformString: $0) }, cipher: cipher)
        }
        return try KeyFile.read(path, in: root, cipher: cipher)
    }

    /// Reads the key from the first configured source: `--key`, the URI itself, `--key-command`, a file in the source.
    private func uriKey(_ uri: [UInt8], directory: [UInt8], cipher: ViewCipher) throws(ViewError) -> KeyMaterial {
        if let file = uriFiles[uri] { return try KeyFile.read(file, cipher: cipher) }
        if HlsURI.isData(uri) {
            guard let bytes = HlsURI.data(uri) else { throw .noKey("its base64 does not parse") }
            return try KeyFile.parse(bytes, cipher: cipher, name: "the key in the playlist")
        }
        if let command { return try command.key(for: .uri(uri), cipher: cipher) }
        let paths = HlsURI.keyPaths(uri, directory: directory)
        do throws(ViewError) {
            if let path = first(of: paths) {
                return try KeyFile.read(path, in: root, cipher: cipher)
            }
            if paths.isEmpty { throw .noKey("it names no file") }
            throw .noKey("there is no key file \(paths.map { shown($0) }.joined(separator: " or "))")
        } catch .noKey(let reason) {
            throw .noKey("\(reason), and neither --key nor --key-command is given for it")
        }
    }

    /// Reads the key from the first configured of these: `--key`, the URI itself, `--key-command`, the file `KID.key`
    /// beside the file or the playlist, the file named by the URI.
    /// - Parameters:
    ///   - uri: nil unless it names this key alone.
    ///   - all: the URI for the command.
    private func contentKey(
        _ id: KeyID, _ uri: [UInt8]?, command all: [UInt8]?, directory: [UInt8]
    ) throws(ViewError) -> KeyMaterial {
        let cipher = ViewCipher.aes128CBC
        if let file = idFiles[id] ?? uri.flatMap({ uriFiles[$0] }) { return try KeyFile.read(file, cipher: cipher) }
        // In systems other than the identity format, the data is not a key, and has another length.
        if let uri, HlsURI.isData(uri), let bytes = HlsURI.data(uri),
            let key = try? KeyFile.parse(bytes, cipher: cipher, name: "the key in the playlist")
        {
            return key
        }
        if let command { return try command.key(for: .content(id, uri: all), cipher: cipher) }
        let path = joinedPath(directory, Array("\(id.text).key".utf8))
        let paths = [path] + (uri.map { HlsURI.keyPaths($0, directory: directory) } ?? [])
        guard let found = first(of: paths) else {
            throw .noKey("there is no key file \(shown(path)), and neither --key nor --key-command is given for it")
        }
        return try KeyFile.read(found, in: root, cipher: cipher)
    }

    /// The keys of `--key KID=FILE`.
    var given: Set<KeyID> { Set(idFiles.keys) }

    /// Returns the stamp of the source's file with a key of a playlist; nil for a key from elsewhere.
    func stamp(of name: KeyName) -> FileStamp? {
        guard case .uri(let uri, let directory, _) = name, command == nil, uriFiles[uri] == nil, !HlsURI.isData(uri),
            let path = first(of: HlsURI.keyPaths(uri, directory: directory))
        else { return nil }
        return (try? Descriptor(object: path, in: root).status()).map { FileStamp($0) }
    }

    private func first(of paths: [[UInt8]]) -> [UInt8]? { paths.first { !isMissing($0) } }

    private func isMissing(_ path: [UInt8]) -> Bool {
        do throws(StoreError) {
            _ = try Descriptor(object: path, in: root)
            return false
        } catch {
            return error == .system(.noSuchFileOrDirectory) || error == .system(.notDirectory)
        }
    }
}
