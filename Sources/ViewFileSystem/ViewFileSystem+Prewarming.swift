internal import BackingStore
internal import CLinux
internal import Glibc
internal import MountedFileSystem
internal import Synchronization
internal import SystemPackage
internal import ViewFormats

/// Keys are fetched before anybody opens a file: after a directory was listed, or all of them (`--prewarm`).
extension ViewFileSystem {
    /// All of the tree.
    package func prewarm() {
        prewarming.add(.init(descriptor: source.root, path: [], isWhole: true))
    }

    package func runInBackground() {
        while let work = prewarming.next() {
            // What cannot be read is an error when it is opened.
            try? prewarm(work)
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
        guard source.fetchesAhead, !node.wasListed.exchange(true, ordering: .relaxed),
            let descriptor = try? directory(node)
        else { return }
        prewarming.add(.init(descriptor: descriptor, path: path(of: node), isWhole: false))
    }

    private func prewarm(_ work: Prewarming.Work) throws(StoreError) {
        let listed = try Descriptor(at: work.descriptor.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        var reader = DirectoryReader(listed)
        var wanted: [KeyName] = []
        // For messages: a file that wants it.
        var files: [KeyName: [UInt8]] = [:]
        while !prewarming.isEnding, let entry = try reader.next() {
            guard source.shows(entry.name, inRoot: work.path.isEmpty) else { continue }
            let path = work.path.isEmpty ? entry.name : work.path + [UInt8(ascii: "/")] + entry.name
            guard let status = try? listed.status(of: entry.name) else { continue }
            if status.st_mode & S_IFMT == S_IFDIR, work.isWhole {
                guard let below = try? Descriptor(at: listed.fd, entry.name, flags: linux_O_PATH | O_DIRECTORY)
                else { continue }
                try prewarm(.init(descriptor: below, path: path, isWhole: true))
            } else if status.st_mode & S_IFMT == S_IFREG {
                for name in keyNames(of: entry.name, path, in: listed) where files[name] == nil {
                    files[name] = path
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
