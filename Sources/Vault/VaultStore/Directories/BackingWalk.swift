package import Glibc
package import LinuxSystem
internal import VaultFormat

package protocol WalkedDirectory {
    var descriptor: Descriptor { get }
    /// Opens a directory in this one.
    /// - Throws: errno of openat(2); `ENOTDIR` or `ELOOP` for anything but a directory.
    func inner(_ entry: Component) throws(StoreError) -> Self
    /// Returns a value shared only by directories with the same secret (FileFormat: Directory-4). Nil if it is unknown.
    func identity() -> [UInt8]?
}

extension Descriptor: WalkedDirectory {
    package var descriptor: Descriptor { self }

    package func inner(_ entry: Component) throws(StoreError) -> Descriptor {
        try Descriptor(at: self, entry, flags: O_RDONLY | O_DIRECTORY)
    }

    /// Returns the record, because the secret is unknown without keys. A rare change of class changes it too.
    package func identity() -> [UInt8]? { try? OpenDirectory.readRecord(of: self) }
}

/// A depth-first walk through all objects of a vault whose backing entry may be a name. It follows no link. It needs no
/// key, because it looks only at the stored names. Used by one thread.
package struct BackingWalk<Directory: WalkedDirectory> {
    package struct Found {
        package let entry: Component
        package let directory: Directory
        /// The result of fstatat(2) for the entry.
        package let status: stat
    }

    package enum Step {
        /// A directory is found before its content.
        case found(Found)
        /// The walk has visited everything in the directory.
        case left(Directory)
        /// An entry, or if nil the directory itself, could not be read.
        case failed(Component?, Directory, StoreError)
    }

    private struct Frame {
        /// Nil for the root.
        let entry: Component?
        let directory: Directory
        let identity: [UInt8]?
        var reader: DirectoryReader
        /// The remaining entries, the next one last, if they were read ahead.
        var entries: [Component]?
    }

    private let readsAhead: Bool
    private let includesConflictCopies: Bool
    /// The directories from the root to the current one.
    private var path: [Frame]
    /// The identities of the directories in `path`.
    private var identities: Set<[UInt8]> = []
    /// The directory returned last. The walk continues in it.
    private var entered: Found?

    /// - Parameters:
    ///   - root: open for reading, for this walk only.
    ///   - readsAhead: true to read all names of a directory before returning the first. Needed if the caller replaces
    ///     entries, because getdents(2) may leave out entries of a changing directory.
    ///   - includesConflictCopies: true to visit conflict copies and their content too.
    package init(_ root: Directory, readsAhead: Bool = false, includesConflictCopies: Bool = false) {
        self.readsAhead = readsAhead
        self.includesConflictCopies = includesConflictCopies
        path = []
        append(root, entry: nil, root.identity())
    }

    private mutating func append(_ directory: Directory, entry: Component?, _ identity: [UInt8]?) {
        let reader = DirectoryReader(directory.descriptor)
        path.append(Frame(entry: entry, directory: directory, identity: identity, reader: reader))
        if let identity { identities.insert(identity) }
    }

    private mutating func removeLast() {
        if let identity = path.removeLast().identity { identities.remove(identity) }
    }

    /// Returns the backing path of an entry of the current directory.
    package func path(of entry: Component) -> [UInt8] {
        Array((path.compactMap(\.entry) + [entry]).joined(separator: [UInt8(ascii: "/")]))
    }

    /// Returns the next entry, or nil at the end.
    package mutating func nextEntry(
        onFailure: (_ entry: Component?, _ directory: Directory, StoreError) -> Void
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

    package mutating func next() -> Step? {
        if let found = entered {
            entered = nil
            do throws(StoreError) {
                let inner = try found.directory.inner(found.entry)
                let identity = inner.identity()
                if let identity, identities.contains(identity) { throw OpenDirectory.repeated }
                append(inner, entry: found.entry, identity)
            } catch {
                return .failed(found.entry, found.directory, error)
            }
        }
        while let last = path.indices.last {
            let directory = path[last].directory
            let next: Component?
            do throws(StoreError) { next = try nextName(last) } catch {
                removeLast()
                return .failed(nil, directory, error)
            }
            guard let entry = next else {
                removeLast()
                return .left(directory)
            }
            guard
                EntryName.isObject(entry.bytes)
                    || includesConflictCopies && EntryName.kind(of: entry.bytes) == .conflictCopy
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

    private mutating func nextName(_ index: Int) throws(StoreError) -> Component? {
        guard readsAhead else { return try path[index].reader.next() }
        if path[index].entries == nil { path[index].entries = try path[index].directory.descriptor.allEntries() }
        return path[index].entries?.popLast()
    }
}
