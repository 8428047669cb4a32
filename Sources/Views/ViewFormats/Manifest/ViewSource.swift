package import Glibc
package import LinuxSystem

/// The source of a view: a directory or one file, the encryption of its files, and their keys. Any thread.
package final class ViewSource: Sendable {
    /// The source directory, or the directory of the source file. Open for reading.
    package let root: Descriptor
    package let format: ViewFormat
    /// The entry of `root` that is shown. Nil for all entries.
    package let onlyName: [UInt8]?
    package let keys: KeyStore
    /// The end of a file's name that the view leaves out, such as `.enc`, so that programs know the type. Empty for none.
    package let strippedSuffix: [UInt8]
    private let manifest: ViewManifest?
    private let index: HlsIndex?
    private let hasSharedKey: Bool

    /// - Parameters:
    ///   - manifest: for the same format.
    ///   - hasSharedKey: true if the key store has one key for the whole view.
    package init(
        root: Descriptor, onlyName: [UInt8]? = nil, format: ViewFormat, manifest: ViewManifest?, keys: KeyStore,
        hasSharedKey: Bool, strippedSuffix: [UInt8] = []
    ) {
        self.root = root
        self.onlyName = onlyName
        self.format = format
        self.manifest = manifest
        self.keys = keys
        self.hasSharedKey = hasSharedKey
        self.strippedSuffix = strippedSuffix
        index = format.layout == .hls ? HlsIndex(root: root) : nil
    }

    /// Reads all playlists, for hls.
    /// - Throws: `.system` with errno of the source's directories.
    package func scan() throws(StoreError) {
        try index?.scan()
        index?.findStrays()
    }

    /// Lines for people about encrypted content that hls shows as it is: one for each playlist and each directory.
    package var left: [(path: [UInt8], text: String)] { index?.left() ?? [] }

    /// The defects of the playlists, for people.
    package var problems: [String] { index?.problems() ?? [] }

    /// True for hls if the scan found no playlist.
    package var lacksPlaylists: Bool { index.map(\.isEmpty) ?? false }

    /// The keys that playlists name or that are given, and that cannot be read, a line each for people. Does not ask the key
    /// command.
    package func missingKeys() -> [String] { keys.missing(index?.keyNames() ?? []) }

    /// True if the view shows this entry.
    package func shows(_ name: [UInt8], inRoot isRoot: Bool) -> Bool {
        guard isRoot else { return true }
        if let onlyName { return name == onlyName }
        return manifest == nil || name != ViewManifest.fileName
    }

    /// True if a listing of a directory prefetches the keys of its files. False for `openssl`, where each key takes a
    /// slow derivation.
    package var prefetchesListed: Bool { format.layout != .openssl && !(hasSharedKey && manifest == nil) }

    /// Bytes of plaintext. Nil if that takes an open.
    /// - Parameter path: relative to the root.
    package func knownLength(_ status: stat, path: () -> [UInt8]) -> UInt64? {
        let size = UInt64(max(0, status.st_size))
        // Samples are decrypted in place.
        if format.layout == .mp4 { return size }
        guard let index else { return nil }
        switch index.content(of: FileIdentity(status), size: size, path: path()) {
        case .plain, .samples, .failed: return size
        case .playlist(let size): return size
        case .segment: return nil
        }
    }

    /// Decides how a file is read.
    /// - Parameters:
    ///   - path: relative to the root.
    ///   - status: of `source`.
    /// - Throws: `.malformed`, `.noKey`, `.store`.
    package func plan(for path: [UInt8], _ source: SourceFile, _ status: stat) throws(ViewError) -> FilePlan {
        if let index { return try hlsPlan(for: path, source, status, index) }
        if format.layout == .mp4 { return try mp4Plan(for: path, source) }
        let entry = try manifest?.entry(for: path)
        let cipher = entry?.cipher ?? format.cipher
        if format.layout == .openssl {
            guard entry?.key == nil, entry?.vector == nil else {
                throw .malformed("view.json gives a key or an initial vector, but openssl derives both")
            }
            let cipher = cipher ?? .aes256CBC
            let salt = try ChainFormat.salt(of: source, otherwise: format.salt)
            return FilePlan(
                layout: .salted(hasHeader: salt.hasHeader), keyNames: [.derived(salt: salt.bytes, cipher: cipher)],
                cipher: cipher, path: path)
        }
        let name = KeyName.ofFile(path, entry: entry, hasSharedKey: hasSharedKey, cipher: format.cipher)
        return FilePlan(layout: try layout(entry), keyNames: [name], cipher: cipher, path: path)
    }

    private func layout(_ entry: ViewManifest.Entry?) throws(ViewError) -> FilePlan.Layout {
        let vector = entry?.vector ?? format.vector
        switch format.layout {
        case .chunks(let size): return .chunks(size: entry?.chunkSize ?? size, vector ?? .zero, format.padding)
        case .stream(let isVectorInFile):
            if let vector = entry?.vector { return .stream(vector, format.padding) }
            guard isVectorInFile || vector != nil else {
                throw .malformed("no initial vector: give --iv or --iv-in-file, or name one in view.json")
            }
            return .stream(isVectorInFile ? nil : vector, format.padding)
        case .openssl, .hls, .mp4: preconditionFailure("internal error: \(format.name) has no layout")
        }
    }

    private func mp4Plan(for path: [UInt8], _ source: SourceFile) throws(ViewError) -> FilePlan {
        let naming = ContentKeys.Naming(directory: HlsURI.directory(of: path), given: keys.given)
        guard let plan = try Mp4Plan.read(source, naming) else { return .plain(path) }
        return FilePlan(
            layout: .samples(plan), keyNames: try plan.keyNames(source), cipher: .aes128CBC, path: path)
    }

    /// The plan of a file whose playlist has `SAMPLE-AES` keys.
    private func samplesPlan(
        for path: [UInt8], _ source: SourceFile, _ samples: HlsSamples
    ) throws(ViewError) -> FilePlan {
        guard try Mp4Plan.isMp4(source) else {
            // A WebVTT file, or a clear segment.
            if !samples.hasKey { return .plain(path) }
            if try SourceInspection(of: source).isSubtitles { return .plain(path) }
            throw .malformed("SAMPLE-AES in MPEG-TS or packed audio is not supported, only in MP4")
        }
        let naming = ContentKeys.Naming(uri: samples.uri, directory: samples.directory, given: keys.given)
        let plan = try Mp4Plan.read(source, naming) { () throws(ViewError) in
            guard let initial = samples.initial, initial != path else { return nil }
            return try ViewError.ofStore { () throws(StoreError) in
                let file = try root.regularFile(beneath: initial)
                return SourceFile(file, try file.status())
            }
        }
        guard let plan else { return .plain(path) }
        return FilePlan(
            layout: .samples(plan), keyNames: try plan.keyNames(source, isKeyed: samples.hasKey), cipher: .aes128CBC,
            path: path)
    }

    private func hlsPlan(
        for path: [UInt8], _ source: SourceFile, _ status: stat, _ index: HlsIndex
    ) throws(ViewError) -> FilePlan {
        if HlsIndex.isPlaylistName(path), let plan = try playlistPlan(for: path, readAs: path, index) { return plan }
        let identity = FileIdentity(status)
        switch index.content(of: identity, size: UInt64(max(0, status.st_size)), path: path) {
        case .playlist:
            // A playlist under another name, to which a link leads.
            if let name = index.playlistPath(of: identity), let plan = try playlistPlan(for: path, readAs: name, index)
            {
                return plan
            }
        case .plain: break
        case .segment(let segment):
            // Some downloaders decrypt segments, and keep the playlist.
            if !segment.isRanged, try SourceInspection.isPlaintext(source) { break }
            return FilePlan(layout: .segment(segment), keyNames: segment.keys, cipher: nil, path: path)
        case .samples(let samples): return try samplesPlan(for: path, source, samples)
        case .failed(let error): throw error
        }
        return .plain(path)
    }

    /// Nil if the file is not a playlist.
    private func playlistPlan(
        for path: [UInt8], readAs name: [UInt8], _ index: HlsIndex
    ) throws(ViewError) -> FilePlan? {
        guard let playlist = try index.open(name) else { return nil }
        return FilePlan(
            layout: .playlist(playlist), keyNames: playlist.needed.flatMap(\.segment.keys), cipher: nil,
            path: path)
    }

    /// Reads a playlist that a lookup has found, if it is new or has changed.
    package func wasLookedUp(_ path: () -> [UInt8], name: [UInt8]) {
        if let index, HlsIndex.isPlaylistName(name) { index.refresh(path()) }
    }
}
