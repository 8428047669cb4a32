internal import Glibc
package import LinuxSystem
internal import Synchronization

/// Reads the playlists of a source, and finds from them how the other files are encrypted. Any thread. Does not hold the
/// lock while it waits for the disk.
package final class HlsIndex: Sendable {
    /// The source.
    let root: Descriptor
    let state: Mutex<HlsState>

    /// - Parameters:
    ///   - root: the source, opened O_RDONLY|O_DIRECTORY.
    ///   - maximumSegments: maximum number of segments of all playlists together. Each takes about 500 bytes.
    package init(root: Descriptor, maximumSegments: Int = 1 << 19) {
        self.root = root
        state = Mutex(HlsState(maximumClaims: maximumSegments))
    }

    /// True if no playlist was found.
    var isEmpty: Bool { state.withLock { $0.playlists.isEmpty } }

    /// True if a file of this name is read to see if it is a playlist.
    package static func isPlaylistName(_ name: [UInt8]) -> Bool {
        let ending = ending(of: name)
        return ending.elementsEqual(".m3u8".utf8) || ending.elementsEqual(".m3u".utf8)
    }

    /// The end of a name from its last `.`, in lower case.
    static func ending(of name: [UInt8]) -> [UInt8] {
        name[(name.lastIndex(of: UInt8(ascii: ".")) ?? name.endIndex)...].map { $0 | 0x20 }
    }

    /// The content of a file. Reads a playlist again if the file has come to the path since, or has the inode number of
    /// a removed segment.
    ///
    /// - Parameters:
    ///   - size: bytes of the file.
    ///   - path: relative to the source.
    package func content(of identity: FileIdentity, size: UInt64, path: [UInt8]) -> HlsContent {
        switch state.withLock({ $0.knowledge(of: identity, at: path) }) {
        case .certain: break
        case .otherPath(let other, let playlists):
            if let status = try? root.opened(beneath: other).status(), FileIdentity(status) == identity { break }
            for playlist in playlists { _ = try? read(playlist) }
        case .named(let playlist):
            _ = try? read(playlist)
            state.withLock { $0.forget(name: path, of: identity) }
        }
        let content = state.withLock { $0.content(of: identity, size: size) }
        guard refreshSources(of: content, identity, path) else { return content }
        return state.withLock { $0.content(of: identity, size: size) }
    }

    /// Checks for changes that explain a result that a user would not expect. Returns true if something may have
    /// changed.
    private func refreshSources(of content: HlsContent, _ identity: FileIdentity, _ path: [UInt8]) -> Bool {
        switch content {
        // A new playlist, or one that came with its directory, may name the file.
        case .plain: return scanIfChanged(above: path)
        // One of two contradicting playlists may have been removed.
        case .failed:
            let playlists = state.withLock { $0.playlists(naming: identity) }
            if playlists.count < 2 { return false }
            for playlist in playlists { refresh(playlist) }
            return true
        case .playlist, .segment, .samples: return false
        }
    }

    /// The keys that playlists name for files of the tree.
    func keyNames() -> Set<KeyName> {
        state.withLock { state in
            var names: Set<KeyName> = []
            for file in state.files.values {
                for claim in file.claims {
                    switch claim.use {
                    case .encrypted(let encryption), .frames(let encryption): names.insert(encryption.key)
                    case .plain, .samples, .failed: break
                    }
                }
            }
            return names
        }
    }

    /// The path under which a playlist was read. Its references are relative to this path, even if the file has other
    /// names.
    package func playlistPath(of identity: FileIdentity) -> [UInt8]? {
        state.withLock { $0.playlistFiles[identity]?.path }
    }

    /// Reads a playlist if it is new or has changed, and forgets it if it was removed. Call this when a file with a
    /// playlist's name is looked up.
    package func refresh(_ path: [UInt8]) {
        let known = state.withLock { $0.playlists[path]?.stamp }
        if let known, let status = try? root.opened(beneath: path).status(), FileStamp(status) == known {
            return
        }
        _ = try? read(path)
    }

    /// Reads a playlist and looks up its segments. Nil if the file is not a playlist, and shown as it is. Call this at
    /// each open.
    ///
    /// - Throws: `.malformed` if it cannot be shown decrypted, `.store` if it cannot be read.
    func open(_ path: [UInt8]) throws(ViewError) -> HlsPlaylistContent? {
        let (reading, record) = try ViewError.ofStore { () throws(StoreError) in try read(path) }
        if let error = record.error { throw error }
        guard let playlist = reading.playlist else { return nil }
        var needed: [HlsPlaylistContent.Needed] = []
        var positions: [FileIdentity: Int] = [:]
        var numbers = [Int?](repeating: nil, count: playlist.references.count)
        state.withLock { state in
            for (number, (reference, target)) in zip(playlist.references, reading.targets).enumerated() {
                guard reference.bytes != nil, let target else { continue }
                if let position = positions[target.identity] {
                    numbers[number] = position
                } else if let segment = state.segment(of: target.identity),
                    segment.isRanged || reference.isTail(of: target.size)
                {
                    positions[target.identity] = needed.count
                    numbers[number] = needed.count
                    needed.append(.init(identity: target.identity, path: target.path, segment: segment))
                }
            }
        }
        return HlsPlaylistContent(reading, needed: needed, numbers: numbers, in: root)
    }

    /// Reads a playlist and replaces its contents in the state.
    private func read(_ path: [UInt8]) throws(StoreError) -> (HlsReading, HlsPlaylistRecord) {
        let reading: HlsReading
        do throws(StoreError) {
            reading = try HlsReading(path, in: root)
        } catch {
            state.withLock {
                $0.remove(path)
                $0.addUnreadable(path, error)
            }
            throw error
        }
        return (reading, state.withLock { $0.replace(with: reading) })
    }
}

