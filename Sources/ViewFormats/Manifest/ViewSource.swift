internal import CLinux
internal import FileSystem
package import Glibc
package import LinuxSystem
internal import SystemPackage

/// What a view is of: a tree of source files, or one file, how they are encrypted, and where their keys come from. Any
/// thread.
package final class ViewSource: Sendable {
    /// The source directory, or the one that the source file is in; open for reading.
    package let root: Descriptor
    package let format: ViewFormat
    /// The entry of `root` that is shown; nil: all.
    package let onlyName: [UInt8]?
    package let keys: KeyStore
    private let manifest: ViewManifest?
    private let index: HlsIndex?
    private let hasSharedKey: Bool

    /// - Parameter hasSharedKey: whether the key store has the view's one key.
    /// - Throws: `.malformed` where `view.json` is for another format; `.store`.
    package init(
        root: Descriptor, onlyName: [UInt8]? = nil, format: ViewFormat, manifest: ViewManifest?, keys: KeyStore,
        hasSharedKey: Bool
    ) throws(ViewError) {
        if let manifest, manifest.format != format.name {
            throw .malformed("view.json is for the format \(manifest.format), not for \(format.name)")
        }
        self.root = root
        self.onlyName = onlyName
        self.format = format
        self.manifest = manifest
        self.keys = keys
        self.hasSharedKey = hasSharedKey
        index = format.layout == .hls ? HlsIndex(root: root) : nil
    }

    /// Looks at the whole tree, where the format needs that.
    package func scan() throws(StoreError) {
        try index?.scan()
    }

    /// What does not work in the playlists, for people.
    package var problems: [String] { index?.problems().map(\.description) ?? [] }

    /// Whether the view shows this entry.
    package func shows(_ name: [UInt8], inRoot isRoot: Bool) -> Bool {
        guard isRoot else { return true }
        if let onlyName { return name == onlyName }
        return manifest == nil || name != ViewManifest.fileName
    }

    /// Whether keys are worth fetching as soon as a directory was listed: not the one that is here already, and none that
    /// costs a derivation for each file.
    package var fetchesAhead: Bool { format.layout != .openssl && !(hasSharedKey && manifest == nil) }

    /// Bytes of plaintext, where that is known without opening the file.
    /// - Parameter path: relative to the root.
    package func knownLength(_ status: stat, path: () -> [UInt8]) -> UInt64? {
        guard let index else { return nil }
        let size = UInt64(max(0, status.st_size))
        switch index.content(of: FileIdentity(status), size: size, path: path()) {
        case .plain, .failed: return size
        case .playlist(let size): return size
        case .segment: return nil
        }
    }

    /// How a file is to be read.
    /// - Parameters:
    ///   - path: relative to the root.
    ///   - status: of `source`.
    /// - Throws: `.malformed`, `.noKey`, `.store`.
    package func plan(for path: [UInt8], _ source: SourceFile, _ status: stat) throws(ViewError) -> FilePlan {
        if let index { return try hlsPlan(for: path, status, index) }
        let entry = try manifest?.entry(for: path)
        let cipher = entry?.cipher ?? format.cipher
        if format.layout == .openssl {
            guard entry?.key == nil, entry?.vector == nil else {
                throw .malformed("view.json gives a key or an initial vector, but openssl makes both of the passphrase")
            }
            let cipher = cipher ?? .aes256CBC
            let salt = try OpenSSLSalt(of: source).bytes
            return FilePlan(
                layout: .salted, keyNames: [.derived(salt: salt, cipher: cipher)], cipher: cipher, path: path)
        }
        let name = KeyName.ofFile(path, entry: entry, hasSharedKey: hasSharedKey, cipher: format.cipher)
        return FilePlan(layout: try layout(entry), keyNames: [name], cipher: cipher, path: path)
    }

    private func layout(_ entry: ViewManifest.Entry?) throws(ViewError) -> FilePlan.Layout {
        let vector = entry?.vector ?? format.vector
        switch format.layout {
        case .chunks(let size):
            return .chunks(size: entry?.chunkSize ?? size, vector ?? .zero, format.padding)
        case .stream(let isVectorInFile):
            if let vector = entry?.vector { return .stream(vector, format.padding) }
            guard isVectorInFile || vector != nil else {
                throw .malformed("no initial vector: give --iv or --iv-in-file, or name one in view.json")
            }
            return .stream(isVectorInFile ? nil : vector, format.padding)
        case .openssl, .hls:
            preconditionFailure("internal error: no layout of its own")
        }
    }

    private func hlsPlan(for path: [UInt8], _ status: stat, _ index: HlsIndex) throws(ViewError) -> FilePlan {
        let (identity, size) = (FileIdentity(status), UInt64(max(0, status.st_size)))
        if HlsIndex.isPlaylistName(path), let plan = try playlistPlan(for: path, readAs: path, index) { return plan }
        switch index.content(of: identity, size: size, path: path) {
        case .playlist:
            // By a name that is no playlist's: what a link leads to that is one.
            let name = index.playlistPath(of: identity)
            if let name, let plan = try playlistPlan(for: path, readAs: name, index) { return plan }
            return FilePlan(layout: .plain, keyNames: [], cipher: nil, path: path)
        case .plain:
            return FilePlan(layout: .plain, keyNames: [], cipher: nil, path: path)
        case .segment(let segment):
            return FilePlan(
                layout: .segment(segment), keyNames: segment.keys.map { KeyName($0) }, cipher: .aes128CBC, path: path)
        case .failed(let error):
            throw error
        }
    }

    /// Nil where the file is no playlist.
    private func playlistPlan(
        for path: [UInt8], readAs name: [UInt8], _ index: HlsIndex
    ) throws(ViewError) -> FilePlan? {
        guard let playlist = try index.open(name) else { return nil }
        let names = playlist.needed.flatMap { $0.segment.keys.map { KeyName($0) } }
        return FilePlan(layout: .playlist(playlist, index.tree), keyNames: names, cipher: .aes128CBC, path: path)
    }

    /// A file with a playlist's name was looked up: it may be new, or another.
    package func wasLookedUp(_ path: () -> [UInt8], name: [UInt8]) {
        if let index, HlsIndex.isPlaylistName(name) { index.refresh(path()) }
    }
}

extension KeyName {
    init(_ name: HlsKeyName) {
        self = .uri(name.uri, directory: name.directory)
    }
}
