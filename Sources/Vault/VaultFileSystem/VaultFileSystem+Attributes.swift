internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
package import VaultStore

extension VaultFileSystem {
    /// Returns the fstat(2) result of a node, even of an open one without a name.
    package func attributes(_ id: NodeID) throws(StoreError) -> stat {
        let node = try nodes.node(id)
        // Always return the root's attributes, because tools look at mountpoints.
        if node !== nodes.root { try admit(node, .attributes) }
        return plaintextAttributes(try status(of: node), of: node)
    }

    /// Returns the backing attributes. Needs no keys, so a directory's damaged record does not matter.
    private func status(of node: Node) throws(StoreError) -> stat {
        if let open = openDescriptor(node) { return try open.status() }
        do throws(StoreError) {
            return try atCheckedName(of: node) { (directory, entry) throws(StoreError) -> stat in
                let status = try store.status(of: entry, in: directory)
                // Another object may have got the name meanwhile.
                guard FileIdentity(status) == node.key else { throw .system(.staleNFSFileHandle) }
                return status
            }
        } catch .system(.staleNFSFileHandle) where node.isDirectory {
            return try pinDirectory(node).status()
        }
    }

    /// chmod(2), chown(2), truncate(2), utimensat(2), or several of them at once.
    package func change(
        _ id: NodeID, _ changes: AttributeChanges, handle: FileHandle?, workspace: Workspace
    ) throws(StoreError) -> stat {
        let node = try nodes.node(id)
        // An open descriptor still works after a sync client has renamed the file.
        if handle == nil { try admitChange(of: node) } else { try store(of: node).admitChange() }
        // truncate(2) writes to the file.
        if let handle { try admit(handle) } else { try admit(node, changes.length == nil ? .attributes : .opening) }
        let pinned = try withSpace { () throws(StoreError) in
            if let length = changes.length { try setLength(node, length, handle, workspace) }
            let pinned = if let handle { handle.file.anyDescriptor } else { try pin(node) }
            try excludingHiddenWrites(of: node) { () throws(StoreError) in
                if let file = node.openFile { return try file.parts.apply(changes, to: pinned) }
                try changes.apply(to: pinned, kind: node.kind)
            }
            return pinned
        }
        return plaintextAttributes(try pinned.status(), of: node)
    }

    func excludingHiddenWrites<Result>(of node: Node, _ body: () throws(StoreError) -> Result) throws(StoreError)
        -> Result
    {
        guard let file = node.openFile else { return try body() }
        return try file.parts.excludingHiddenWrites(body)
    }

    private func setLength(
        _ node: Node, _ length: UInt64, _ handle: FileHandle?, _ workspace: Workspace
    ) throws(StoreError) {
        if let handle { return try handle.file.setLength(length, workspace: workspace) }
        let temporary = self.handle(
            length == 0 ? try openTruncated(node, workspace) : try openFile(node), node, flags: O_RDWR)
        defer { release(temporary) }
        if length > 0 { try temporary.file.setLength(length, workspace: workspace) }
    }

    /// Checks what the store does not check. Usually the store's own checks suffice, because the daemon has the rights
    /// of the mount's only user. Exceptions: open files, a mode that a writer changes briefly
    /// (`Descriptor.reopenedForWriting`), execve(2), access(2).
    package func checkAccess(_ id: NodeID, _ mask: Int32, isOpening: Bool) throws(StoreError) {
        let node = try nodes.node(id)
        // Programs can always enter the root and read its attributes.
        if node !== nodes.root { try admit(node, isOpening ? .opening : .attributes) }
        if node.isConflictCopy, mask & W_OK != 0 { throw .refused(.readOnlyFileSystem) }
        guard isOpening else { return try pin(node).checkAccess(mask) }
        if mask == R_OK, node.openFile == nil { return }
        // Open the file, because the kernel's next call needs it too.
        guard mask & X_OK == 0, let file = try? openFile(node) else { return try pin(node).checkAccess(mask) }
        try file.reader.checkAccess(mask)
    }

    // MARK: Set-id bits

    package func dropSetID(_ id: NodeID, for caller: () -> Caller) throws(StoreError) {
        let node = try nodes.node(id)
        guard node.isRegularFile, !store(of: node).isReadOnly else { return }
        let pinned = try pin(node)
        // Check this first, because hardly any file has such a bit. The change itself is admitted anyway.
        guard try pinned.status().st_mode & (S_ISUID | S_ISGID) != 0 else { return }
        if !gate.admitsWrites() { try admitWhileLocked(node, .attributes) }
        if try dropSetID(node, pinned, for: caller) {
            // The reply contains no attributes.
            attributeObserver.notify(id.rawValue)
        }
    }

