internal import CLinux
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Reads the playlists of a source, and decides from them how each file is shown. Any thread. Waits for the disk
/// without the lock.
package final class HlsIndex: Sendable {
    /// The source.
    let root: Descriptor
    let meanings: KeyMeanings
    /// Bounds the work on MP4 files, and stops long work.
    let work: Mp4Work
    let state: Mutex<HlsState>
    let keys: KeyStore
    /// Number of readings since the last check for removed playlists.
    private let readings = Atomic<Int>(0)

    /// - Parameters:
    ///   - root: the source, opened O_RDONLY|O_DIRECTORY.
    ///   - keys: the keys, by whose values the names of one key are recognized.
    ///   - maximumSegments: maximum number of segments of all playlists together. Each takes about 400 bytes, and up to
    ///     eight look-ups on the disk.
    init(root: Descriptor, keys: KeyStore, work: Mp4Work, maximumSegments: Int = 3 << 16) {
        self.root = root
        self.work = work
        self.keys = keys
        meanings = KeyMeanings { keys.read($0) }
        state = Mutex(HlsState(maximumClaims: maximumSegments))
    }

    /// True if a file of this name may be a playlist, and so is read.
    package static func isPlaylistName(_ name: [UInt8]) -> Bool { playlistEnding(of: name) != nil }

    /// Returns `.m3u8` or `.m3u` at the end of a name or path, also before a query kept by a downloader. Otherwise nil.
    static func playlistEnding(of path: [UInt8]) -> [UInt8]? {
        let name = path[(path.lastIndex(of: UInt8(ascii: "/")).map { $0 + 1 } ?? 0)...]
        return [Array(name), Array(name.prefix { $0 != UInt8(ascii: "?") })].map(ending).first {
            $0.elementsEqual(".m3u8".utf8) || $0.elementsEqual(".m3u".utf8)
        }
    }

    /// Returns the end of a name from its last `.`, in lower case.
    static func ending(of name: [UInt8]) -> [UInt8] {
        name[(name.lastIndex(of: UInt8(ascii: ".")) ?? name.endIndex)...].map { $0 | 0x20 }
    }

    /// Returns the decision about a file. Reads a playlist again if the file has come to the path since, or has a
    /// removed segment's inode number, and at an open if the playlist has changed.
    ///
    /// - Parameters:
    ///   - size: bytes of the file.
    ///   - path: relative to the source.
    ///   - isOpening: true at an open. A refusal then also leads to reading the keys and init segments again, because
    ///     they may have come.
    package func decision(
        on identity: FileIdentity, size: UInt64, path: [UInt8], isOpening: Bool = false
    ) -> HlsDecision {
        verify(identity, at: path)
        if isOpening { refresh(playlistsNaming: [identity]) }
        let decision = state.withLock { $0.decided(on: identity, size: size).decision }
        guard refreshSources(of: decision, identity, path, isOpening) else { return decision }
        return state.withLock { $0.decided(on: identity, size: size).decision }
    }

    /// Reads changed playlists again, if they name one of these files.
    /// - Parameter path: of a playlist just read, which is left out.
    private func refresh(playlistsNaming identities: Set<FileIdentity>, but path: [UInt8]? = nil) {
        let playlists = state.withLock { state in
            identities.reduce(into: Set<[UInt8]>()) { $0.formUnion(state.playlists(naming: $1)) }
        }
        for playlist in playlists where playlist != path { refresh(playlist) }
    }

    /// Reads playlists again if their claims about this file may mean another one now.
    private func verify(_ identity: FileIdentity, at path: [UInt8]) {
        switch state.withLock({ $0.knowledge(of: identity, at: path) }) {
        case .certain: break
        case .otherPaths(let others):
            for (other, playlists) in others {
                if let status = try? root.opened(beneath: other).status(), FileIdentity(status) == identity { continue }
                for playlist in playlists { _ = try? read(playlist) }
            }
        case .named(let playlists):
            for playlist in playlists { _ = try? read(playlist) }
            state.withLock { $0.forget(name: path, of: identity) }
        }
    }

    /// Checks for changes, if a user would not expect this decision. Returns true if something may have changed.
    private func refreshSources(
        of decision: HlsDecision, _ identity: FileIdentity, _ path: [UInt8], _ isOpening: Bool
    ) -> Bool {
        switch decision {
        // A new playlist, or one that came with its directory, may name the file.
        case .clear, .asItIs: return scanIfChanged(above: path)
        // A playlist may have been removed, or a key or an init segment may have come.
        case .refused:
            let playlists = state.withLock { $0.playlists(naming: identity) }
            for playlist in playlists {
                let isOld = state.withLock { $0.times[playlist].map { $0.duration(to: .now) > .seconds(1) } }
                if isOpening, isOld == true { _ = try? read(playlist) } else { refresh(playlist) }
            }
            return !playlists.isEmpty
        case .playlist, .chains, .samples, .left: return false
        }
    }

    /// Returns the keys named for files of the tree, by playlists and by the boxes of the files.
    func keyNames() -> Set<KeyName> {
        state.withLock { state in
            var names: Set<KeyName> = []
            for record in state.playlists.values { names.formUnion(record.contentKeys) }
            for claim in state.files.values.lazy.flatMap(\.claims) {
                switch claim.use {
                case .encrypted(let encryption, _), .frames(let encryption, _, _): names.insert(encryption.key)
                case .plain, .samples, .failed, .mention: break
                }
            }
            return names
        }
    }

    /// Returns the path under which a playlist was read. Its references are relative to this path, even if the file has
    /// other names.
    package func playlistPath(of identity: FileIdentity) -> [UInt8]? {
        state.withLock { $0.playlistFiles[identity]?.path }
    }

    /// Reads a new or changed playlist, and forgets a removed one. Call this when a file with a playlist's name is
    /// looked up.
    ///
    /// - Returns: false if a lock, or the end of the mount, has stopped the reading.
    @discardableResult
    package func refresh(_ path: [UInt8]) -> Bool {
        let known = state.withLock { $0.playlists[path]?.stamp }
        if let known, let status = try? root.opened(beneath: path).status(), FileStamp(status) == known {
            return true
        }
        do throws(StoreError) { _ = try read(path) } catch { return !Interruption.isCause(of: error) }
        return true
    }

    /// Reads a playlist and looks up its segments. Nil if the file is not a playlist, and so shown as it is. Call this
    /// at each open.
    ///
    /// - Throws: `.malformed` if it cannot be shown decrypted, `.store` if it cannot be read.
    func open(_ path: [UInt8]) throws(ViewError) -> HlsPlaylistContent? {
        let (reading, record) = try ViewError.ofStore(read(path))
        if let error = record.error { throw error }
        guard let playlist = reading.playlist else { return nil }
        // ext4 gives the inode number of a removed segment to the next file, also to one of another playlist.
        var verified: Set<FileIdentity> = []
        for case let target? in reading.targets where verified.insert(target.identity).inserted {
            if verified.count % 256 == 0 { try work.interruption.check() }
            verify(target.identity, at: target.path)
        }
        try work.interruption.check()
        // Another playlist can contradict this one, or no longer do so.
        refresh(playlistsNaming: verified, but: path)
        let decisions = state.withLock { $0.decisions(for: reading) }
        try work.interruption.check()
        return try HlsPlaylistContent(reading, playlist, decisions, in: self)
    }

    /// Keeps the size of a playlist's text in the mount, for listings.
    func setSize(_ size: UInt64, of path: [UInt8]) { state.withLock { $0.setSize(size, of: path) } }

    /// Reads a playlist and replaces its contents in the state.
    private func read(_ path: [UInt8]) throws(StoreError) -> (HlsReading, HlsPlaylistRecord) {
        readings.add(1, ordering: .relaxed)
        let reading: HlsReading
        do throws(StoreError) {
            reading = try HlsReading(path, in: self)
        } catch {
            // Keep a playlist that cannot be read now, because it still says how its files are encrypted.
            state.withLock {
                if error == .system(.noSuchFileOrDirectory) { $0.remove(path) }
                if !Interruption.isCause(of: error) { $0.addUnreadable(path, error) }
            }
            throw error
        }
        // A live playlist saved under new names leaves many removed ones.
        forgetRemoved(checksPerReading: 1, after: Self.readingsBetweenChecks)
        return (reading, state.withLock { $0.replace(with: reading) })
    }

    private static let readingsBetweenChecks = 64

    /// Returns the number of claims that a playlist may add, and its fault if it has more.
    /// - Parameter size: bytes of its text. A reference takes at least two.
    func room(for path: [UInt8], size: Int) -> (claims: Int, lack: PlaylistError) {
        let known = state.withLock { $0.room(for: path) }
        if known.claims > min(size / 2, Playlist.maximumReferences) { return known }
        forgetRemoved(checksPerReading: 64, after: 0)
        return state.withLock { $0.room(for: path) }
    }

    /// Forgets removed playlists. Does nothing if the readings since the last time are too few for a check of each,
    /// because a source can have a hundred thousand.
    private func forgetRemoved(checksPerReading: Int, after minimum: Int) {
        let count = readings.load(ordering: .relaxed)
        guard count >= minimum, count * checksPerReading >= state.withLock({ $0.playlists.count }) else { return }
        readings.store(0, ordering: .relaxed)
        for path in state.withLock({ Array($0.playlists.keys) }) {
            do throws(StoreError) { _ = try root.opened(beneath: path) } catch .system(.noSuchFileOrDirectory) {
                state.withLock { $0.remove(path) }
            } catch {
                // It exists, or may exist.
            }
        }
    }
}

