internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization

extension HlsIndex {
    /// How deep directories may be inside each other.
    private static let maximumDepth = 128

    /// Reads every playlist of the tree. One directory is open at a time; links to directories are not followed. Playlists
    /// are found by their files, so it does not matter how they refer to each other.
    ///
    /// - Throws: where the source itself cannot be read; what cannot be read inside it is a problem.
    package func scan() throws(StoreError) {
        try scan(from: [], again: true)
    }

    /// Scans the directories that a path leads through, where they are new or their entries have changed since they were
    /// read. True where there was one.
    func scanIfChanged(above path: [UInt8]) -> Bool {
        var directory = path
        var hasChanged = false
        while !directory.isEmpty {
            directory = HlsURI.directory(of: directory)
            if scanIfChanged(directory) { hasChanged = true }
        }
        return hasChanged
    }

    /// As `scan`, from one directory; those in it that are known are not read again.
    private func scanIfChanged(_ path: [UInt8]) -> Bool {
        guard let directory = try? tree.directory(path), let status = try? directory.status(),
            state.withLock({ $0.directories[path] }) != FileStamp(status)
        else { return false }
        return (try? scan(from: path, again: false)) != nil
    }

    /// - Parameter again: whether directories in it that are known are read again.
    private func scan(from start: [UInt8], again: Bool) throws(StoreError) {
        var waiting: [(path: [UInt8], depth: Int)] = []
        try scan(start, depth: start.count { $0 == UInt8(ascii: "/") } + (start.isEmpty ? 0 : 1), &waiting)
        while let (path, depth) = waiting.popLast() {
            if !again, state.withLock({ $0.directories[path] != nil }) { continue }
            do throws(StoreError) {
                try scan(path, depth: depth, &waiting)
            } catch {
                state.withLock { $0.note(path, error) }
            }
        }
    }

    private func scan(
        _ path: [UInt8], depth: Int, _ waiting: inout [(path: [UInt8], depth: Int)]
    ) throws(StoreError) {
        let directory = try tree.directory(path)
        // Taken before its entries, so that what changes meanwhile is seen the next time.
        let stamp = FileStamp(try directory.status())
        var reader = DirectoryReader(directory)
        while let entry = try reader.next() {
            let inside = path.isEmpty ? entry.name : path + [UInt8(ascii: "/")] + entry.name
            if Self.isDirectory(entry, in: directory) {
                guard depth < Self.maximumDepth else {
                    state.withLock { $0.note(inside, .damaged("more than \(Self.maximumDepth) directories deep")) }
                    continue
                }
                waiting.append((inside, depth + 1))
            } else if Self.isPlaylistName(entry.name) {
                refresh(inside)
            }
        }
        state.withLock { $0.noteDirectory(path, stamp) }
    }

    private static func isDirectory(_ entry: DirectoryReader.Entry, in directory: Descriptor) -> Bool {
        guard entry.type == UInt8(DT_UNKNOWN) else { return entry.type == UInt8(DT_DIR) }
        return (try? directory.status(of: entry.name)).map { $0.st_mode & S_IFMT == S_IFDIR } ?? false
    }
}