    /// Clears the set-id bits, and returns true if one was cleared. Group members keep setgid without group execution.
    @discardableResult
    func dropSetID(_ node: Node, _ pinned: Descriptor, for caller: () -> Caller) throws(StoreError) -> Bool {
        // A seal in progress would restore the bits.
        try excludingHiddenWrites(of: node) { () throws(StoreError) in
            let status = try pinned.status()
            guard status.st_mode & (S_ISUID | S_ISGID) != 0 else { return false }
            let caller = caller()
            let isMember = caller.gid == status.st_gid || caller.groups.contains(status.st_gid)
            var mode = status.st_mode & 0o7777 & ~S_ISUID
            if mode & S_IXGRP != 0 || !isMember { mode &= ~S_ISGID }
            if mode == status.st_mode & 0o7777 { return false }
            var changes = AttributeChanges()
            changes.mode = mode
            try changes.apply(to: pinned, kind: node.kind)
            return true
        }
    }

    // MARK: Extended attributes

    /// The treatment of an attribute, by its name.
    private enum Namespace {
        /// `user.*`: encrypted.
        case encrypted
        case protectionClass
        /// Other names in `user.vaultfs.*`. Programs cannot set them.
        case reserved
        /// Stored unencrypted.
        case passedThrough
        case unsupported
        /// Just `user.`.
        case nameless
    }

    private static let classAttribute = Array("user.vaultfs.class".utf8)
    /// The attribute that `ls -l` requests for each file, unless one on the same device has answered `EOPNOTSUPP` (ls.c
    /// in coreutils).
    private static let labelAttribute = Array("security.selinux".utf8)
    /// True if SELinux runs on this machine, because it then registers its own file system (proc_filesystems(5)).
    private static let hasLabels =
        (try? Descriptor(path: "/proc/filesystems", flags: O_RDONLY).read(at: 0, count: 1 << 16))
        .map { String(decoding: $0, as: UTF8.self).contains("selinuxfs") } ?? true

    private func namespace(of name: [UInt8]) -> Namespace {
        if name == Self.classAttribute { return .protectionClass }
        if name.starts(with: "user.vaultfs.".utf8) { return .reserved }
        if name.starts(with: "user.".utf8) { return name.count == "user.".utf8.count ? .nameless : .encrypted }
        let isPassed =
            name.starts(with: "security.".utf8) || name.starts(with: "system.posix_acl_".utf8)
            || name.starts(with: "trusted.".utf8)
        return isPassed ? .passedThrough : .unsupported
    }

    package func attribute(_ id: NodeID, _ name: [UInt8]) throws(StoreError) -> [UInt8] {
        let node = try nodes.node(id)
        let namespace = namespace(of: name)
        // Always return the root's ACL, because the kernel reads it when it checks access.
        if node !== nodes.root || namespace != .passedThrough { try admit(node, .attributes) }
        switch namespace {
        case .protectionClass: return Array(try classAttribute(of: node).name.utf8)
        case .reserved: throw .system(.noData)
        case .unsupported: throw .system(.notSupported)
        case .nameless: throw .system(.invalidArgument)
        case .passedThrough:
            do throws(StoreError) {
                if try hasOnlyUserAttributes(node) { throw StoreError.system(.noData) }
                return try ExtendedAttributes(try pin(node)).value(of: name)
            } catch .system(.noData) where name == Self.labelAttribute && !Self.hasLabels {
                throw .system(.notSupported)
            }
        case .encrypted:
            return try withEncrypted(node) { (attributes) throws(StoreError) in try attributes.value(of: name) }
        }
    }

    /// Returns true if the object has no attributes outside `user.*`. The kernel and `ls -l` request such attributes of
    /// every file, but hardly any file has them. One look suffices, because only this daemon changes them.
    private func hasOnlyUserAttributes(_ node: Node) throws(StoreError) -> Bool {
        // A thread that renames the object waits here, and then resets this to unknown.
        try node.attributes.withLock { (known) throws(StoreError) -> Bool in
            if let hasOthers = known.hasOthers { return !hasOthers }
            let check = { () throws(StoreError) -> Bool in try self.checkForOtherAttributes(node) }
            let found = if let file = node.openFile { try file.parts.unlessHiddenWrite(check) } else { try check() }
            guard let isNone = found else { return try check() }
            // Do not remember the answer: a writer on another machine can set an attribute at any time.
            if !store.followsWriter { known.hasOthers = !isNone }
            return isNone
        }
    }

    private func checkForOtherAttributes(_ node: Node) throws(StoreError) -> Bool {
        if let open = openDescriptor(node) { return try ExtendedAttributes(open).areOnlyUser() }
        return try atCheckedName(of: node) { (directory, entry) throws(StoreError) -> Bool in
            let isNone = try ExtendedAttributes.areOnlyUser(of: entry, in: directory)
            guard FileIdentity(try directory.status(of: entry)) == node.key else { throw .system(.staleNFSFileHandle) }
            return isNone
        }
    }

    /// listxattr(2): returns the names, without the class, which a copy must not inherit.
    package func attributeNames(_ id: NodeID) throws(StoreError) -> [[UInt8]] {
        let node = try nodes.node(id)
        try admit(node, .attributes)
        let stored = try ExtendedAttributes(try pin(node)).names()
        // Avoid the keys if there are no user attributes.
        guard let firstUser = stored.firstIndex(where: Self.isUser) else { return passedThrough(stored[...]) }
        return try withEncrypted(node) { (attributes) throws(StoreError) in
            // Read the names again, because they may have moved to the pack.
            let users = try ExtendedAttributes(try pin(node)).names().filter(Self.isUser)
            let (names, damaged) = try attributes.names(ofStored: users)
            store.counters.hiddenNames.count(damaged)
            // Keep the store's order, so that an archive of the mount equals one of a plain copy.
            return passedThrough(stored[..<firstUser]) + names + passedThrough(stored[firstUser...])
        }
    }