extension HlsIndex {
    /// Reads every playlist of the tree. Finds them by their names in directories, so their references to each other do
    /// not matter.
    ///
    /// - Parameter isDeep: false for the source itself only.
    /// - Throws: the error of reading the source itself. An unreadable directory inside it becomes a problem.
    package func scan(isDeep: Bool = true) throws(StoreError) { try scan(from: []) { _ in isDeep } }

    /// Scans the new and the changed directories above a path. Returns true if it has scanned one.
    func scanIfChanged(above path: [UInt8]) -> Bool {
        var directory = path
        var hasChanged = false
        while !directory.isEmpty {
            directory = HlsURI.directory(of: directory)
            if let status = try? SourceWalk(root).open(directory).status(),
                state.withLock({ $0.directories[directory] }) != FileStamp(status),
                (try? scan(from: directory) { path in state.withLock { $0.directories[path] == nil } }) != nil
            {
                hasChanged = true
            }
        }
        return hasChanged
    }

    private func scan(from start: [UInt8], enters: ([UInt8]) -> Bool) throws(StoreError) {
        var misfits: [[UInt8]: HlsState.Misfit] = [:]
        try SourceWalk(root).run(from: start, enters: enters) { path, error in
            state.withLock { $0.addUnreadable(path, error) }
        } end: { directory in
            state.withLock {
                $0.addDirectory(directory.path, directory.stamp)
                $0.replaceMisfits(in: directory.path, with: misfits)
            }
            misfits = [:]
        } file: { entry, path, directory in
            // Stop here, so that the directory is read again.
            if (try? work.interruption.check()) == nil { return false }
            if Self.isPlaylistName(entry.bytes) { return refresh(path) }
            if let misfit = misfit(entry, in: directory.descriptor) {
                misfits[path] = misfit
            }
            return true
        }
    }

