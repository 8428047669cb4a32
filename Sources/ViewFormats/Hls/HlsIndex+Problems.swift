internal import LinuxSystem
internal import Synchronization

/// A defect of a playlist, for people to read.
package struct HlsProblem: Hashable, Sendable {
    /// Of the playlist, relative to the source.
    package var path: [UInt8]
    /// Counted from 1. 0 for the whole playlist.
    package var line: Int
    package var text: String

    /// `path:line: text`.
    package var description: String { "\(Self.location(path, line: line)): \(text)" }

    static func location(_ path: [UInt8], line: Int) -> String {
        line == 0 ? shown(path) : "\(shown(path)):\(line)"
    }
}

extension HlsIndex {
    package static let maximumProblems = 256

    /// The first `maximumProblems` problems, by path and line.
    package func problems() -> [HlsProblem] {
        let found = state.withLock { state in
            let own = state.playlists.values.flatMap { $0.problems + state.misplaced(in: $0) }
            let unreadable = state.unreadable.map {
                HlsProblem(path: $0.key, line: 0, text: "cannot be read: \($0.value)")
            }
            return own + unreadable + state.conflicts(limit: Self.maximumProblems)
        }
        let ordered = found.sorted {
            if $0.path != $1.path { return $0.path.lexicographicallyPrecedes($1.path) }
            return ($0.line, $0.text) < ($1.line, $1.text)
        }
        return Array(ordered.prefix(Self.maximumProblems))
    }
}

extension HlsState {
    /// References to a playlist of the wrong kind. Loops are made of these.
    fileprivate func misplaced(in entry: Entry) -> [HlsProblem] {
        let path = entry.record.path
        let masters = entry.playlists.compactMap { line, identity -> HlsProblem? in
            guard let other = playlistFiles[identity] else {
                return HlsProblem(path: path, line: line, text: "refers to a file that is not read as a playlist")
            }
            guard other.kind == .master else { return nil }
            if identity == entry.record.stamp.identity {
                return HlsProblem(path: path, line: line, text: "a master playlist that refers to itself")
            }
            let isBack =
                playlists[other.path]?.playlists.contains { $0.identity == entry.record.stamp.identity } ?? false
            let text = "refers to another master playlist, \(shown(other.path))"
            return HlsProblem(path: path, line: line, text: isBack ? text + ", which refers back to it" : text)
        }
        let segments = entry.files.compactMap { identity -> HlsProblem? in
            guard let other = playlistFiles[identity],
                let claim = files[identity]?.claims.first(where: { $0.playlist === entry.record })
            else { return nil }
            return HlsProblem(path: path, line: claim.line, text: "names a playlist as a segment: \(shown(other.path))")
        }
        return Array((masters + segments).prefix(HlsIndex.maximumProblems))
    }

    /// Files on which playlists contradict each other, as problems of the first playlist.
    fileprivate func conflicts(limit: Int) -> [HlsProblem] {
        var found: [HlsProblem] = []
        for (identity, file) in files where !file.rest.isEmpty && playlistFiles[identity] == nil {
            guard found.count < limit else { break }
            do throws(ViewError) {
                _ = try HlsClaimMerge(file.claims, size: file.size).segment()
            } catch {
                // A playlist that cannot be shown is listed already.
                guard case .malformed(let text) = error, let claim = file.claims.first(where: { !$0.isFailed }) else {
                    continue
                }
                found.append(HlsProblem(path: claim.playlist.path, line: claim.line, text: text))
            }
        }
        return found
    }
}
