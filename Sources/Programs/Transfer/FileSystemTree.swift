internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFileSystem
internal import VaultFormat
internal import VaultStore
internal import ViewFileSystem
internal import ViewFormats

/// The files of a vault or a view. Uses the file system as a kernel would, so holes, log and seals are as in a mount.
package struct FileSystemTree<System: FileSystem>: TransferTree {
    package typealias Workspace = System.Workspace

    /// A node, looked up once and forgotten with its last reference.
    package final class Item: Sendable {
        let id: NodeID
        /// Held while this directory changes, because the kernel too lets only one request at a time change one.
        let names = Mutex<Void>(())
        private let system: System

        init(_ system: System, _ id: NodeID) {
            self.system = system
            self.id = id
        }

        deinit { system.forget(id, count: 1) }
    }

    /// An open file, closed with the last reference.
    package final class Content {
        let handle: System.File
        private let system: System
        /// The file's node. It must outlive the handle, which is valid only while the node is known.
        let item: Item

        init(_ system: System, _ handle: System.File, of item: Item) {
            self.system = system
            self.handle = handle
            self.item = item
        }

        deinit { system.release(handle) }

        /// Nil in a view.
        var vaultFile: EncryptedFile? { (handle as? FileHandle)?.file }
    }

    /// A listing, a few names at a time.
    package final class Listing {
        fileprivate let handle: System.Directory
        fileprivate var offset: Int64 = 0
        fileprivate var names: ArraySlice<[UInt8]> = []
        private let system: System

        fileprivate init(_ system: System, _ handle: System.Directory) {
            self.system = system
            self.handle = handle
        }

        deinit { system.release(handle) }
    }

    private static var namesAtOnce: Int { 256 }

    let system: System
    let caller = Caller(uid: geteuid(), gid: getegid())
    package let root: Item

    package init(_ system: System) {
        self.system = system
        root = Item(system, .root)
    }

    // MARK: Reading

    package func find(_ name: [UInt8], in directory: Item) throws(StoreError) -> Item? {
        do throws(StoreError) {
            return Item(system, try system.lookUp(name, in: directory.id).id)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    package func status(of item: Item) throws(StoreError) -> stat { try system.attributes(item.id) }

    package func list(_ directory: Item) throws(StoreError) -> Listing {
        Listing(system, try system.openDirectory(directory.id))
    }

    package func next(_ listing: inout Listing) throws(StoreError) -> [UInt8]? {
        while true {
            if let name = listing.names.popFirst() { return name }
            var found: [[UInt8]] = []
            var offset = listing.offset
            try system.list(listing.handle, from: offset, withAttributes: false) { entry in
                if found.count == Self.namesAtOnce { return false }
                found.append(entry.name)
                offset = entry.nextOffset
                return true
            }
            if found.isEmpty { return nil }
            listing.offset = offset
            listing.names = found.filter { $0 != Array(".".utf8) && $0 != Array("..".utf8) }[...]
        }
    }

    package func linkTarget(of item: Item) throws(StoreError) -> [UInt8] { try system.linkTarget(item.id) }

    package func attributeNames(of item: Item) throws(StoreError) -> [[UInt8]] { try system.attributeNames(item.id) }

    package func attribute(_ name: [UInt8], of item: Item) throws(StoreError) -> [UInt8] {
        try system.attribute(item.id, name)
    }

    package func open(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Content {
        try open(item, flags: O_RDONLY, workspace)
    }

    func open(_ item: Item, flags: Int32, _ workspace: Workspace) throws(StoreError) -> Content {
        switch try system.beginOpening(item.id, flags: flags, for: caller, workspace: workspace) {
        case .opened(let file): return Content(system, file, of: item)
        // The open was deferred, for example because keys have to be fetched. Finish it on this thread.
        case .deferred(_, let finish): return Content(system, try finish(), of: item)
        }
    }

    package func length(of content: Content) throws(StoreError) -> UInt64 {
        UInt64(max(0, try system.attributes(content.item.id).st_size))
    }

    package func authenticLength(of content: Content) -> UInt64 { content.vaultFile?.parts.authenticLength ?? .max }

    package func data(in content: Content, from offset: UInt64) throws(StoreError) -> Range<UInt64>? {
        do throws(StoreError) {
            let start = try system.seek(content.handle, from: offset, toHole: false)
            return start..<max(start + 1, try system.seek(content.handle, from: start, toHole: true))
        } catch .system(.noSuchAddressOrDevice) {
            return nil
        }
    }

    package func read(
        _ content: Content, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Int { try system.read(content.handle, at: offset, into: buffer, workspace: workspace) }

    package func forgetCached(_ content: Content) { content.vaultFile?.reader.dropPages() }

    package var sealsFiles: Bool { system is VaultFileSystem }

    /// A file with a tail past its sealed length counts as unsealed, because the tail is not content of the file.
    package func isSealed(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Bool {
        guard let file = try open(item, workspace).vaultFile else { return true }
        return file.isSealed && !file.parts.hasUnsealedTail
    }

    /// Opens the file for writing and closes it again, because the last such close seals it.
    package func seal(_ item: Item, _ workspace: Workspace) throws(StoreError) {
        _ = try open(item, flags: O_RDWR, workspace)
    }

    package var damageUnit: Int { (system as? VaultFileSystem)?.store.layout.chunkSize ?? ViewWorkspace.pageSize }

    /// The sample is where the second chain begins, because another chunk size shows there.
    package func decryption(of content: Content) -> (description: String, sample: UInt64) {
        guard let handle = content.handle as? ViewHandle else { return ("", 0) }
        guard case .chained(let file) = handle.content else { return ("text", 0) }
        guard let map = file.chains else { return (file.samplesDescription, 0) }
        let count = map.count
        // A file may have any number of chains, so describe some thousands. The number stands for the rest.
        let chains = (0..<min(count, 4096)).map { number in
            let piece = map[number]
            return "\(piece.chain.ciphertext) \(piece.plaintext) \(Self.description(of: piece.chain.encryption))"
        }
        let description = "\(count) chains, \(file.length) bytes\n" + chains.joined(separator: "\n")
        return (description, count > 1 ? map[1].plaintext.lowerBound : 0)
    }

    private static func description(of encryption: CipherChain.Encryption?) -> String {
        guard let encryption else { return "plain" }
        let vector =
            switch encryption.vector {
            case .bytes(let vector): "\(vector.high) \(vector.low)"
            case .inFile(let offset): "at \(offset)"
            }
        return "key \(encryption.key), vector \(vector), \(encryption.padding == .none ? "not padded" : "padded")"
    }

    /// The number of names, also of attributes, left out because they do not authenticate.
    package var hiddenNames: Int { Int(clamping: system.statistics().hiddenNames ?? 0) }

    // MARK: Changing

    package func make(_ name: [UInt8], _ object: NewObject, in directory: Item) throws(StoreError) -> Item {
        try directory.names.withLock { (_) throws(StoreError) in
            Item(system, try system.make(name, in: directory.id, object, for: caller).id)
        }
    }

    package func makeFile(_ name: [UInt8], in directory: Item) throws(StoreError) -> (Item, Content) {
        try directory.names.withLock { (_) throws(StoreError) in
            let (entry, handle) = try system.create(name, in: directory.id, mode: 0o600, flags: O_RDWR, for: caller)
            let item = Item(system, entry.id)
            return (item, Content(system, handle, of: item))
        }
    }

    package func resume(
        _ name: [UInt8], in directory: Item, _ workspace: Workspace
    ) throws(StoreError) -> (Item, Content) {
        guard let item = try find(name, in: directory) else { return try makeFile(name, in: directory) }
        if let content = try? openUnfinished(item, in: directory, workspace) { return (item, content) }
        // Remove an unusable file, or one from elsewhere. A vault has one writer, so it is not being written.
        try remove(name, in: directory)
        return try makeFile(name, in: directory)
    }

    private func openUnfinished(
        _ item: Item, in directory: Item, _ workspace: Workspace
    ) throws(StoreError) -> Content? {
        let found = try status(of: item)
        guard found.st_mode & S_IFMT == S_IFREG, found.st_nlink <= 1 else { return nil }
        // A finished file that still needs its rename already has its final mode, which may deny us access.
        var changes = AttributeChanges()
        changes.mode = 0o600
        try change(item, changes, workspace)
        let content = try open(item, flags: O_RDWR, workspace)
        // Use the file only if it still has the class that a new file would have, that of its directory.
        let attribute = Array("user.vaultfs.class".utf8)
        return try self.attribute(attribute, of: item) == self.attribute(attribute, of: directory) ? content : nil
    }

    package func link(_ item: Item, as name: [UInt8], in directory: Item) throws(StoreError) {
        _ = try make(name, .hardLink(of: item.id), in: directory)
    }

    package func write(
        _ bytes: UnsafeRawBufferPointer, to content: Content, at offset: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        var done = 0
        while done < bytes.count {
            done += try system.write(
                content.handle, UnsafeRawBufferPointer(rebasing: bytes[done...]), at: offset + UInt64(done),
                isWriteBack: false, workspace: workspace)
        }
    }

    package func setLength(_ length: UInt64, of content: Content, _ workspace: Workspace) throws(StoreError) {
        var changes = AttributeChanges()
        changes.length = length
        _ = try system.change(content.item.id, changes, handle: content.handle, workspace: workspace)
    }

    package func synchronize(_ content: Content) throws(StoreError) {
        try system.synchronize(content.handle, dataOnly: false)
    }

    package func change(_ item: Item, _ changes: AttributeChanges, _ workspace: Workspace) throws(StoreError) {
        _ = try system.change(item.id, changes, handle: nil, workspace: workspace)
    }

    package func setAttribute(_ name: [UInt8], _ value: [UInt8]?, of item: Item) throws(StoreError) {
        try system.setAttribute(item.id, name, value: value, flags: 0)
    }

    package func rename(
        _ name: [UInt8], to newName: [UInt8], in directory: Item, isReplacing: Bool
    ) throws(StoreError) {
        try directory.names.withLock { (_) throws(StoreError) in
            try system.rename(
                name, in: directory.id, to: newName, in: directory.id, flags: isReplacing ? 0 : linux_RENAME_NOREPLACE,
                for: caller)
        }
    }

    package func remove(_ name: [UInt8], in directory: Item) throws(StoreError) {
        try directory.names.withLock { (_) throws(StoreError) in
            try system.remove(name, in: directory.id, isDirectory: false)
        }
    }

    /// A vault has one writer at a time, so a temporary name in it is always left from an ended transfer.
    package func isStale(_ item: Item) -> Bool { true }
}