extension HlsIndex {
    private static let maximumDepth = 128

    /// Reads every playlist of the tree. Opens one directory at a time, and does not follow links to directories. It finds
    /// playlists by their names in directories, so it does not matter how they refer to each other.
    ///
    /// - Throws: if the source itself cannot be read. A directory inside it that cannot be read becomes a problem.
    package func scan() throws(StoreError) { try scan(from: [], again: true) }

    /// Scans the directories above a path that are new or have changed since they were read. Returns true if there was
    /// one.
    func scanIfChanged(above path: [UInt8]) -> Bool {
        var directory = path
        var hasChanged = false
        while !directory.isEmpty {
            directory = HlsURI.directory(of: directory)
            if let status = try? open(directory: directory).status(),
                state.withLock({ $0.directories[directory] }) != FileStamp(status),
                (try? scan(from: directory, again: false)) != nil
            {
                hasChanged = true
            }
        }
        return hasChanged
    }

    func open(directory path: [UInt8]) throws(StoreError) -> Descriptor {
        try root.opened(
            beneath: path.isEmpty ? [UInt8(ascii: ".")] : path, flags: O_RDONLY | O_DIRECTORY, followsLinks: false)
    }

    /// - Parameter again: also read the directories inside that are known.
    private func scan(from start: [UInt8], again: Bool) throws(StoreError) {
        var waiting: [[UInt8]] = []
        try scan(start, &waiting)
        while let path = waiting.popLast() {
            if !again, state.withLock({ $0.directories[path] != nil }) { continue }
            do throws(StoreError) { try scan(path, &waiting) } catch {
                state.withLock { $0.addUnreadable(path, error) }
            }
        }
    }

    /// - Parameter waiting: receives the directories inside.
    private func scan(_ path: [UInt8], _ waiting: inout [[UInt8]]) throws(StoreError) {
        let directory = try open(directory: path)
        // Before the entries, so that the next check notices a change in between.
        let stamp = FileStamp(try directory.status())
        let depth = path.isEmpty ? 0 : path.count { $0 == UInt8(ascii: "/") } + 1
        var reader = DirectoryReader(directory)
        while let entry = try reader.next() {
            let inside = joinedPath(path, entry.bytes)
            if Self.isDirectory(entry, reader.type, in: directory) {
                if depth < Self.maximumDepth {
                    waiting.append(inside)
                } else {
                    state.withLock {
                        $0.addUnreadable(inside, .damaged("more than \(Self.maximumDepth) directories deep"))
                    }
                }
            } else if Self.isPlaylistName(entry.bytes) {
                refresh(inside)
            }
        }
        state.withLock { $0.addDirectory(path, stamp) }
    }

    private static func isDirectory(_ entry: Component, _ type: UInt8, in directory: Descriptor) -> Bool {
        guard type == UInt8(DT_UNKNOWN) else { return type == UInt8(DT_DIR) }
        return (try? directory.status(of: entry)).map { $0.st_mode & S_IFMT == S_IFDIR } ?? false
    }
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
            let own = state.playlists.values.flatMap(\.problems)
            let unreadable = state.unreadable.map {
                HlsProblem(path: $0.key, line: 0, text: "cannot be read: \($0.value)")
            }
            let strays = state.unnamedStrays.map {
                HlsProblem(
                    path: $0.path, line: 0, text: "no playlist names it, and it looks encrypted: it stays as it is")
            }
            return own + unreadable + strays + state.conflicts(limit: Self.maximumProblems)
        }
        let ordered = found.sorted {
            if $0.path != $1.path { return $0.path.lexicographicallyPrecedes($1.path) }
            return ($0.line, $0.text) < ($1.line, $1.text)
        }
        return ordered.prefix(Self.maximumProblems).map { "\(HlsProblem.location($0.path, line: $0.line)): \($0.text)" }
    }
}

