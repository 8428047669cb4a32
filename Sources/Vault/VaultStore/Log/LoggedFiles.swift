internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// The files to which the changes in a log belong. A file is its name and its id (FileFormat: Log-5), because other
/// programs may have copied backing files, with their ids, to any name in the vault's directory.
struct LoggedFiles {
    /// The standing of an entry's path in the vault. Among the files of an id, only those with the best standing count.
    fileprivate enum Standing: Int, Comparable {
        /// Each name of the path authenticates in its directory.
        case named
        /// Some name cannot be checked, because a record or a sidecar is lost.
        case unproven
        /// Some name is not one of its directory, because another program has made it.
        case foreign

        static func < (one: Standing, other: Standing) -> Bool { one.rawValue < other.rawValue }
    }

    /// A file with the id of logged changes.
    struct Candidate {
        /// From the vault's root.
        let path: [UInt8]
        fileprivate let standing: Standing
        fileprivate let identity: FileIdentity
        fileprivate let isLinked: Bool

        /// Opens the file for reading.
        func open(in store: Store) throws(StoreError) -> Descriptor {
            let (directory, entry) = try store.root.locate(path)
            return try LoggedFiles.open(entry, in: directory)
        }
    }

    /// A directory on the way from the root. Its keys are derived on demand, because few are needed.
    private final class Directory: WalkedDirectory {
        let descriptor: Descriptor
        /// Its parent, and its entry there. Nil for the root.
        private let above: (directory: Directory, entry: Component)?
        private let keyRing: KeyRing
        /// The directory's own standing, and the keys of its names, once needed. The keys are nil if the record is
        /// damaged.
        private var known: (standing: Standing, keys: DirectoryKeys?)?

        init(_ descriptor: Descriptor, in above: (Directory, Component)?, _ keyRing: KeyRing) {
            (self.descriptor, self.above, self.keyRing) = (descriptor, above, keyRing)
        }

        func inner(_ entry: Component) throws(StoreError) -> Directory {
            Directory(try descriptor.inner(entry), in: (self, entry), keyRing)
        }

        func identity() -> [UInt8]? { descriptor.identity() }

        /// - Parameter entry: nil for the directory itself.
        /// - Throws: the error of reading a record or a sidecar.
        func standing(of entry: Component?) throws(StoreError) -> Standing {
            let (standing, keys) = try knowing()
            guard let entry else { return standing }
            guard EntryName.canBeEncrypted(entry.bytes) else { return .foreign }
            guard let keys else { return max(standing, .unproven) }
            let isLong = EntryName.kind(of: entry.bytes) == .longName
            let sidecar = isLong ? try descriptor.readSidecar(of: entry) : nil
            if EntryName.decode(entry.bytes, sidecarBlob: sidecar, keys: keys) != nil { return standing }
            return isLong && sidecar == nil ? max(standing, .unproven) : .foreign
        }

        private func knowing() throws(StoreError) -> (standing: Standing, keys: DirectoryKeys?) {
            if let known { return known }
            let standing = try above?.directory.standing(of: above?.entry) ?? .named
            var keys: DirectoryKeys?
            do throws(StoreError) { keys = try OpenDirectory.openRecord(of: descriptor, keyRing).keys } catch .damaged {
            }
            let found = (standing: standing, keys: keys)
            known = found
            return found
        }
    }

    private let changes: [UInt64: LoggedChanges]
    private let keyRing: KeyRing
    private var candidates: [UInt64: [Candidate]] = [:]

    /// Walks the tree and finds the files.
    /// - Throws: the reason why some file may not have been found.
    init(_ changes: [UInt64: LoggedChanges], in store: Store) throws(StoreError) {
        (self.changes, keyRing) = (changes, store.keyRing)
        let root = Directory(try store.root.openedForReading(), in: nil, keyRing)
        var walk = BackingWalk(root, includesConflictCopies: true)
        var unseen: StoreError?
        func fail(_ entry: Component?, _ directory: Directory, _ error: StoreError) {
            // The mount refuses a repeated directory too. Other programs' directories may be unreadable.
            if case .damaged = error { return }
            if (try? directory.standing(of: entry)) != .foreign { unseen = unseen ?? error }
        }
        while let found = walk.nextEntry(onFailure: fail) {
            do throws(StoreError) { try check(found, walk) } catch { fail(found.entry, found.directory, error) }
        }
        if let unseen, changes.keys.contains(where: { files($0).isEmpty }) { throw unseen }
    }

    /// Adds a file if it has the id of logged changes.
    private mutating func check(
        _ found: BackingWalk<Directory>.Found, _ walk: borrowing BackingWalk<Directory>
    ) throws(StoreError) {
        guard found.status.st_mode & S_IFMT == S_IFREG, found.status.st_size >= off_t(FileHeader.size) else { return }
        let reader = try Self.open(found.entry, in: found.directory.descriptor)
        let fileID = try StoredHeader.unprovenFileID(of: reader)
        guard let changes = changes[fileID] else { return }
        let standing = try found.directory.standing(of: found.entry)
        // Skip an older copy of a file removed since. A rename would have set ctime, from a late clock.
        if standing == .foreign, found.status.st_ctim.nanoseconds + fileTimeDelay < changes.time { return }
        let identity = FileIdentity(found.status)
        let isKnown = candidates[fileID]?.contains { $0.identity == identity && $0.standing <= standing } ?? false
        if isKnown { return }
        let isLinked = (try? StoredHeader(of: reader, keyRing: keyRing))?.header.isLinked ?? false
        candidates[fileID, default: []].append(
            Candidate(path: walk.path(of: found.entry), standing: standing, identity: identity, isLinked: isLinked))
    }

    /// Returns the files to which the changes of this id belong. Empty if the file was removed.
    func files(_ fileID: UInt64) -> [Candidate] {
        let all = candidates[fileID] ?? []
        guard let best = all.map(\.standing).min() else { return [] }
        return all.filter { $0.standing == best }
    }

    /// True if there are several, and it is unknown to which the changes belong. Copies of a linked file do not count
    /// (FileFormat: Header-8), nor do copies by other programs, because the file was probably removed.
    func isAmbiguous(_ fileID: UInt64) -> Bool {
        let files = files(fileID)
        return files.count > 1 && !files.allSatisfy { $0.isLinked || $0.standing == .foreign }
    }

    private static func open(_ entry: Component, in directory: Descriptor) throws(StoreError) -> Descriptor {
        do throws(StoreError) {
            return try Descriptor(at: directory, entry, flags: O_RDONLY | O_NONBLOCK)
        } catch .system(.permissionDenied) {
            // A program may have written the file, and then denied reading to its own user.
            return try Descriptor(at: directory, entry, flags: linux_O_PATH).reopenedForWriting()
        }
    }
}
