internal import Glibc
package import LinuxSystem
internal import Synchronization

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
            let inside = joinedPath(path, entry.name)
            if Self.isDirectory(entry, in: directory) {
                if depth < Self.maximumDepth {
                    waiting.append(inside)
                } else {
                    state.withLock {
                        $0.addUnreadable(inside, .damaged("more than \(Self.maximumDepth) directories deep"))
                    }
                }
            } else if Self.isPlaylistName(entry.name) {
                refresh(inside)
            }
        }
        state.withLock { $0.addDirectory(path, stamp) }
    }

    private static func isDirectory(_ entry: DirectoryReader.Entry, in directory: Descriptor) -> Bool {
        guard entry.type == UInt8(DT_UNKNOWN) else { return entry.type == UInt8(DT_DIR) }
        return (try? directory.status(of: entry.name)).map { $0.st_mode & S_IFMT == S_IFDIR } ?? false
    }
}
