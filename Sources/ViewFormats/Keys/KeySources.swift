package import LinuxSystem
package import SystemPackage
internal import VaultCrypto

/// Where the keys of a view come from. Any thread; loading blocks.
package struct KeySources: Sendable {
    /// Derives a key from the passphrase: salt, cipher. `noKey` where the passphrase is forgotten.
    package typealias Derivation = @Sendable ([UInt8], ViewCipher) throws(ViewError) -> KeyMaterial

    /// The source directory.
    let root: Descriptor
    /// `--key URI=FILE`; absolute paths.
    let uriFiles: [[UInt8]: FilePath]
    let command: KeyCommand?
    let derive: Derivation?
    /// Told what the user should know about a key file.
    let notice: @Sendable (String) -> Void

    package init(
        root: Descriptor, uriFiles: [[UInt8]: FilePath] = [:], command: KeyCommand? = nil, derive: Derivation? = nil,
        notice: @escaping @Sendable (String) -> Void
    ) {
        self.root = root
        self.uriFiles = uriFiles
        self.command = command
        self.derive = derive
        self.notice = notice
    }

    /// Reads, derives or asks for a key: for at most the key command's limit and a bit, if the disk answers.
    /// - Throws: `noKey` with whose key it is and what was tried.
    func load(_ name: KeyName) throws(ViewError) -> KeyMaterial {
        switch name {
        case .shared:
            throw .noKey("the view's key is not here: unlock the view")
        case .manifest(let path, let cipher):
            return try material(manifestKey(path, cipher: cipher))
        case .path(let path, let cipher):
            guard let command else {
                throw .noKey("no key for \(shown(path)): give --key-file or --key-command, or name one in view.json")
            }
            return try naming(shown(path)) { () throws(ViewError) in
                try command.key(for: .path(path), cipher: cipher)
            }
        case .uri(let uri, let directory):
            return try naming(shownURI(uri)) { () throws(ViewError) in
                try uriKey(uri, directory: directory)
            }
        case .derived(let salt, let cipher):
            guard let derive else { throw .noKey("no passphrase was given") }
            return try derive(salt, cipher)
        }
    }

    private func manifestKey(_ path: [UInt8], cipher: ViewCipher?) throws(ViewError) -> KeyFile.Found {
        if path.first == UInt8(ascii: "/") {
            return try KeyFile.read(withCString(path) { FilePath(platformString: $0) }, cipher: cipher)
        }
        return try KeyFile.read(path, in: root, cipher: cipher)
    }

    /// The first of the ways that is open decides: `--key`, `--key-command`, a file in the source.
    private func uriKey(_ uri: [UInt8], directory: [UInt8]) throws(ViewError) -> KeyFile.Found {
        let cipher = ViewCipher.aes128CBC
        if let file = uriFiles[uri] { return try KeyFile.read(file, cipher: cipher) }
        if KeyURI.isData(uri) {
            throw .noKey("the playlist holds the key itself, which is not supported: give it as a file with --key")
        }
        if let command { return try command.key(for: .uri(uri), cipher: cipher) }
        do throws(ViewError) {
            return try keyInside(KeyURI.paths(of: uri, from: directory), cipher: cipher)
        } catch .noKey(let reason) {
            throw .noKey("\(reason), and neither --key nor --key-command is given for it")
        }
    }

    /// The first of these files of the source that is there.
    private func keyInside(_ paths: [[UInt8]], cipher: ViewCipher) throws(ViewError) -> KeyFile.Found {
        if let path = paths.first(where: { !isMissing($0) }) {
            return try KeyFile.read(path, in: root, cipher: cipher)
        }
        if paths.isEmpty { throw .noKey("it names no file") }
        throw .noKey("there is no key file \(paths.map { shown($0) }.joined(separator: " or "))")
    }

    private func isMissing(_ path: [UInt8]) -> Bool {
        do throws(StoreError) {
            _ = try Descriptor.place(of: path, in: root)
            return false
        } catch {
            return error == .system(.noSuchFileOrDirectory) || error == .system(.notDirectory)
        }
    }

    private func material(_ found: KeyFile.Found) -> KeyMaterial {
        if let notice = found.notice { self.notice(notice) }
        return KeyMaterial(key: found.key)
    }

    /// Says whose key it is that is not to be had.
    private func naming(
        _ subject: String, _ body: () throws(ViewError) -> KeyFile.Found
    ) throws(ViewError) -> KeyMaterial {
        do throws(ViewError) {
            return material(try body())
        } catch .noKey(let reason) {
            throw .noKey("no key for \(subject): \(reason)")
        }
    }
}
