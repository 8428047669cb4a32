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