    private func passedThrough(_ stored: ArraySlice<[UInt8]>) -> [[UInt8]] {
        stored.filter { namespace(of: $0) == .passedThrough }
    }

    private static func isUser(_ name: [UInt8]) -> Bool { name.starts(with: Array("user.".utf8)) }

    /// - Parameter flags: XATTR_CREATE, XATTR_REPLACE.
    package func setAttribute(_ id: NodeID, _ name: [UInt8], value: [UInt8]?, flags: Int32) throws(StoreError) {
        let node = try nodes.node(id)
        try admitChange(of: node)
        try admit(node, .attributes)
        try withSpace { () throws(StoreError) in try setAttribute(of: node, name, value: value, flags: flags) }
    }

    private func setAttribute(of node: Node, _ name: [UInt8], value: [UInt8]?, flags: Int32) throws(StoreError) {
        switch namespace(of: name) {
        case .protectionClass:
            guard let value else { throw .system(.notPermitted) }
            try setProtectionClass(of: node, to: value, flags: flags)
        // A vault inside this one would store its attributes under such names. Let it see a store without attributes.
        case .reserved, .unsupported: throw .system(.notSupported)
        case .nameless: throw .system(.invalidArgument)
        case .passedThrough:
            let attributes = ExtendedAttributes(try pin(node))
            try node.attributes.withLock { (known) throws(StoreError) in
                known.hasOthers = nil
                try excludingHiddenWrites(of: node) { () throws(StoreError) in
                    if let value { try attributes.set(name, value, flags: flags) } else { try attributes.remove(name) }
                }
            }
        case .encrypted:
            try withEncrypted(node) { (attributes) throws(StoreError) in
                if let value { try attributes.set(name, value, flags: flags) } else { try attributes.remove(name) }
            }
        }
    }

    /// Calls `body` with the encrypted attributes of a file or directory, while no other thread uses them.
    private func withEncrypted<Result>(
        _ node: Node, _ body: (inout EncryptedAttributes) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        if gate.state != .unlocked { try admitWhileLocked(node, .encryptedAttributes) }
        let codec = try codec(of: node)
        let pinned = try pin(node)
        return try node.attributes.withLock { (known) throws(StoreError) -> Result in
            var attributes = EncryptedAttributes(pinned, codec, mayHavePack: !known.hasNoPack)
            // Do not remember the answer: a writer on another machine can make a pack at any time.
            defer { known.hasNoPack = !attributes.mayHavePack && !store.followsWriter }
            return try body(&attributes)
        }
    }

    /// Returns the keys of a file's or directory's attributes. Other objects have no `user.*`.
    private func codec(of node: Node) throws(StoreError) -> AttributeCodec {
        guard node.isDirectory || node.isRegularFile else { throw .system(.noData) }
        let key = node.isDirectory ? try directory(node).keys.attributeKey : try openFile(node).keys.attributeKey
        do { return try AttributeCodec(key: key) } catch { throw StoreError(error) }
    }
}

/// The attribute `user.vaultfs.class` of files and directories. Not listed, so that tools do not copy it.
extension VaultFileSystem {
    /// Returns the class of a file or directory.
    /// - Throws: `ENODATA` if the node is neither.
    func classAttribute(of node: Node) throws(StoreError) -> ProtectionClass {
        if node.isDirectory { return try directory(node).protectionClass }
        guard node.isRegularFile else { throw .system(.noData) }
        return try openFile(node).protectionClass
    }

    /// setxattr(2) of the class.
    /// - Parameter name: the name of a class.
    /// - Throws: `EINVAL` for another name, `EEXIST` for XATTR_CREATE, `EPERM` for objects without `user.*` (xattr(7)).
    func setProtectionClass(of node: Node, to name: [UInt8], flags: Int32) throws(StoreError) {
        guard node.isDirectory || node.isRegularFile else { throw .system(.notPermitted) }
        if flags & linux_XATTR_CREATE != 0 { throw .system(.fileExists) }
        guard let newClass = ProtectionClass.allCases.first(where: { Array($0.name.utf8) == name }) else {
            throw .system(.invalidArgument)
        }
        // Refuse during a lock, because it has purged and kept data according to the old class.
        guard gate.isUnlocked() else { throw refusal() }
        if node.isRegularFile && !ProtectionClass.ofFiles.contains(newClass) { throw .system(.invalidArgument) }
        if node.isDirectory {
            let directory = try directory(node)
            defer { node.protectionClass = directory.protectionClass }
            try directory.changeClass(to: newClass)
        } else {
            let file = try openFile(node)
            defer { node.protectionClass = file.protectionClass }
            try file.changeClass(to: newClass)
        }
    }
}
