internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// The directory in the vault's root for objects with lost names. It is an ordinary directory of the vault, of class
/// complete, and only the vault's owner can enter it. Used by one thread.
package struct LostAndFound {
    private static let maximumNames = 10_000

    let store: Store
    let opened: OpenDirectory
    private let owner: Owner?

    /// Opens or makes `lost+found`, or `lost+found-2` and so on if another object has the name. Throws `EEXIST` if all
    /// names are in use; `.damaged`, `.locked`, or `.system` with errno if the root cannot be opened or changed.
    package init(in store: Store) throws(StoreError) {
        let root = try Self.openRoot(of: store)
        let status = try root.descriptor.status()
        self.store = store
        owner = Owner.needed(uid: status.st_uid, gid: status.st_gid)
        for name in Self.names(Array("lost+found".utf8)) {
            if let found = try Self.open(name, in: root, owner) {
                opened = found
                return
            }
        }
        throw .system(.fileExists)
    }

    static func openRoot(of store: Store) throws(StoreError) -> OpenDirectory {
        let pinned = try store.root.openedAgain(flags: linux_O_PATH | O_DIRECTORY)
        return try OpenDirectory.open(pinned, isRoot: true, in: store)
    }

    /// Returns `name`, `name-2`, `name-3` …
    static func names(_ name: [UInt8]) -> some Sequence<[UInt8]> {
        (1...maximumNames).lazy.map { $0 == 1 ? name : name + Array("-\($0)".utf8) }
    }

    /// Returns nil if another object has the name.
    private static func open(_ name: [UInt8], in root: OpenDirectory, _ owner: Owner?) throws(StoreError)
        -> OpenDirectory?
    {
        let entry = try root.encode(name).entry
        var isNew = try root.descriptor.statusIfPresent(of: entry) == nil
        if isNew {
            do throws(StoreError) {
                try root.makeDirectory(name, mode: 0o700, owner: owner)
            } catch .system(.fileExists) {
                // Another thread has made it, for another file.
                isNew = false
            }
        }
        do throws(StoreError) {
            let pinned = try Descriptor(at: root.descriptor, entry, flags: linux_O_PATH | O_DIRECTORY)
            let opened = try OpenDirectory.open(pinned, isRoot: false, in: root.store)
            if isNew {
                try opened.changeClass(to: .complete)
                try root.synchronizeNames()
            }
            return opened
        } catch {
            if isNew { throw error }
            return nil
        }
    }

    /// Moves an entry here, and the content of a long name's sidecar into a file beside it.
    /// - Throws: `.damaged` for an entry that does not authenticate.
    package func moveHere(_ entry: Component, from directory: Descriptor) throws(StoreError) {
        guard let object = LostObject.find(entry, in: directory, store.keyRing) else {
            throw .damaged("it is damaged, and stays where it is")
        }
        let sidecar = EntryName.kind(of: entry.bytes) == .longName ? EntryName.sidecar(of: entry) : nil
        if let sidecar { try keepCopy(of: sidecar, from: directory, as: object.name + Array(".name".utf8)) }
        try move(entry, object, from: directory)
        if let sidecar { directory.removeQuietly(sidecar) }
    }

    /// Moves an entry here. Returns its new entry.
    @discardableResult
    private func move(
        _ entry: Component, _ object: LostObject, from directory: Descriptor
    ) throws(StoreError) -> Component {
        for name in Self.names(object.name) {
            let newEntry = try opened.encode(name).entry
            do throws(StoreError) {
                try directory.rename(entry, in: opened.descriptor, as: newEntry, flags: linux_RENAME_NOREPLACE)
                return newEntry
            } catch .system(.fileExists) {
                guard try FileIdentity(opened.status(of: newEntry)) == FileIdentity(object.status) else { continue }
                // The file is here already, under another name, and rename(2) would keep both.
                try opened.synchronizeNames()
                try directory.remove(entry)
                return newEntry
            }
        }
        throw .system(.fileExists)
    }

    /// Moves an object with a name of vaultfs's own here, even if it does not authenticate. Keeps the content of a file
    /// or the target of a link in a file, a directory with a new record, and any other object as it is.
    /// - Throws: `.system` with errno, and the errors of making an entry.
    package func keep(_ entry: Component, from directory: Descriptor, as name: [UInt8]) throws(StoreError) {
        guard let status = try directory.statusIfPresent(of: entry) else { return }
        switch status.st_mode & S_IFMT {
        case S_IFREG: try keepCopy(of: entry, from: directory, as: name)
        case S_IFLNK: try keep(try directory.linkTarget(of: entry), as: name)
        case S_IFDIR where LostObject.find(entry, in: directory, store.keyRing) != nil:
            return try moveHere(entry, from: directory)
        case S_IFDIR:
            let moved = try move(entry, LostObject(name: name, status: status), from: directory)
            // Do this after the move, because with its name here, a directory without a record belongs to the vault. An
            // object in it under the record's name stays there under another.
            let inner = try opened.descriptor.inner(moved)
            try DamagedRoot.stepAside(OpenDirectory.recordEntry, as: DamagedRoot.recordPrefix, in: inner)
            return try OpenDirectory.makeRecord(of: inner, class: .complete, mode: 0o600, in: store)
        default:
            try move(entry, LostObject(name: name, status: status), from: directory)
            return
        }
        directory.removeQuietly(entry)
    }

    /// Keeps the content of a file in a file here, durably. Does nothing if there is no such entry. After a kill the
    /// next repair keeps it once more, under another name.
    /// - Throws: `.damaged` for an object that is no file, or too large to be vaultfs's own. It stays.
    func keepCopy(of entry: Component, from directory: Descriptor, as name: [UInt8]) throws(StoreError) {
        guard try directory.statusIfPresent(of: entry) != nil else { return }
        let pin = try Descriptor(at: directory, entry, flags: linux_O_PATH)
        let status = try pin.status()
        guard status.st_mode & S_IFMT == S_IFREG else { throw .damaged("\(entry) is no file, and stays") }
        // The largest log or `vaultfs.rekey`. Another program's file can be larger than the disk, if it is sparse.
        let isLog = entry.starts(with: RedoLog.fileName)
        let largest = isLog ? LogHeader.logSizes.upperBound : UInt64(RekeyIntent.maximumSize)
        let size = UInt64(clamping: status.st_size)
        guard size <= largest else {
            throw .damaged(
                "\(entry) has \(size) bytes, where vaultfs writes \(largest) at most, and stays: move it away, or remove it"
            )
        }
        let reader = try pin.reopened(flags: O_RDONLY | O_NONBLOCK)
        try makeFile(name) { (file) throws(StoreError) in
            let workspace = try Workspace(layout: store.layout)
            // Read no more than this, because another program may still write to it.
            while file.length < size {
                let count = try reader.read(at: file.length, into: workspace.reply)
                if count == 0 { return }
                try file.writeAll(
                    UnsafeRawBufferPointer(workspace.reply.slice(..<count)), at: file.length, workspace)
            }
        }
    }

    /// Keeps a list of the objects about to be moved here, durably. A line has an entry, a tab, and the name here.
    /// Omits entries that cannot be a name's.
    /// - Throws: as `keep`.
    package func list(_ moves: [(path: [UInt8], name: [UInt8])], as name: [UInt8]) throws(StoreError) {
        let spellable = Set(Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./".utf8))
        var bytes: [UInt8] = []
        for move in moves where move.path.allSatisfy(spellable.contains) {
            bytes += move.path + [UInt8(ascii: "\t")] + move.name + [UInt8(ascii: "\n")]
        }
        if !bytes.isEmpty { try keep(bytes, as: name + Array(".entries".utf8)) }
    }

    /// Makes a file of these bytes, durably.
    func keep(_ bytes: [UInt8], as name: [UInt8]) throws(StoreError) {
        try makeFile(name) { (file) throws(StoreError) in
            let workspace = try Workspace(layout: store.layout)
            try bytes.withBytes { (bytes) throws(StoreError) in try file.writeAll(bytes, at: 0, workspace) }
        }
    }

    /// Makes a file here, durably. A failure leaves no file.
    func makeFile(_ name: [UInt8], _ fill: (EncryptedFile) throws(StoreError) -> Void) throws(StoreError) {
        for name in Self.names(name) {
            let file: EncryptedFile
            do throws(StoreError) {
                file = try opened.createFile(name, mode: 0o600, owner: owner)
            } catch .system(.fileExists) { continue }
            do throws(StoreError) {
                try fill(file)
                _ = try file.seal(ifStill: file.lengthMark, isDurable: false)
                try file.synchronize(dataOnly: false)
                return try opened.synchronizeNames()
            } catch {
                try? opened.unlink(opened.encode(name))
                throw error
            }
        }
        throw .system(.fileExists)
    }
}

/// The content of directories with lost names, moved here.
extension LostAndFound {
    /// Gives a directory without a record a new one, so that the next repair recognises it as one of this vault, even
    /// if this repair is interrupted.
    /// - Throws: `.locked`; `.system` with errno.
    package func mark(_ entry: Component, in parent: Descriptor) throws(StoreError) {
        let directory = try parent.inner(entry)
        if try directory.statusIfPresent(of: OpenDirectory.recordEntry) == nil {
            try OpenDirectory.makeRecord(of: directory, class: .complete, mode: 0o600, in: store)
        }
    }

    /// Empties the directory `entry` of `parent`, keeps its record here, and removes it.
    /// - Throws: `.damaged` if it does not get empty. Then the record stays too.
    package func empty(_ entry: Component, in parent: Descriptor) throws(StoreError) {
        let directory = try parent.inner(entry)
        let digits = Array(try LostObject.digits(of: entry).utf8)
        let name = Array("directory-".utf8) + digits
        let entries = try directory.allEntries()
        try list(entries, in: directory, as: name)
        try move(entries, from: directory)
        try Self.checkNone(try directory.allEntries().filter { $0 != OpenDirectory.recordEntry })
        // Their key would be lost with the record.
        let attributes = try ExtendedAttributes(directory).namesIfSupported()
        guard !attributes.contains(where: { $0.starts(with: AttributeCodec.storedPrefix) }) else {
            throw .damaged("its attributes are damaged, and stay")
        }
        try opened.synchronizeNames()
        // Keep the record unless `mark` has made it in place of a lost one. Such a record authenticates.
        if (try? OpenDirectory.openRecord(of: directory, store.keyRing))?.record.isRoot != false {
            try keepCopy(of: OpenDirectory.recordEntry, from: directory, as: Array("directory-record-".utf8) + digits)
        }
        let sidecar = EntryName.kind(of: entry.bytes) == .longName ? EntryName.sidecar(of: entry) : nil
        if let sidecar { try keepCopy(of: sidecar, from: parent, as: name + Array(".name".utf8)) }
        // Remove it under a temporary name. If that is interrupted, the next mount completes it.
        let temporary = EntryName.temporary(try VaultDirectory.randomDigits())
        try parent.rename(entry, as: temporary, flags: linux_RENAME_NOREPLACE)
        OpenDirectory.remove(temporary, from: parent)
        if let sidecar { parent.removeQuietly(sidecar) }
    }

    /// Moves everything in the root without a name under the root's new record.
    /// - Throws: `.damaged` if something stays hidden.
    package func moveFromRoot() throws(StoreError) {
        let root = try Self.openRoot(of: store)
        let listing = try root.reopenedForListing().descriptor
        let hasName = { (entry: Component) in root.descriptor.name(of: entry, root.keys) != nil }
        let nameless = try listing.allEntries().filter { !hasName($0) }
        try list(nameless, in: listing, as: Array("root".utf8))
        try move(nameless, from: listing)
        try keepAside(DamagedRoot.recordPrefix)
        try Self.checkNone(try listing.allEntries().filter { EntryName.isObject($0.bytes) && !hasName($0) })
    }

    /// Moves the renamed damaged objects of the root here, by the prefix of their names.
    /// - Throws: the error of the first object that cannot be moved. It and the later ones stay.
    package func keepAside(_ prefix: Component) throws(StoreError) {
        for entry in try store.root.allEntries() where entry.starts(with: prefix) {
            if try hasCopy(of: entry, prefix) {
                try store.root.remove(entry)
            } else {
                try keep(entry, from: store.root, as: entry.bytes)
            }
        }
    }

    /// Returns true if a file here with this prefix has the content of a file in the root.
    private func hasCopy(of entry: Component, _ prefix: Component) throws(StoreError) -> Bool {
        let pin = try Descriptor(at: store.root, entry, flags: linux_O_PATH)
        let status = try pin.status()
        guard status.st_mode & S_IFMT == S_IFREG else { return false }
        let original = try pin.reopened(flags: O_RDONLY | O_NONBLOCK)
        let workspace = try Workspace(layout: store.layout)
        for kept in try opened.descriptor.allEntries() {
            guard opened.descriptor.name(of: kept, opened.keys)?.starts(with: prefix) == true,
                let reader = try? Descriptor(at: opened.descriptor, kept, flags: O_RDONLY | O_NONBLOCK),
                let file = try? FileOpening(reader, in: store).open(), file.length == UInt64(status.st_size)
            else { continue }
            let isSame = try? original.hasSameBytes { (offset) throws(StoreError) in
                let count = try file.read(at: offset, into: workspace.reply, workspace: workspace)
                return Array(workspace.reply.slice(..<count))
            }
            if isSame == true { return true }
        }
        return false
    }

    private static func checkNone(_ left: [Component]) throws(StoreError) {
        if left.isEmpty { return }
        throw .damaged(
            left.count == 1
                ? "1 entry is damaged, and stays" : "\(left.count) entries are damaged, and stay")
    }

    /// Lists the new name of each entry before the moves. If the lost record is found again, for instance in a backup,
    /// it decrypts the entries of the list (FileFormat, Store-32).
    private func list(_ entries: [Component], in directory: Descriptor, as name: [UInt8]) throws(StoreError) {
        let moves = entries.filter { EntryName.isObject($0.bytes) }.compactMap { entry in
            LostObject.find(entry, in: directory, store.keyRing).map { (entry.bytes, $0.name) }
        }
        try list(moves, as: name)
    }

    /// Moves the entries that authenticate. Removes sidecars whose entry a killed repair has moved.
    private func move(_ entries: [Component], from directory: Descriptor) throws(StoreError) {
        for entry in entries {
            switch EntryName.kind(of: entry.bytes) {
            case .name, .longName, .conflictCopy:
                do throws(StoreError) { try moveHere(entry, from: directory) } catch .damaged {}
            case .sidecar:
                if (try? directory.isSidecarOrphaned(entry)) == true { OpenDirectory.remove(entry, from: directory) }
            case .temporary: OpenDirectory.remove(entry, from: directory)
            case .reserved: break
            }
        }
    }
}
