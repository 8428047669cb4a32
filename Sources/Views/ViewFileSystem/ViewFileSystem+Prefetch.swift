internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import ViewFormats

/// The directories whose files' keys are prefetched, in order.
struct PrefetchQueue {
    struct Directory {
        /// Opened at its turn: a listing of a large tree is faster than the prefetch, and descriptors are scarce.
        var node: ViewNode
        /// With all directories below.
        var isWholeTree: Bool
    }

    /// Further listings are ignored.
    private static let maximumCount = 10_000

    private var directories: [Directory] = []
    var isEnding = false

    mutating func add(_ node: ViewNode, isWholeTree: Bool) {
        if directories.count < Self.maximumCount { directories.append(.init(node: node, isWholeTree: isWholeTree)) }
    }

    mutating func next() -> Next<Directory> {
        if isEnding { return .end }
        return directories.isEmpty ? .wait : .item(directories.removeFirst())
    }
}

/// Prefetches keys: of a directory's files after it was listed, or of the whole tree (`--prewarm`).
extension ViewFileSystem {
    private static let maximumDepth = 128

    package func prefetchAll() { prefetches.update { $0.add(nodes.root, isWholeTree: true) } }

    package func runInBackground() {
        while let next = prefetches.next({ $0.next() }) {
            // An open reports what cannot be read.
            guard let descriptor = try? directory(next.node) else { continue }
            try? prefetch(descriptor, path(of: next.node), depth: next.isWholeTree ? Self.maximumDepth : 0)
        }
    }

    package func shutDown() { prefetches.update { $0.isEnding = true } }

    package func endDeferred() {
        prefetches.update { $0.isEnding = true }
        // Ends fetching a key with an error.
        source.keys.stop()
    }

    /// Call this at the end of a listing. Prefetches once for each directory.
    func wasListed(_ node: ViewNode) {
        guard source.prefetchesListed, !node.wasListed.exchange(true, ordering: .relaxed) else { return }
        prefetches.update { $0.add(node, isWholeTree: false) }
    }

    /// - Parameter depth: levels of directories below.
    private func prefetch(_ directory: Descriptor, _ path: [UInt8], depth: Int) throws(StoreError) {
        let listed = try directory.openedForReading()
        var reader = DirectoryReader(listed)
        var wanted: [KeyName] = []
        // For messages: a file that needs the key.
        var files: [KeyName: [UInt8]] = [:]
        while !prefetches.access({ $0.isEnding }), let entry = try reader.next() {
            guard source.shows(entry.name, inRoot: path.isEmpty) else { continue }
            let inside = joinedPath(path, entry.name)
            guard let status = try? listed.status(of: entry.name) else { continue }
            if status.st_mode & S_IFMT == S_IFDIR, depth > 0 {
                guard let below = try? Descriptor(at: listed.fd, entry.name, flags: linux_O_PATH | O_DIRECTORY)
                else { continue }
                // Go on after a directory that cannot be read.
                try? prefetch(below, inside, depth: depth - 1)
            } else if status.st_mode & S_IFMT == S_IFREG {
                for name in missingKeys(of: entry.name, inside, in: listed) where files[name] == nil {
                    files[name] = inside
                    wanted.append(name)
                }
            }
        }
        if !gate.isUnlocked() { return }
        source.keys.prefetch(wanted) { [fileProblems, source, files] name, outcome in
            // An open may have fetched it meanwhile.
            guard case .failure(.noKey(let text)) = outcome, source.keys.find(name) == nil, let file = files[name]
            else { return }
            fileProblems.add(text, of: file)
        }
    }

    /// The keys of a file that are not in memory.
    private func missingKeys(of name: [UInt8], _ path: [UInt8], in directory: Descriptor) -> [KeyName] {
        guard let file = try? Descriptor(at: directory.fd, name, flags: O_RDONLY | O_NONBLOCK),
            let status = try? file.status(), status.st_mode & S_IFMT == S_IFREG,
            let plan = try? source.plan(for: path, SourceFile(file, status), status)
        else { return [] }
        return plan.keyNames.filter { source.keys.find($0) == nil }
    }
}
