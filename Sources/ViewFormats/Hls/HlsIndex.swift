internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Knows the playlists of a source, and by them how its other files are encrypted. Any thread; the disk is never waited for
/// with the lock held.
package final class HlsIndex: Sendable {
    package let tree: HlsTree
    let state: Mutex<HlsState>

    /// - Parameters:
    ///   - root: the source, opened O_RDONLY|O_DIRECTORY.
    ///   - maximumSegments: maximum number of segments that are kept for all playlists together, in about 500 bytes
    ///     each.
    package init(root: Descriptor, maximumSegments: Int = 1 << 19) {
        tree = HlsTree(root)
        state = Mutex(HlsState(maximumClaims: maximumSegments))
    }

    /// Whether a file of this name is read as a playlist, if it is one.
    package static func isPlaylistName(_ name: [UInt8]) -> Bool {
        let ending = name[(name.lastIndex(of: UInt8(ascii: ".")) ?? name.endIndex)...].map { $0 | 0x20 }
        return ending.elementsEqual(".m3u8".utf8) || ending.elementsEqual(".m3u".utf8)
    }

    /// What a file is.
    ///
    /// - Parameters:
    ///   - size: bytes of the file.
    ///   - path: relative to the source. The file may have come there since its playlist was read, or be another one
    ///     that has the inode number of a segment which is gone: then the playlist is read again.
    package func content(of identity: FileIdentity, size: UInt64, path: [UInt8]) -> HlsContent {
        switch state.withLock({ $0.knowledge(of: identity, at: path) }) {
        case .sure: break
        case .place(let place, let playlists):
            if let status = try? tree.place(place).status(), FileIdentity(status) == identity { break }
            for playlist in playlists { _ = try? read(playlist) }
        case .named(let playlist):
            _ = try? read(playlist)
            state.withLock { $0.forget(name: path, of: identity) }
        }
        let content = state.withLock { $0.content(of: identity, size: size) }
        guard mayBeOutdated(content, identity, path) else { return content }
        return state.withLock { $0.content(of: identity, size: size) }
    }

    /// Looks again at what may be behind an answer that nobody would like to have wrongly. True where something has changed.
    private func mayBeOutdated(_ content: HlsContent, _ identity: FileIdentity, _ path: [UInt8]) -> Bool {
        switch content {
        // A new playlist, or one that came here with its directory, may say how the file is encrypted.
        case .plain: return scanIfChanged(above: path)
        // One of two playlists that contradict each other may be gone.
        case .failed:
            let playlists = state.withLock { $0.playlists(naming: identity) }
            if playlists.count < 2 { return false }
            for playlist in playlists { refresh(playlist) }
            return true
        case .playlist, .segment: return false
        }
    }

    /// The path under which a playlist was read, of which the file may have others: what it refers to is relative to that one.
    package func playlistPath(of identity: FileIdentity) -> [UInt8]? {
        state.withLock { $0.playlistFiles[identity]?.path }
    }

    /// Reads a playlist again where it is not the file that was read, and one that is new. To be called when a file with a
    /// playlist's name is looked up; what is no longer there is forgotten.
    package func refresh(_ path: [UInt8]) {
        let known = state.withLock { $0.playlists[path]?.record.stamp }
        if let known, let file = try? tree.place(path), let status = try? file.status(), FileStamp(status) == known {
            return
        }
        _ = try? read(path)
    }

    /// What the mount shows of a playlist; nil where the file is none, and shown as it is. To be called at each open: the
    /// playlist is read, and its segments are looked up, anew.
    ///
    /// - Throws: `.malformed` where it cannot be shown decrypted, `.store` where it cannot be read.
    package func open(_ path: [UInt8]) throws(ViewError) -> HlsPlaylistContent? {
        let reading: HlsReading
        let record: HlsPlaylistRecord
        do throws(StoreError) {
            (reading, record) = try read(path)
        } catch {
            throw .store(error)
        }
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
                } else if let segment = state.segment(of: target.identity), segment.isRanged {
                    positions[target.identity] = needed.count
                    numbers[number] = needed.count
                    needed.append(.init(identity: target.identity, path: target.path, segment: segment))
                }
            }
        }
        return HlsPlaylistContent(playlist, needed: needed, numbers: numbers)
    }

    /// Reads a playlist, and takes over what it says.
    private func read(_ path: [UInt8]) throws(StoreError) -> (HlsReading, HlsPlaylistRecord) {
        let reading: HlsReading
        do throws(StoreError) {
            reading = try HlsReading(path, in: tree)
        } catch {
            state.withLock {
                $0.remove(path)
                $0.note(path, error)
            }
            throw error
        }
        return (reading, state.withLock { $0.replace(with: reading) })
    }
}
