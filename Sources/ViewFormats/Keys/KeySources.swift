package import LinuxSystem
package import SystemPackage

/// The sources of a view's keys. Any thread. Loading blocks.
package struct KeySources: Sendable {
    /// Derives a key from the passphrase, for a salt and a cipher. Throws `noKey` if the passphrase is forgotten.
    package typealias Derivation = @Sendable ([UInt8], ViewCipher) throws(ViewError) -> KeyMaterial

    /// The source directory.
    let root: Descriptor
    /// `--key URI=FILE`, with absolute paths.
    let uriFiles: [[UInt8]: FilePath]
    let command: KeyCommand?
    let derive: Derivation?
    /// Receives notices about key files for the user.
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

    /// Reads, derives or asks for a key. Blocks for little more than the key command's timeout at most, unless the disk
    /// hangs.
    /// - Throws: `noKey`, with the key's subject and what was tried.
    func load(_ name: KeyName) throws(ViewError) -> KeyMaterial {
        do throws(ViewError) {
            let found: KeyFile.Found
            switch name {
            case .shared: throw .noKey("the view's key is not in memory: unlock the view")
            case .manifest(let path, let cipher): found = try manifestKey(path, cipher: cipher)
            case .path(let path, let cipher):
                guard let command else { throw .noKey("give --key-file or --key-command, or name one in view.json") }
                found = try command.key(for: .path(path), cipher: cipher)
            case .uri(let uri, let directory): found = try uriKey(uri, directory: directory)
            case .derived(let salt, let cipher):
                guard let derive else { throw .noKey("no passphrase was given") }
                return try derive(salt, cipher)
            }
            if let notice = found.notice { self.notice(notice) }
            return KeyMaterial(key: found.key)
        } catch .noKey(let reason) {
            switch name {
            case .path(let path, _): throw .noKey("no key for \(shown(path)): \(reason)")
            case .uri(let uri, _): throw .noKey("no key for \(HlsURI.shownKey(uri)): \(reason)")
            case .shared, .manifest, .derived: throw .noKey(reason)
            }
        }
    }

    private func manifestKey(_ path: [UInt8], cipher: ViewCipher?) throws(ViewError) -> KeyFile.Found {
        if path.first == UInt8(ascii: "/") {
            return try KeyFile.read(withCString(path) { FilePath(platformString: $0) }, cipher: cipher)
        }
        return try KeyFile.read(path, in: root, cipher: cipher)
    }

    /// The first of these that is configured decides: `--key`, `--key-command`, a file in the source.
    private func uriKey(_ uri: [UInt8], directory: [UInt8]) throws(ViewError) -> KeyFile.Found {
        let cipher = ViewCipher.aes128CBC
        if let file = uriFiles[uri] { return try KeyFile.read(file, cipher: cipher) }
        if HlsURI.isData(uri) {
            throw .noKey("the playlist holds the key itself, which is not supported: give it as a file with --key")
        }
        if let command { return try command.key(for: .uri(uri), cipher: cipher) }
        let paths = HlsURI.keyPaths(uri, directory: directory)
        do throws(ViewError) {
            if let path = paths.first(where: { !isMissing($0) }) {
                return try KeyFile.read(path, in: root, cipher: cipher)
            }
            if paths.isEmpty { throw .noKey("it names no file") }
            throw .noKey("there is no key file \(paths.map { shown($0) }.joined(separator: " or "))")
        } catch .noKey(let reason) {
            throw .noKey("\(reason), and neither --key nor --key-command is given for it")
        }
    }

    private func isMissing(_ path: [UInt8]) -> Bool {
        do throws(StoreError) {
            _ = try Descriptor(object: path, in: root)
            return false
        } catch {
            return error == .system(.noSuchFileOrDirectory) || error == .system(.notDirectory)
        }
    }
}
