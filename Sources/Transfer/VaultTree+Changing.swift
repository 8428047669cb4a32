internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFileSystem
package import VaultStore

extension VaultTree {
    package func makeDirectory(_ name: [UInt8], in directory: Item) throws(StoreError) -> Item {
        try make(in: directory) { () throws(StoreError) in
            try system.makeDirectory(name, in: directory.id, mode: 0o700, for: caller)
        }
    }

    package func makeLink(_ name: [UInt8], to target: [UInt8], in directory: Item) throws(StoreError) -> Item {
        try make(in: directory) { () throws(StoreError) in
            try system.makeLink(name, in: directory.id, target: target, for: caller)
        }
    }

    package func makeNode(_ name: [UInt8], like status: stat, in directory: Item) throws(StoreError) -> Item {
        try make(in: directory) { () throws(StoreError) in
            try system.makeNode(
                name, in: directory.id, mode: status.st_mode & S_IFMT | 0o600, device: status.st_rdev, for: caller)
        }
    }

    private func make(
        in directory: Item, _ body: () throws(StoreError) -> NodeEntry
    ) throws(StoreError) -> Item {
        Item(system, try directory.names.withLock { (_) throws(StoreError) in try body().id })
    }

    package func makeFile(_ name: [UInt8], in directory: Item) throws(StoreError) -> (Item, Content) {
        try directory.names.withLock { (_) throws(StoreError) in
            let (entry, handle) = try system.create(
                name, in: directory.id, mode: 0o600, flags: O_RDWR, for: caller)
            let item = Item(system, entry.id)
            return (item, Content(system, handle, of: item))
        }
    }

    package func link(_ item: Item, as name: [UInt8], in directory: Item) throws(StoreError) {
        _ = try make(in: directory) { () throws(StoreError) in
            try system.link(item.id, as: name, in: directory.id, for: caller)
        }
    }

    package func write(
        _ bytes: UnsafeRawBufferPointer, to content: Content, at offset: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        var done = 0
        while done < bytes.count {
            done += try system.write(
                content.handle, UnsafeRawBufferPointer(rebasing: bytes[done...]), at: offset + UInt64(done),
                workspace: workspace)
        }
    }

    package func setLength(_ length: UInt64, of content: Content, _ workspace: Workspace) throws(StoreError) {
        try content.handle.file.setLength(length, workspace: workspace)
    }

    package func change(_ item: Item, _ changes: AttributeChanges, _ workspace: Workspace) throws(StoreError) {
        _ = try system.change(item.id, changes, handle: nil, workspace: workspace)
    }

    package func setAttribute(_ name: [UInt8], _ value: [UInt8], of item: Item) throws(StoreError) {
        try system.setAttribute(item.id, name, value: value, flags: 0)
    }

    package func removeAttribute(_ name: [UInt8], of item: Item) throws(StoreError) {
        try system.removeAttribute(item.id, name)
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
        try directory.names.withLock { (_) throws(StoreError) in try system.unlink(name, in: directory.id) }
    }

    /// Whoever writes to a vault has it alone.
    package func isStale(_ item: Item) -> Bool { true }
}
