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
            return own + unreadable + state.conflicts(limit: Self.maximumProblems)
        }
        let ordered = found.sorted {
            if $0.path != $1.path { return $0.path.lexicographicallyPrecedes($1.path) }
            return ($0.line, $0.text) < ($1.line, $1.text)
        }
        return ordered.prefix(Self.maximumProblems).map { "\(HlsProblem.location($0.path, line: $0.line)): \($0.text)" }
    }
}

extension HlsState {
    /// Files on which playlists contradict each other, as problems of the first playlist.
    fileprivate func conflicts(limit: Int) -> [HlsProblem] {
        var found: [HlsProblem] = []
        for (identity, file) in files where file.claims.count > 1 && playlistFiles[identity] == nil {
            guard found.count < limit else { break }
            do throws(ViewError) {
                _ = try HlsClaimMerge(file.claims, size: file.size).segment()
            } catch {
                // A playlist that cannot be shown is listed already.
                guard case .malformed(let text) = error, let claim = file.claims.first(where: { $0.use != .failed })
                else { continue }
                found.append(HlsProblem(path: claim.playlist.path, line: claim.line, text: text))
            }
        }
        return found
    }
}