extension HlsIndex {
    /// Lines for people about encrypted content that the mount shows as it is: one for each playlist and each directory.
    package func left() -> [(path: [UInt8], text: String)] {
        let (playlists, strays) = state.withLock { state in
            (state.playlists.values.filter { $0.fault == nil && $0.left != nil }, state.unnamedStrays)
        }
        var lines: [(path: [UInt8], text: String)] = playlists.compactMap { record in
            guard let left = record.left else { return nil }
            let others = left.count == 1 ? "" : ", the first of \(left.count)"
            return (
                record.path,
                "encrypted, and not decrypted: line \(left.line)\(others): 'vaultfs status' has the reasons"
            )
        }
        let directories = Dictionary(grouping: strays) { HlsURI.directory(of: $0.path) }
        for (_, strays) in directories {
            let others = strays.count == 1 ? "" : ", the first of \(strays.count)"
            lines.append((strays[0].path, "looks encrypted, and no playlist names it\(others)"))
        }
        return lines.sorted { $0.path.lexicographicallyPrecedes($1.path) }
    }

    /// Looks for files that look encrypted beside encrypted segments, and that no playlist names: they have another name
    /// than in the playlist, or have left the window of a live one. Where no segment is missing, only files with the
    /// ending of a segment's name count.
    package func findStrays() {
        var strays: [HlsState.Stray] = []
        let (endings, lacking) = state.withLock { $0.segmentDirectories() }
        for (path, endings) in endings {
            guard let directory = try? open(directory: path) else { continue }
            var reader = DirectoryReader(directory)
            while strays.count < Self.maximumProblems, let entry = try? reader.next() {
                guard lacking.contains(path) || endings.contains(Self.ending(of: entry.bytes)),
                    !Self.isPlaylistName(entry.bytes),
                    let status = try? directory.status(of: entry), status.st_mode & S_IFMT == S_IFREG
                else { continue }
                let identity = FileIdentity(status)
                guard state.withLock({ $0.files[identity] == nil }),
                    let file = try? Descriptor(at: directory, entry, flags: O_RDONLY | O_NONBLOCK),
                    (try? SourceInspection.mayBeSegment(SourceFile(file, status))) == true
                else { continue }
                strays.append(HlsState.Stray(identity: identity, path: joinedPath(path, entry.bytes)))
            }
        }
        strays.sort { $0.path.lexicographicallyPrecedes($1.path) }
        state.withLock { $0.strays = strays }
    }
}

extension HlsState {
    /// The directories of playlists with encrypted segments, and of the segments, with the endings of their names; and the
    /// directories of playlists whose segments are missing.
    fileprivate func segmentDirectories() -> (endings: [[UInt8]: Set<[UInt8]>], lacking: Set<[UInt8]>) {
        var directories: [[UInt8]: Set<[UInt8]>] = [:]
        var lacking: Set<[UInt8]> = []
        for record in playlists.values where record.fault == nil && !record.endings.isEmpty {
            let paths = [record.path] + record.files.compactMap { files[$0]?.path }
            for path in paths { directories[HlsURI.directory(of: path), default: []].formUnion(record.endings) }
            if record.left != nil { lacking.insert(HlsURI.directory(of: record.path)) }
        }
        return (directories, lacking)
    }

    /// The strays that no playlist has come to name since.
    fileprivate var unnamedStrays: [Stray] { strays.filter { files[$0.identity] == nil } }

    /// Files on which playlists contradict each other, as problems of the first playlist.
    fileprivate func conflicts(limit: Int) -> [HlsProblem] {
        var found: [HlsProblem] = []
        for (identity, file) in files where file.claims.count > 1 && playlistFiles[identity] == nil {
            guard found.count < limit else { break }
            do throws(ViewError) {
                _ = try HlsClaimMerge(file.claims, size: file.size).segment()
            } catch {
                // A playlist that cannot be shown is listed already.
                guard case .malformed(let text) = error, let claim = file.claims.first(where: { $0.failure == nil })
                else { continue }
                found.append(HlsProblem(path: claim.playlist.path, line: claim.line, text: text))
            }
        }
        return found
    }
}
