package import Glibc
package import LinuxSystem
internal import VaultFormat

/// A directory that a `BackingWalk` goes through.
package protocol WalkedDirectory {
    var descriptor: Descriptor { get }
    /// Opens a directory in this one.
    /// - Throws: errno of openat(2); `ENOTDIR` or `ELOOP` for anything but a directory.
    func inner(_ entry: [UInt8]) throws(StoreError) -> Self
    /// Returns a value that only a directory with the same secret has (FileFormat: Directory-4). Nil if it is unknown.
    func identity() -> [UInt8]?
}

extension Descriptor: WalkedDirectory {
    package var descriptor: Descriptor { self }

    package func inner(_ entry: [UInt8]) throws(StoreError) -> Descriptor {
        try Descriptor(at: fd, entry, flags: O_RDONLY | O_DIRECTORY)
    }

    /// The record, because its secret is unknown without keys. A change of class makes another one, but few.
    package func identity() -> [UInt8]? { try? OpenDirectory.readRecord(of: self).bytes }
}

/// Visits every object of a vault whose backing entry may be a name, depth first, following no link. It needs no key,
/// because it looks only at the stored names. Used by one thread.
package struct BackingWalk<Directory: WalkedDirectory> {
    /// An entry of a directory.
    package struct Found {
        package let entry: [UInt8]
        package let directory: Directory
        /// The result of fstatat(2) for the entry.
        package let status: stat
    }

    package enum Step {
        /// A directory is found before its content.
        case found(Found)
        /// Everything in the directory has been visited.
        case left(Directory)
        /// An entry, or if nil the directory itself, could not be read.
        case failed([UInt8]?, Directory, StoreError)
    }

    private struct Frame {
        let entry: [UInt8]
        let directory: Directory
        let identity: [UInt8]?
        var reader: DirectoryReader

        init(entry: [UInt8], directory: Directory, identity: [UInt8]?) {
            (self.entry, self.directory, self.identity) = (entry, directory, identity)
            reader = DirectoryReader(directory.descriptor)
        }

        /// The entries to come, the next one last, if they were read ahead.
        var entries: [[UInt8]]?
    }

    private let readsAhead: Bool
    private let includesConflictCopies: Bool
    /// From the root to the directory being read.
    private var path: [Frame]
    /// The directory that was returned last. The walk continues in it.
    private var entered: Found?

    /// - Parameters:
    ///   - root: open for reading, and read by nothing else.
    ///   - readsAhead: reads all names of a directory before the first is returned. Needed if the caller replaces
    ///     entries: getdents(2) may leave out entries of a directory that changes.
    ///   - includesConflictCopies: also visits conflict copies and what is in them.
    package init(_ root: Directory, readsAhead: Bool = false, includesConflictCopies: Bool = false) {
        self.readsAhead = readsAhead
        self.includesConflictCopies = includesConflictCopies
        path = [Frame(entry: [], directory: root, identity: root.identity())]
    }

    /// The backing path of an entry of the directory being read.
    package func path(of entry: [UInt8]) -> [UInt8] {
        Array((path.dropFirst().map(\.entry) + [entry]).joined(separator: [UInt8(ascii: "/")]))
    }

    /// Returns the next entry, or nil at the end.
    package mutating func nextEntry(
        onFailure: (_ entry: [UInt8]?, _ directory: Directory, StoreError) -> Void
    ) -> Found? {
        while let step = next() {
            switch step {
            case .found(let found): return found
            case .left: continue
            case .failed(let entry, let directory, let error): onFailure(entry, directory, error)
            }
        }
        return nil
    }

    /// Returns nil at the end.
    package mutating func next() -> Step? {
        if let found = entered {
            entered = nil
            do throws(StoreError) {
                let inner = try found.directory.inner(found.entry)
                let identity = inner.identity()
                if let identity, path.contains(where: { $0.identity == identity }) { throw OpenDirectory.repeated }
                path.append(Frame(entry: found.entry, directory: inner, identity: identity))
            } catch {
                return .failed(found.entry, found.directory, error)
            }
        }
        while let last = path.indices.last {
            let directory = path[last].directory
            let next: [UInt8]?
            do throws(StoreError) { next = try nextName(last) } catch {
                path.removeLast()
                return .failed(nil, directory, error)
            }
            guard let entry = next else {
                path.removeLast()
                return .left(directory)
            }
            guard EntryName.isObject(entry) || includesConflictCopies && EntryName.kind(of: entry) == .conflictCopy
            else { continue }
            do throws(StoreError) {
                let status = try directory.descriptor.status(of: entry)
                let found = Found(entry: entry, directory: directory, status: status)
                if status.st_mode & S_IFMT == S_IFDIR { entered = found }
                return .found(found)
            } catch {
                return .failed(entry, directory, error)
            }
        }
        return nil
    }

    private mutating func nextName(_ index: Int) throws(StoreError) -> [UInt8]? {
        guard readsAhead else { return try path[index].reader.next()?.name }
        if path[index].entries == nil {
            var entries: [[UInt8]] = []
            while let entry = try path[index].reader.next() { entries.append(entry.name) }
            path[index].entries = entries
        }
        return path[index].entries?.popLast()
    }
}
