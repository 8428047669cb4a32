package import Glibc
package import LinuxSystem
internal import Synchronization

/// The source of a view: a directory or one file, the encryption of its files, and their keys. Any thread.
package final class ViewSource: Sendable {
    /// The source directory, or the directory of the source file. Open for reading.
    package let root: Descriptor
    package let format: ViewFormat
    /// The only entry of `root` to show; nil for all entries.
    package let onlyName: [UInt8]?
    package let keys: KeyStore
    /// The end of a file's name left out by the view, such as `.enc`, to show programs the type. Empty for none.
    package let strippedSuffix: [UInt8]
    private let manifest: ViewManifest?
    private let index: HlsIndex?
    private let hasSharedKey: Bool
    /// Stops long computations.
    package let interruption = Interruption()
    private let mp4Work: Mp4Work
    private let knownFilms = Mutex<Films?>(nil)

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
        mp4Work = Mp4Work(interruption)
        self.strippedSuffix = strippedSuffix
        index = format.layout == .hls ? HlsIndex(root: root, keys: keys, work: mp4Work) : nil
    }

    /// Reads all playlists, for hls.
    /// - Parameter isDeep: false to leave out the directories inside the source directory.
    /// - Throws: `.system` with errno of the source's directories.
    package func scan(isDeep: Bool = true) throws(StoreError) {
        try index?.scan(isDeep: isDeep)
        index?.findStrays()
    }

    /// Lines for people about content left encrypted: one for each playlist and each directory of hls, and for each
    /// examined film of mp4 that cannot be decrypted.
    package var left: [(path: [UInt8], text: String)] { index?.left() ?? films()?.left ?? [] }

    /// The defects of the playlists, for people.
    package var problems: [String] { index?.problems() ?? [] }

    /// Returns a line for people for each given or named key that cannot be read, without asking the key command.
    package func missingKeys() -> [String] {
        keys.missing(index?.keyNames() ?? films()?.names ?? [])
    }

    /// The keys named by the boxes of films, and the films that cannot be decrypted.
    private typealias Films = (names: Set<KeyName>, left: [(path: [UInt8], text: String)])

    /// Maximum number of films in `left`.
    private static let maximumLeft = 256

    /// Examines the films once. Returns nil for other formats than mp4.
    private func films() -> Films? {
        guard format.layout == .mp4 else { return nil }
        if let known = knownFilms.withLock({ $0 }) { return known }
        let found = findFilms()
        knownFilms.withLock { $0 = found }
        return found
    }

    /// The time for examining films.
    private static let filmTimeout = Duration.seconds(1)

    /// Examines films for a second at most, because each fragment may name another key.
    private func findFilms() -> Films {
        let end = ContinuousClock.now + Self.filmTimeout
        var films: Films = ([], [])
        // Skip an unreadable file. An open will report it.
        try? SourceWalk(root).run(from: []) { _ in
            onlyName == nil
        } file: { entry, path, directory in
            guard shows(entry.bytes, inRoot: directory.path.isEmpty),
                let status = try? directory.descriptor.status(of: entry), status.st_mode & S_IFMT == S_IFREG,
                let file = try? Descriptor(at: directory.descriptor, entry, flags: O_RDONLY | O_NONBLOCK)
            else { return .now < end }
            let source = SourceFile(file, status)
            let naming = ContentKeys.Naming(directory: HlsURI.directory(of: path), given: keys.given)
            do throws(ViewError) {
                if case .protected(let plan) = try Mp4Plan.read(source, naming, mp4Work) {
                    films.names.formUnion(try plan.allKeyNames(source, until: end))
                }
            } catch .malformed(let reason) {
                if films.left.count < Self.maximumLeft { films.left.append((path, reason)) }
            } catch {
                // Skip the failure. If it lasts, an open will report it.
            }
            return .now < end
        }
        return films
    }

    /// True if the view shows this entry.
    package func shows(_ name: [UInt8], inRoot isRoot: Bool) -> Bool {
        guard isRoot else { return true }
        if let onlyName { return name == onlyName }
        return manifest == nil || name != ViewManifest.fileName
    }

    /// True if a listing of a directory prefetches the keys of its files. False for `openssl`, where each key needs a
    /// slow derivation, and without a manifest if all files share a key.
    package var prefetchesListed: Bool { format.layout != .openssl && !(hasSharedKey && manifest == nil) }

    /// The largest playlist, in bytes, whose text a listing makes to show its size.
    private static let largestListed: UInt64 = 256 << 10

    /// Returns the bytes of plaintext, or nil if that takes an open. For a large unopened playlist, the source's.
    /// - Parameter path: relative to the root.
    package func knownLength(_ status: stat, path: () -> [UInt8]) -> UInt64? {
        let size = UInt64(max(0, status.st_size))
        // The length stays, because samples are decrypted in place.
        if format.layout == .mp4 { return size }
        guard let index else { return nil }
        switch index.decision(on: FileIdentity(status), size: size, path: path()) {
        case .clear, .asItIs, .left, .samples, .refused: return size
        case .playlist(let shown): return shown ?? (size > Self.largestListed ? size : nil)
        case .chains: return nil
        }
    }

    /// Returns the plan to read a file, by ``decision(on:_:_:)``.
    /// - Throws: `.malformed`, `.noKey`, `.store`.
    package func plan(for path: [UInt8], _ source: SourceFile) throws(ViewError) -> FilePlan {
        switch decision(on: path, source) {
        case .clear, .asItIs: return .plain(path)
        case .decrypted(let plan): return plan
        case .refused(let error): throw error
        }
    }

    /// Decides how a file is shown, from its name, the playlists and `view.json`, and its own first bytes.
    /// - Parameter path: relative to the root.
    package func decision(on path: [UInt8], _ source: SourceFile) -> FileDecision {
        do throws(ViewError) {
            if let index { return try hlsDecision(on: path, source, index) }
            if format.layout == .mp4 { return try mp4Decision(on: path, source) }
            return .decrypted(try plan(for: path, source, try manifest?.entry(for: path)))
        } catch {
            return .refused(error)
        }
    }

    private func plan(
        for path: [UInt8], _ source: SourceFile, _ entry: ViewManifest.Entry?
    ) throws(ViewError) -> FilePlan {
        let cipher = entry?.cipher ?? format.cipher
        if format.layout == .openssl {
            guard entry?.key == nil, entry?.vector == nil else {
                throw .malformed("view.json gives a key or an initial vector, but openssl derives both")
            }
            let cipher = cipher ?? .aes256CBC
            let salt = try ChainFormat.salt(of: source, otherwise: format.salt)
            return FilePlan(
                layout: .salted(hasHeader: salt.hasHeader, format.vector),
                keyNames: [.derived(salt: salt.bytes, cipher: cipher)], cipher: cipher, path: path)
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

    private func mp4Decision(on path: [UInt8], _ source: SourceFile) throws(ViewError) -> FileDecision {
        let naming = ContentKeys.Naming(directory: HlsURI.directory(of: path), given: keys.given)
        switch try Mp4Plan.read(source, naming, mp4Work) {
        case .protected(let plan): return .decrypted(try samplesPlan(plan, path, source))
        case .clear(let proof): return .clear(proof)
        case .notMp4: return .asItIs("no MP4 file")
        }
    }

    private func samplesPlan(
        _ plan: Mp4Plan, _ path: [UInt8], _ source: SourceFile, isKeyed: Bool = true
    ) throws(ViewError) -> FilePlan {
        FilePlan(
            layout: .samples(plan), keyNames: try plan.keyNames(source, isKeyed: isKeyed), cipher: .aes128CBC,
            path: path)
    }

    /// Decides about a file of a playlist with `SAMPLE-AES` keys.
    private func samplesDecision(
        on path: [UInt8], _ source: SourceFile, _ samples: HlsSamples
    ) throws(ViewError) -> FileDecision {
        let naming = ContentKeys.Naming(uri: samples.uri, directory: samples.directory, given: keys.given)
        if !samples.maps.isEmpty { return try initialDecision(on: path, source, samples, naming) }
        var needsInitial = false
        let verdict = try Mp4Plan.read(source, naming, mp4Work) { () throws(ViewError) in
            needsInitial = true
            guard let initial = samples.initial, initial.path != path else { return nil }
            return try initial.opened(in: root)
        }
        switch verdict {
        case .protected(let plan): return .decrypted(try samplesPlan(plan, path, source, isKeyed: samples.hasKey))
        // The file's own moov is a proof, unless its init segment contradicts it.
        case .clear where samples.hasKey && (needsInitial || samples.initial != nil):
            let box = needsInitial ? "init segment" : "moov"
            throw .malformed("its key is in force, and its \(box) names no encryption")
        case .clear(let proof): return .clear(proof)
        case .notMp4:
            if !samples.hasKey { return .clear("no key is in force where the playlist names it") }
            if try SourceInspection.isSubtitles(source) { return .clear("WebVTT") }
            throw .malformed("SAMPLE-AES in MPEG-TS or packed audio is not supported, only in MP4")
        }
    }

    /// Decides about a file of init segments.
    private func initialDecision(
        on path: [UInt8], _ source: SourceFile, _ samples: HlsSamples, _ naming: ContentKeys.Naming
    ) throws(ViewError) -> FileDecision {
        let movies = try samples.maps.map { (bytes) throws(ViewError) in
            try Mp4InitSegment(source: source, bytes: bytes).movie(mp4Work)
        }
        let protected = movies.filter(\.isProtected)
        if protected.isEmpty { return .clear("its moov names no encryption") }
        return .decrypted(try samplesPlan(Mp4Plan(.initSegments(protected), naming, mp4Work), path, source))
    }

    private func hlsDecision(
        on path: [UInt8], _ source: SourceFile, _ index: HlsIndex
    ) throws(ViewError) -> FileDecision {
        if HlsIndex.isPlaylistName(path), let plan = try playlistPlan(for: path, readAs: path, index) {
            return .decrypted(plan)
        }
        switch index.decision(on: source.identity, size: source.size, path: path, isOpening: true) {
        case .playlist:
            // The playlist has another name, and a link leads to it.
            if let name = index.playlistPath(of: source.identity),
                let plan = try playlistPlan(for: path, readAs: name, index)
            {
                return .decrypted(plan)
            }
            return .asItIs("no playlist any more")
        case .clear: return .clear("no key is in force where the playlist names it")
        case .asItIs: return .asItIs("no playlist names it as a segment")
        case .left(let reason): return .asItIs(reason)
        case .chains(let segment):
            // Look at the first bytes, because some downloaders decrypt segments, and keep the playlist.
            if !segment.isRanged, let name = try SourceInspection.plaintextFormat(of: source) { return .clear(name) }
            return .decrypted(FilePlan(layout: .segment(segment), keyNames: segment.keys, cipher: nil, path: path))
        case .samples(let samples): return try samplesDecision(on: path, source, samples)
        case .refused(let error): throw error
        }
    }

    /// Returns nil for any file except a playlist.
    private func playlistPlan(
        for path: [UInt8], readAs name: [UInt8], _ index: HlsIndex
    ) throws(ViewError) -> FilePlan? {
        guard let playlist = try index.open(name) else { return nil }
        return FilePlan(
            layout: .playlist(playlist), keyNames: playlist.needed.flatMap(\.segment.keys), cipher: nil,
            path: path)
    }

    /// Reads a playlist found by a lookup, if it is new or has changed.
    package func wasLookedUp(_ path: () -> [UInt8], name: [UInt8]) {
        if let index, HlsIndex.isPlaylistName(name) { index.refresh(path()) }
    }
}