    /// Nil for a file that does not begin like a playlist.
    private func misfit(_ entry: Component, in directory: Descriptor) -> HlsState.Misfit? {
        let ending = Self.ending(of: entry.bytes)
        if Self.mediaEndings.contains(ending) || Self.otherEndings.contains(ending) { return nil }
        guard let file = try? Descriptor(at: directory, entry, flags: linux_O_PATH).openedRegularFile(),
            let status = try? file.status()
        else { return nil }
        return Self.misfit(entry, file).map { HlsState.Misfit(identity: FileIdentity(status), reason: $0) }
    }

    private static func misfit(_ entry: Component, _ file: Descriptor) -> String? {
        let bytes = (try? file.read(at: 0, count: PlaylistBeginning.size)) ?? []
        let name = entry.bytes.dropLast(Self.ending(of: entry.bytes).count)
        return PlaylistBeginning.misfit(bytes, isNamed: isPlaylistName(Array(name)))
    }

    /// The endings of segments' names. A search for strays opens such files if they are unnamed.
    private static let mediaEndings = Set(
        [".ts", ".m4s", ".mp4", ".m4a", ".m4v", ".cmfa", ".cmfv", ".cmft", ".aac", ".ac3", ".ec3", ".vtt"]
            .map { Array($0.utf8) })
    /// Other endings, of files that cannot be playlists, so that these are not opened.
    private static let otherEndings = Set(
        [".mp3", ".key", ".jpg", ".jpeg", ".png", ".mkv", ".webm", ".mov", ".mts", ".m2ts"].map { Array($0.utf8) })

}

