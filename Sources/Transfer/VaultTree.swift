internal import CLinux
internal import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultFileSystem
internal import VaultFormat
package import VaultStore

/// A vault's files, by its file system as a kernel would drive it: so holes, journal and seals are as in a mount.
package struct VaultTree: TransferTree {
    /// A file system's node, looked up once.
    package final class Item: Sendable {
        let id: NodeID
        /// The kernel lets one request at a time change a directory; here nobody else does.
        let names = Mutex<Void>(())
        private let system: VaultFileSystem

        init(_ system: VaultFileSystem, _ id: NodeID) {
            self.system = system
            self.id = id
        }

        deinit {
            system.forget(id, count: 1)
        }
    }

    /// An open file, closed with this.
    package final class Content {
        let handle: FileHandle
        private let system: VaultFileSystem
        /// Without its node the handle would be of something unknown.
        private let item: Item

        init(_ system: VaultFileSystem, _ handle: FileHandle, of item: Item) {
            self.system = system
            self.handle = handle
            self.item = item
        }

        deinit {
            system.release(handle)
        }
    }

    /// A listing, a few names at a time.
    package final class Listing {
        fileprivate let handle: DirectoryHandle
        fileprivate var offset: Int64 = 0
        fileprivate var names: ArraySlice<[UInt8]> = []
        private let system: VaultFileSystem

        fileprivate init(_ system: VaultFileSystem, _ handle: DirectoryHandle) {
            self.system = system
            self.handle = handle
        }

        deinit {
            system.release(handle)
        }
    }

    private static let listedAtOnce = 256

    let system: VaultFileSystem
    let caller = Caller(uid: geteuid(), gid: getegid())
    package let root: Item

    package init(_ system: VaultFileSystem) {
        self.system = system
        root = Item(system, .root)
    }

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
            var taken: [[UInt8]] = []
            var offset = listing.offset
            try system.list(listing.handle, from: offset, withAttributes: false) { entry in
                if taken.count == Self.listedAtOnce { return false }
                taken.append(entry.name)
                offset = entry.nextOffset
                return true
            }
            if taken.isEmpty { return nil }
            listing.offset = offset
            listing.names = taken.filter { $0 != Array(".".utf8) && $0 != Array("..".utf8) }[...]
        }
    }

    package func linkTarget(of item: Item) throws(StoreError) -> [UInt8] { try system.linkTarget(item.id) }

    package func attributeNames(of item: Item) throws(StoreError) -> [[UInt8]] {
        do throws(StoreError) {
            return try system.attributeNames(item.id)
        } catch .system(.notSupported) {
            return []
        }
    }

    package func attribute(_ name: [UInt8], of item: Item) throws(StoreError) -> [UInt8] {
        try system.attribute(item.id, name)
    }

    package func open(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Content {
        Content(system, try system.open(item.id, flags: O_RDONLY, for: caller, workspace: workspace), of: item)
    }

    package func length(of content: Content) throws(StoreError) -> UInt64 { content.handle.file.length }

    package func authenticLength(of content: Content) -> UInt64 { content.handle.file.authenticLength }

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
    ) throws(StoreError) -> Int {
        try system.read(content.handle, at: offset, into: buffer, workspace: workspace)
    }

    package func forgetCached(_ content: Content) {
        LocalTree().forgetCached(content.handle.file.reader)
    }

    package func isVouchedFor(_ item: Item, _ workspace: Workspace) throws(StoreError) -> Bool {
        let file = try open(item, workspace).handle.file
        // A tail that somebody added behind the sealed length is not content of the file.
        return file.isSealed && !file.hasUnsealedTail
    }

    /// The last close of a file that was open for writing seals it.
    package func vouch(for item: Item, _ workspace: Workspace) throws(StoreError) {
        system.release(try system.open(item.id, flags: O_RDWR, for: caller, workspace: workspace))
    }

    package var mayLoseTimes: Bool { true }

    package var damageUnit: Int { system.store.layout.chunkSize }

    /// How many names were left out because they do not authenticate, those of attributes too.
    package var hiddenNames: Int { Int(clamping: system.store.counters.hiddenNames.total) }
}
