internal import BackingStore
internal import CLinux
internal import Glibc
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// The directory in the vault's root that takes what has lost its name: one of the vault like any other, of class
/// complete, closed to all but the vault's owner. One thread's.
struct LostAndFound {
    /// How many names are tried where others are taken.
    static let mostNames = 10_000
    /// What is kept whole is a record of 64 bytes or a sidecar of 272; whatever is much larger is neither.
    private static let mostKept = 64 << 10

    private let store: Store
    private let opened: OpenDirectory
    private let owner: Owner?

    /// Opens it, or makes it: `lost+found`, or where something else has that name, `lost+found-2` and so on.
    init(in store: Store) throws(StoreError) {
        let pinned = try Descriptor(at: store.root.fd, [UInt8(ascii: ".")], flags: linux_O_PATH | O_DIRECTORY)
        let root = try OpenDirectory.open(pinned, isRoot: true, in: store)
        let status = try pinned.status()
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

    /// `name`, `name-2`, `name-3` …
    private static func names(_ name: [UInt8]) -> some Sequence<[UInt8]> {
        (1...mostNames).lazy.map { $0 == 1 ? name : name + Array("-\($0)".utf8) }
    }

    /// Nil where something else has the name.
    private static func open(_ name: [UInt8], in root: OpenDirectory, _ owner: Owner?) throws(StoreError)
        -> OpenDirectory?
    {
        let entry = try root.encode(name).entry
        var isNew = false
        do throws(StoreError) {
            _ = try root.status(of: entry)
        } catch .system(.noSuchFileOrDirectory) {
            try root.makeDirectory(name, mode: 0o700, owner: owner)
            isNew = true
        }
        do throws(StoreError) {
            let pinned = try Descriptor(at: root.descriptor.fd, entry, flags: linux_O_PATH | O_DIRECTORY)
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

    /// Moves what `entry` names here, and what a long name's sidecar holds into a file beside it.
    /// - Throws: `.damaged` for what does not authenticate.
    func take(_ entry: [UInt8], from directory: Descriptor) throws(StoreError) {
        guard let object = LostObject.find(entry, in: directory, store.keyRing) else {
            throw .damaged("it does not authenticate, and stays where it is")
        }
        let sidecar = EntryName.kind(of: entry) == .longName ? EntryName.sidecar(of: entry) : nil
        if let sidecar { try keepCopy(of: sidecar, from: directory, as: object.name + Array(".name".utf8)) }
        try move(entry, object, from: directory)
        if let sidecar { _ = withCString(sidecar) { unlinkat(directory.fd, $0, 0) } }
    }

    private func move(_ entry: [UInt8], _ object: LostObject, from directory: Descriptor) throws(StoreError) {
        for name in Self.names(object.name) {
            let newEntry = try opened.encode(name).entry
            do throws(StoreError) {
                return try OpenDirectory.rename(
                    entry, from: directory.fd, to: opened.descriptor.fd, as: newEntry, flags: linux_RENAME_NOREPLACE)
            } catch .system(.fileExists) {
                let there = try opened.status(of: newEntry)
                guard there.st_dev == object.status.st_dev, there.st_ino == object.status.st_ino else { continue }
                // Another name of a file that is here: rename(2) would leave both.
                try opened.synchronizeNames()
                _ = try withCString(entry) { (name) throws(StoreError) in
                    try retrying { unlinkat(directory.fd, name, 0) }
                }
                return
            }
        }
        throw .system(.fileExists)
    }

    /// Keeps all that a file of vaultfs's own holds, which may not authenticate, in a file here, and removes it.
    /// - Throws: `.damaged` where it is no regular file, or far larger than it can be: then it stays.
    func keep(_ entry: [UInt8], from directory: Descriptor, as name: [UInt8]) throws(StoreError) {
        try keepCopy(of: entry, from: directory, as: name)
        _ = withCString(entry) { unlinkat(directory.fd, $0, 0) }
    }

    /// Durable when it returns; nothing where there is no such entry.
    private func keepCopy(of entry: [UInt8], from directory: Descriptor, as name: [UInt8]) throws(StoreError) {
        let pin: Descriptor
        do { pin = try Descriptor(at: directory.fd, entry, flags: linux_O_PATH) } catch .system(.noSuchFileOrDirectory)
        {
            return
        }
        guard try pin.status().st_mode & S_IFMT == S_IFREG,
            let bytes = try pin.reopened(flags: O_RDONLY | O_NONBLOCK).readToEnd(limit: Self.mostKept)
        else { throw .damaged("\(String(decoding: entry, as: UTF8.self)) is not a small regular file, and stays") }
        let file = try makeFile(name)
        let workspace = try Workspace(layout: store.layout)
        var done = 0
        while done < bytes.count {
            done += try bytes.withBytes { (all) throws(StoreError) -> Int in
                try file.write(
                    UnsafeRawBufferPointer(rebasing: all[done...]), at: UInt64(done), workspace: workspace)
            }
        }
        _ = try file.seal(ifStill: file.lengthMark, isDurable: false)
        try file.synchronize(dataOnly: false)
        try opened.synchronizeNames()
    }

    private func makeFile(_ name: [UInt8]) throws(StoreError) -> EncryptedFile {
        for name in Self.names(name) {
            do throws(StoreError) {
                return try opened.createFile(name, mode: 0o600, owner: owner)
            } catch .system(.fileExists) {}
        }
        throw .system(.fileExists)
    }

    /// What was moved here is durable when this returns.
    func synchronize() throws(StoreError) {
        try opened.synchronizeNames()
    }
}
