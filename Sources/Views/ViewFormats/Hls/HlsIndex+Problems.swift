internal import Glibc
internal import LinuxSystem
internal import Synchronization

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
                guard lacking.contains(path) || endings.contains(Self.ending(of: entry.name)),
                    !Self.isPlaylistName(entry.name),
                    let status = try? directory.status(of: entry.name), status.st_mode & S_IFMT == S_IFREG
                else { continue }
                let identity = FileIdentity(status)
                guard state.withLock({ $0.files[identity] == nil }),
                    let file = try? Descriptor(at: directory.fd, entry.name, flags: O_RDONLY | O_NONBLOCK),
                    (try? SourceInspection.mayBeSegment(SourceFile(file, status))) == true
                else { continue }
                strays.append(HlsState.Stray(identity: identity, path: joinedPath(path, entry.name)))
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