/// A defect of a playlist, for people to read.
struct HlsProblem: Sendable {
    /// The path of the playlist, relative to the source.
    var path: [UInt8]
    /// Counted from 1. 0 for the whole playlist.
    var line: Int
    var text: String

    static func location(_ path: [UInt8], line: Int) -> String { line == 0 ? shown(path) : "\(shown(path)):\(line)" }
}

extension HlsIndex {
    package static let maximumProblems = 256

    /// The first `maximumProblems` problems, by path and line, each as `path:line: text`.
    package func problems() -> [String] {
        let found = state.withLock { state in
            let records = Array(state.playlists.values)
            var own = records.flatMap(\.problems)
            for record in records where own.count < 8 * Self.maximumProblems {
                own += state.problems(of: record, limit: HlsReading.maximumProblems)
            }
            let unreadable = state.unreadable.map {
                HlsProblem(path: $0.key, line: 0, text: "cannot be read: \($0.value)")
            }
            let misfits = state.misfits.map { HlsProblem(path: $0.key, line: 0, text: $0.value.reason) }
            let source = state.isEmpty ? [HlsProblem(path: Self.sourcePath, line: 0, text: Self.noPlaylists)] : []
            return own + unreadable + misfits + source
        }
        let refused = refusedByLength().flatMap { playlist, files in
            files.map { HlsProblem(path: playlist, line: $0.line, text: "\(shown($0.path)): \($0.reason)") }
        }
        let strays = strays().map { HlsProblem(path: $0.path, line: 0, text: "\($0.text): it stays as it is") }
        let ordered = (found + refused + strays).sorted {
            if $0.path != $1.path { return $0.path.lexicographicallyPrecedes($1.path) }
            return ($0.line, $0.text) < ($1.line, $1.text)
        }
        return ordered.prefix(Self.maximumProblems).map { "\(HlsProblem.location($0.path, line: $0.line)): \($0.text)" }
    }
}

extension HlsIndex {
    /// Returns lines for people about encrypted content shown as it is: one for each playlist and each directory.
    package func left() -> [(path: [UInt8], text: String)] {
        var lines: [(path: [UInt8], text: String)] = []
        let refused = refusedByLength()
        state.withLock { state in
            if state.isEmpty { lines.append((Self.sourcePath, Self.noPlaylists)) }
            for record in state.playlists.values {
                if let fault = record.fault {
                    // The files of a playlist that was not read to its end are unknown.
                    let end =
                        record.files.isEmpty
                        ? "it is refused, and its files stay as they are" : "it and its files are refused"
                    lines.append((record.path, "\(fault.text): \(end)"))
                    continue
                }
                if let misreading = record.misreading {
                    lines.append((record.path, "\(misreading.text): it and its files stay as they are"))
                }
                var left = state.left(of: record)
                for file in refused[record.path] ?? [] { left.add(file.line) }
                guard left.count > 0 else { continue }
                let others = left.count == 1 ? "" : ", the first of \(left.count)"
                let text = "encrypted, and not decrypted: line \(left.line)\(others)"
                lines.append((record.path, "\(text): 'vaultfs status' has the reasons"))
            }
            lines += state.unreadable.map { ($0.key, "cannot be read: \($0.value)") }
            lines += state.misfits.map { ($0.key, "\($0.value.reason): it and its files stay as they are") }
        }
        let strays = strays()
        let directories = Dictionary(grouping: strays) { [HlsURI.directory(of: $0.path), Array($0.text.utf8)] }
        for (_, strays) in directories {
            let others = strays.count == 1 ? "" : ", the first of \(strays.count)"
            lines.append((strays[0].path, strays[0].text + others))
        }
        return lines.sorted { $0.path.lexicographicallyPrecedes($1.path) }
    }

