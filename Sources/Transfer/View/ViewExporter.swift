internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import SystemPackage
package import ViewFormats

/// Decrypts a view's files to real ones: a file, or a whole tree. One thread, in memory that does not grow with the files.
///
/// A file is written under another name beside its own, which it gets when it is whole and on disk: an export that was
/// interrupted, however, goes on where it was, and no file that is half there looks whole. Nothing that is at the
/// destination is ever replaced.
package final class ViewExporter {
    /// How deep directories may be inside each other.
    static let maximumDepth = 128

    let source: ViewSource
    let observer: ExportObserver
    let workspace: ViewWorkspace
    let cache: BlockCache
    let counters = Counters()
    let interval: UInt64
    let mask: mode_t
    package internal(set) var totals = ExportTotals()
    var lastToken: UInt64 = 0

    /// - Parameter interval: after how many bytes of a file they are made durable, at which an export can go on: the fewer,
    ///   the less is done again, but the slower is a busy disk. A multiple of ``ViewWorkspace/replySize``.
    package init(
        source: ViewSource, observer: ExportObserver, interval: UInt64 = 256 << 20
    ) throws(ViewError) {
        self.interval = interval
        self.source = source
        self.observer = observer
        workspace = try ViewWorkspace()
        // Files are read once, in order.
        do throws(StoreError) {
            cache = try BlockCache(capacity: ViewWorkspace.pageSize, blockSize: ViewWorkspace.pageSize)
        } catch {
            throw .store(error)
        }
        // umask(2) tells only by setting it.
        mask = umask(0o077)
        umask(mask)
    }

    /// Exports everything that the source shows into a directory, the names being the same.
    /// - Parameter destination: open for reading.
    package func exportTree(into destination: Descriptor) throws(ExportError) {
        let root: ExportDirectory
        let isInside: Bool
        do throws(StoreError) {
            try source.scan()
            root = try ExportDirectory(destination)
            isInside = try root.descriptor.isInside(source.root)
        } catch {
            throw .unusable(path: [], error)
        }
        if isInside { throw .insideSource }
        try attempt([]) { () throws(EntryFailure) in
            try exportDirectory(source.root, into: root, path: [], depth: 0)
        }
    }

    /// Exports the one file that the source shows.
    /// - Parameters:
    ///   - name: what it is called at the destination.
    ///   - destination: the directory, open for reading.
    package func exportFile(as name: [UInt8], into destination: Descriptor) throws(ExportError) {
        let directory: ExportDirectory
        do throws(StoreError) {
            try source.scan()
            directory = try ExportDirectory(destination)
        } catch {
            throw .unusable(path: [], error)
        }
        let file = source.onlyName ?? name
        try attempt(file) { () throws(EntryFailure) in
            try exportFile(file, of: source.root, as: name, into: directory, path: file)
            try writingEntry([]) { () throws(StoreError) in try directory.finish(modified: nil) }
        }
    }

    /// Runs `body`, and reports what of it concerns this path alone.
    func attempt(_ path: [UInt8], _ body: () throws(EntryFailure) -> Void) throws(ExportError) {
        guard observer.goesOn(totals) else { throw .stopped }
        do throws(EntryFailure) {
            try body()
        } catch {
            let text: String
            switch error {
            case .whole(let error): throw error
            case .entry(let message): text = message
            }
            // Whoever stops an export fails who waits for a key.
            guard observer.goesOn(totals) else { throw .stopped }
            totals.failures += 1
            observer.failed(path, text)
        }
    }

    // MARK: Directories

    private func exportDirectory(
        _ directory: Descriptor, into destination: ExportDirectory, path: [UInt8], depth: Int
    ) throws(EntryFailure) {
        guard depth <= Self.maximumDepth else { throw .entry("more than \(Self.maximumDepth) directories deep") }
        let listed = try readingView { () throws(StoreError) in
            try Descriptor(at: directory.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        }
        let status = try readingView { () throws(StoreError) in try listed.status() }
        var reader = DirectoryReader(listed)
        while let entry = try readingView({ () throws(StoreError) in try reader.next() }) {
            guard source.shows(entry.name, inRoot: depth == 0) else { continue }
            let inside = path.isEmpty ? entry.name : path + [UInt8(ascii: "/")] + entry.name
            do throws(ExportError) {
                try attempt(inside) { () throws(EntryFailure) in
                    try export(entry.name, of: listed, into: destination, path: inside, depth: depth)
                }
            } catch {
                throw .whole(error)
            }
        }
        try writingEntry(path) { () throws(StoreError) in try destination.finish(modified: status.st_mtim) }
        totals.directories += 1
    }

    private func export(
        _ name: [UInt8], of directory: Descriptor, into destination: ExportDirectory, path: [UInt8], depth: Int
    ) throws(EntryFailure) {
        let status = try readingView { () throws(StoreError) in try directory.status(of: name) }
        switch status.st_mode & S_IFMT {
        case S_IFREG:
            try exportFile(name, of: directory, as: name, into: destination, path: path)
        case S_IFLNK:
            try exportLink(name, of: directory, into: destination, path: path, modified: status.st_mtim)
        case S_IFDIR:
            let below = try readingView { () throws(StoreError) in
                try Descriptor(at: directory.fd, name, flags: O_RDONLY | O_DIRECTORY)
            }
            let made = try writingEntry(path) { () throws(StoreError) in try destination.enter(name) }
            try exportDirectory(below, into: made, path: path, depth: depth + 1)
        default:
            throw .entry("neither a file nor a directory nor a link")
        }
    }

    /// Links are copied as they are, wherever they lead.
    private func exportLink(
        _ name: [UInt8], of directory: Descriptor, into destination: ExportDirectory, path: [UInt8], modified: timespec
    ) throws(EntryFailure) {
        let target = try readingView { () throws(StoreError) in try directory.linkTarget(of: name) }
        if let status = try writingEntry(path, { () throws(StoreError) in try destination.status(of: name) }) {
            guard status.st_mode & S_IFMT == S_IFLNK, (try? destination.descriptor.linkTarget(of: name)) == target
            else {
                throw .occupied
            }
            // A kill may have come before it had it. Another's link keeps its own.
            try? destination.setModified(modified, ofLink: name)
            totals.present += 1
            return
        }
        try writingEntry(path) { () throws(StoreError) in
            try destination.makeLink(name, to: target, modified: modified)
        }
        totals.links += 1
    }
}
