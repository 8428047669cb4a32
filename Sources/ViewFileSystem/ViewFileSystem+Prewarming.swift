internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import ViewFormats

/// Keys are fetched before anybody opens a file: after a directory was listed, or all of them (`--prewarm`).
extension ViewFileSystem {
    /// How deep directories may be inside each other.
    private static let maximumDepth = 128

    /// All of the tree.
    package func prewarm() {
        prewarming.add(.init(node: nodes.root, isWhole: true))
    }

    package func runInBackground() {
        while let work = prewarming.next() {
            // What cannot be read is an error when it is opened.
            guard let descriptor = try? directory(work.node) else { continue }
            try? prewarm(descriptor, path(of: work.node), depth: work.isWhole ? Self.maximumDepth : 0)
        }
    }

    package func shutDown() {
        prewarming.end()
    }

    package func endDeferred() {
        prewarming.end()
        quickOpens.end()
        commandOpens.end()
    }

    /// Once for each directory: a listing that came to its end.
    func wasListed(_ node: ViewNode) {
        guard source.fetchesAhead, !node.wasListed.exchange(true, ordering: .relaxed) else { return }
        prewarming.add(.init(node: node, isWhole: false))
    }

    /// - Parameter depth: how many directories in each other to go into.
    private func prewarm(_ directory: Descriptor, _ path: [UInt8], depth: Int) throws(StoreError) {
        let listed = try Descriptor(at: directory.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        var reader = DirectoryReader(listed)
        var wanted: [KeyName] = []
        // For messages: a file that wants it.
        var files: [KeyName: [UInt8]] = [:]
        while !prewarming.isEnding, let entry = try reader.next() {
            guard source.shows(entry.name, inRoot: path.isEmpty) else { continue }
            let inside = path.isEmpty ? entry.name : path + [UInt8(ascii: "/")] + entry.name
            guard let status = try? listed.status(of: entry.name) else { continue }
            if status.st_mode & S_IFMT == S_IFDIR, depth > 0 {
                guard let below = try? Descriptor(at: listed.fd, entry.name, flags: linux_O_PATH | O_DIRECTORY)
                else { continue }
                // One that cannot be read is no reason to leave out the others.
                try? prewarm(below, inside, depth: depth - 1)
            } else if status.st_mode & S_IFMT == S_IFREG {
                for name in keyNames(of: entry.name, inside, in: listed) where files[name] == nil {
                    files[name] = inside
                    wanted.append(name)
                }
            }
        }
        if !gate.isUnlocked() { return }
        source.keys.prefetch(wanted) { [fileProblems, source, files] name, outcome in
            // Another may have been luckier meanwhile.
            guard case .failure(.noKey(let text)) = outcome, source.keys.find(name) == nil, let file = files[name]
            else { return }
            fileProblems.note(text, of: file)
        }
    }

    /// The keys of a file that are not in memory.
    private func keyNames(of name: [UInt8], _ path: [UInt8], in directory: Descriptor) -> [KeyName] {
        guard let file = try? Descriptor(at: directory.fd, name, flags: O_RDONLY | O_NONBLOCK),
            let status = try? file.status(), status.st_mode & S_IFMT == S_IFREG,
            let plan = try? source.plan(for: path, SourceFile(file, size: UInt64(max(0, status.st_size))), status)
        else { return [] }
        return plan.keyNames.filter { source.keys.find($0) == nil }
    }
}