    /// The path of the source itself, for messages.
    private static let sourcePath = Array(".".utf8)
    private static let noPlaylists = "no playlist (.m3u8, .m3u) is in the source: nothing is decrypted"

    /// Maximum number of files opened by a search: in directories without encrypted segments, or because their length
    /// rules out ciphertext. A downloader that decrypts leaves only files with such a length.
    static let maximumLooks = 4096

    /// Returns the files with a length that rules out decryption, by the path of the playlist. Needs no key.
    private func refusedByLength() -> [[UInt8]: [HlsState.Misfitting]] {
        let found = state.withLock { state in
            state.playlists.values.filter { $0.fault == nil }.map { ($0.path, state.misfitting(of: $0)) }
        }
        var rest = Self.maximumLooks
        var refused: [[UInt8]: [HlsState.Misfitting]] = [:]
        for (playlist, files) in found where !files.isEmpty {
            refused[playlist] = files.filter { file in
                if !file.mayBePlain { return true }
                rest -= 1
                return rest >= 0 && !isPlaintext(file.path, file.identity)
            }
        }
        return refused
    }

    private func isPlaintext(_ path: [UInt8], _ identity: FileIdentity) -> Bool {
        guard let source = try? root.sourceFile(beneath: path, identity) else { return true }
        return (try? SourceInspection.plaintextFormat(of: source)) != nil
    }

    /// True if a file may be an encrypted segment or film.
    /// - Parameter isBesideOthers: true in a directory with encrypted segments.
    private func mayBeSegment(_ source: SourceFile, isBesideOthers: Bool) -> Bool {
        if (try? Mp4Plan.isMp4(source)) == true {
            let naming = ContentKeys.Naming(directory: [], given: [])
            switch try? Mp4Plan.read(source, naming, work) {
            case .protected: return true
            case .clear: return false
            // A fragment without its init segment proves neither.
            case .notMp4, nil: return isBesideOthers
            }
        }
        return source.size % 16 == 0 && (try? SourceInspection.looksEncrypted(source, 0..<source.size)) == true
    }

    /// Looks for unnamed files that look encrypted or are playlists. They have another name than in the playlist, or
    /// have left the window of a live one. Where all segments are found, only files with the ending of a segment's name
    /// count. Also looks at the first files of playlists without keys.
    package func findStrays() {
        var strays: [HlsState.Stray] = []
        let (directories, lacking) = state.withLock { $0.segmentDirectories() }
        var rest = Self.maximumLooks
        // An unreadable part is a problem of the scan.
        try? SourceWalk(root).run(from: []) { entry, path, directory in
            guard strays.count < Self.maximumProblems, (try? work.interruption.check()) != nil else { return false }
            let ending = Self.ending(of: entry.bytes)
            let endings = directories[directory.path]
            guard
                lacking.contains(directory.path) || endings?.contains(ending) == true
                    || Self.mediaEndings.contains(ending), endings != nil || rest >= 0,
                !Self.isPlaylistName(entry.bytes), let status = try? directory.descriptor.status(of: entry),
                status.st_mode & S_IFMT == S_IFREG
            else { return true }
            let identity = FileIdentity(status)
            if endings == nil {
                rest -= 1
                if rest < 0 {
                    // Report it in any case, because encrypted files may follow.
                    let text = "not looked at, after \(Self.maximumLooks) files beside no encrypted segment"
                    strays.append(HlsState.Stray(identity: identity, path: path, text: text, isNamed: true))
                    return true
                }
            }
            guard state.withLock({ $0.files[identity] == nil }),
                let file = try? Descriptor(at: directory.descriptor, entry, flags: O_RDONLY | O_NONBLOCK)
            else { return true }
            if let reason = Self.mediaEndings.contains(ending) ? Self.misfit(entry, file) : nil {
                strays.append(HlsState.Stray(identity: identity, path: path, text: reason))
            } else if mayBeSegment(SourceFile(file, status), isBesideOthers: endings != nil) {
                strays.append(HlsState.Stray(identity: identity, path: path))
            }
            return true
        }
        strays += unkeyed()
        strays.sort { $0.path.lexicographicallyPrecedes($1.path) }
        state.withLock { $0.strays = strays }
    }

