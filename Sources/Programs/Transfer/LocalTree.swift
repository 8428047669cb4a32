internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
internal import SystemPackage

/// Real files. An item is an O_PATH descriptor, which gives the attributes even of a file closed to its owner.
package struct LocalTree<Workspace: WorkerBuffers>: TransferTree {
    package init() {}

    package func find(_ name: [UInt8], in directory: Descriptor) throws(StoreError) -> Descriptor? {
        do throws(StoreError) {
            return try Descriptor(at: directory, Component(name), flags: linux_O_PATH)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    package func status(of item: Descriptor) throws(StoreError) -> stat { try item.status() }

    package func list(_ directory: Descriptor) throws(StoreError) -> DirectoryReader {
        DirectoryReader(try directory.openedForReading())
    }

    package func next(_ listing: inout DirectoryReader) throws(StoreError) -> [UInt8]? { try listing.next()?.bytes }

    package func linkTarget(of item: Descriptor) throws(StoreError) -> [UInt8] { try item.linkTarget() }

    package func attributeNames(of item: Descriptor) throws(StoreError) -> [[UInt8]] {
        try ExtendedAttributes(item).names()
    }

    package func attribute(_ name: [UInt8], of item: Descriptor) throws(StoreError) -> [UInt8] {
        try ExtendedAttributes(item).value(of: name)
    }

    package func open(_ item: Descriptor, _ workspace: Workspace) throws(StoreError) -> Descriptor {
        // O_NONBLOCK and O_NOCTTY do nothing to a regular file.
        try item.reopened(flags: O_RDONLY | O_NONBLOCK | O_NOCTTY)
    }

    package func length(of content: Descriptor) throws(StoreError) -> UInt64 {
        UInt64(max(0, try content.status().st_size))
    }

    package func authenticLength(of content: Descriptor) -> UInt64 { .max }

    package func data(in content: Descriptor, from offset: UInt64) throws(StoreError) -> Range<UInt64>? {
        let status = try content.status()
        let size = UInt64(max(0, status.st_size))
        guard offset < size else { return nil }
        // Only a file with holes needs lseek(2). st_blocks counts 512 bytes, stat(2).
        if status.st_blocks * 512 >= status.st_size { return offset..<size }
        let start = lseek(content.fd, off_t(offset), linux_SEEK_DATA)
        if start < 0 { return currentErrno() == .noSuchAddressOrDevice ? nil : offset..<size }
        let end = lseek(content.fd, start, linux_SEEK_HOLE)
        return UInt64(start)..<max(UInt64(start) + 1, end < 0 ? size : UInt64(end))
    }

    package func read(
        _ content: Descriptor, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Int { try content.read(at: offset, into: buffer) }

    package func forgetCached(_ content: Descriptor) { content.dropPages() }

    package var sealsFiles: Bool { false }
    package func isSealed(_ item: Descriptor, _ workspace: Workspace) -> Bool { true }
    package func seal(_ item: Descriptor, _ workspace: Workspace) {}
    package var damageUnit: Int { 4096 }
    package func decryption(of content: Descriptor) -> (description: String, sample: UInt64) { ("", 0) }

    // MARK: Changing

    package func make(
        _ name: [UInt8], _ object: NewObject, in directory: Descriptor
    ) throws(StoreError) -> Descriptor {
        let name = try Component(name)
        switch object {
        case .directory(let mode): try directory.makeDirectory(name, mode: mode)
        case .link(let target): try directory.makeLink(name, to: target)
        case .node(let mode, let device): try directory.makeNode(name, mode: mode, device: device)
        // A `NodeID` names nothing here. See `link`.
        case .hardLink: throw .system(.notSupported)
        }
        return try Descriptor(at: directory, name, flags: linux_O_PATH)
    }

    /// Locks the file with flock(2) while it is open, so that other transfers do not take it for a stale one.
    package func makeFile(_ name: [UInt8], in directory: Descriptor) throws(StoreError) -> (Descriptor, Descriptor) {
        let file = try Descriptor(at: directory, Component(name), flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        try retrying { flock(file.fd, LOCK_EX | LOCK_NB) }
        return (file, file)
    }

    package func resume(
        _ name: [UInt8], in directory: Descriptor, _ workspace: Workspace
    ) throws(StoreError) -> (Descriptor, Descriptor) {
        let file = try openUnfinished(name, in: directory)
        let status = try file.status()
        // A transfer by root changes the owner before it renames the file, so another owner's file may be one of ours.
        if geteuid() == 0 && status.st_uid != 0 && isStale(file) {
            try remove(name, in: directory)
            return try makeFile(name, in: directory)
        }
        guard Self.isOwn(status) else {
            throw .damaged("'\(String(decoding: name, as: UTF8.self))' there is not from a transfer")
        }
        let isBusy = StoreError.damaged("another export is writing it")
        do throws(StoreError) { try retrying { flock(file.fd, LOCK_EX | LOCK_NB) } } catch .system(.wouldBlock) {
            throw isBusy
        }
        // The other process may have finished and renamed the file just before this one locked it.
        guard let named = try? directory.status(of: Component(name)), FileIdentity(named) == FileIdentity(status) else {
            throw isBusy
        }
        return (file, file)
    }

    private func openUnfinished(_ name: [UInt8], in directory: Descriptor) throws(StoreError) -> Descriptor {
        let flags = O_RDWR | O_NONBLOCK | O_NOCTTY
        do throws(StoreError) {
            return try Descriptor(at: directory, Component(name), flags: flags | O_CREAT, mode: 0o600)
        } catch .system(.permissionDenied) {
            // A finished file that still needs its rename already has its final mode, which may deny us access.
            guard let pinned = try? Descriptor(at: directory, Component(name), flags: linux_O_PATH),
                let status = try? pinned.status(), Self.isOwn(status)
            else { throw .system(.permissionDenied) }
            // fchmod(2) refuses an O_PATH descriptor, but chmod(2) of the kernel's own link to it works.
            try retrying { chmod("/proc/self/fd/\(pinned.fd)", 0o600) }
            return try pinned.reopened(flags: flags)
        }
    }

    private static func isOwn(_ status: stat) -> Bool {
        status.st_mode & S_IFMT == S_IFREG && status.st_uid == geteuid() && status.st_nlink <= 1
    }

    package func link(_ item: Descriptor, as name: [UInt8], in directory: Descriptor) throws(StoreError) {
        try item.linkFile(to: directory, as: Component(name))
    }

    package func write(
        _ bytes: UnsafeRawBufferPointer, to content: Descriptor, at offset: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        try content.write(bytes, at: offset)
        // Start the writeback now, while the next bytes are decrypted. A failure only delays it.
        _ = linux_start_writing(content.fd, Int64(offset), Int64(bytes.count))
    }

    package func setLength(_ length: UInt64, of content: Descriptor, _ workspace: Workspace) throws(StoreError) {
        try content.truncate(to: length)
    }

    package func synchronize(_ content: Descriptor) throws(StoreError) { try content.synchronize(dataOnly: false) }

    package func change(_ item: Descriptor, _ changes: AttributeChanges, _ workspace: Workspace) throws(StoreError) {
        try changes.apply(to: item, kind: try item.status().st_mode & S_IFMT)
    }

    package func setAttribute(_ name: [UInt8], _ value: [UInt8]?, of item: Descriptor) throws(StoreError) {
        let attributes = ExtendedAttributes(item)
        if let value { try attributes.set(name, value, flags: 0) } else { try attributes.remove(name) }
    }

    package func rename(
        _ name: [UInt8], to newName: [UInt8], in directory: Descriptor, isReplacing: Bool
    ) throws(StoreError) {
        let (old, new) = (try Component(name), try Component(newName))
        do throws(StoreError) {
            try directory.rename(old, to: directory, as: new, flags: isReplacing ? 0 : linux_RENAME_NOREPLACE)
        } catch .system(.invalidArgument) where !isReplacing {
            // Some file systems (NFS) cannot rename without replacing, but may have hard links.
            try directory.link(old, to: directory, as: new)
            directory.removeQuietly(old)
        }
    }

    package func remove(_ name: [UInt8], in directory: Descriptor) throws(StoreError) {
        try directory.remove(Component(name))
    }

    /// A running transfer holds a lock on the file it writes.
    package func isStale(_ item: Descriptor) -> Bool {
        let user = geteuid()
        // A transfer by root changes the owner before it renames the file, so another owner's file may be one of ours.
        guard let status = try? item.status(), user == 0 || status.st_uid == user, status.st_mode & S_IFMT != S_IFDIR
        else { return false }
        guard status.st_mode & S_IFMT == S_IFREG else { return true }
        // A file closed to reading has its final mode, so it is whole.
        if user != 0 && status.st_mode & 0o400 == 0 { return true }
        guard let file = try? item.reopened(flags: O_RDONLY | O_NONBLOCK) else { return false }
        return flock(file.fd, LOCK_EX | LOCK_NB) == 0
    }
}