    /// Returns the encrypted-looking first files of playlists without keys.
    private func unkeyed() -> [HlsState.Stray] {
        var seen: Set<FileIdentity> = []
        var found: [HlsState.Stray] = []
        let clear = state.withLock { state in state.playlists.values.flatMap { $0.clear } }
        for first in clear where found.count < Self.maximumProblems {
            let target = first.target
            guard seen.insert(target.identity).inserted, let source = try? root.sourceFile(beneath: target.path)
            else { continue }
            if let bytes = first.bytes {
                guard bytes.upperBound <= source.size, (bytes.upperBound - bytes.lowerBound) % 16 == 0,
                    (try? SourceInspection.looksEncrypted(source, bytes)) == true
                else { continue }
            } else if !mayBeSegment(source, isBesideOthers: false) {
                continue
            }
            let text = "it looks encrypted, and its playlist has no key line"
            found.append(HlsState.Stray(identity: target.identity, path: target.path, text: text, isNamed: true))
        }
        return found
    }
}

extension HlsIndex {
    /// Returns the strays that are still there and still count, and the files with unnamed bytes that look encrypted.
    private func strays() -> [HlsState.Stray] {
        let (strays, gaps) = state.withLock { ($0.unnamedStrays, $0.gaps()) }
        let left = strays.filter { stray in
            (try? root.opened(beneath: stray.path).status()).map { FileIdentity($0) == stray.identity } ?? false
        }
        var rest = Self.maximumProblems
        var parts: [HlsState.Stray] = []
        for (identity, path, gaps) in gaps where rest > 0 {
            guard let source = try? root.sourceFile(beneath: path, identity) else { continue }
            let gap = gaps.prefix(rest).first { (try? SourceInspection.looksEncrypted(source, $0)) != false }
            rest -= min(gaps.count, rest)
            guard let gap else { continue }
            let text = "no playlist names its bytes \(gap.lowerBound)-\(gap.upperBound), and they look encrypted"
            parts.append(HlsState.Stray(identity: identity, path: path, text: text))
        }
        return (left + parts).sorted { $0.path.lexicographicallyPrecedes($1.path) }
    }
}

extension HlsState {
    /// Returns the directories of playlists with encrypted segments and of these segments, with the endings of their
    /// names, and the directories of playlists with missing segments.
    fileprivate func segmentDirectories() -> (endings: [[UInt8]: Set<[UInt8]>], lacking: Set<[UInt8]>) {
        var directories: [[UInt8]: Set<[UInt8]>] = [:]
        var lacking: Set<[UInt8]> = []
        for record in playlists.values where record.fault == nil && !record.endings.isEmpty {
            let paths = [record.path] + record.files.compactMap { files[$0]?.path }
            for path in paths { directories[HlsURI.directory(of: path), default: []].formUnion(record.endings) }
            if record.left.count > 0 { lacking.insert(HlsURI.directory(of: record.path)) }
        }
        return (directories, lacking)
    }

    /// The strays not named by a playlist since, and those that count all the same.
    fileprivate var unnamedStrays: [Stray] { strays.filter { $0.isNamed || files[$0.identity] == nil } }

    /// True if there is no playlist.
    fileprivate var isEmpty: Bool { playlistFiles.isEmpty }
}
