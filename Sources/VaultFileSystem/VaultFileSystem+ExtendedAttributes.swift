internal import CLinux
package import FileSystem
package import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

extension VaultFileSystem {
    /// The treatment of a name.
    private enum Namespace {
        /// `user.*`: encrypted.
        case encrypted
        /// The class of a file or directory.
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

    private func namespace(of name: [UInt8]) -> Namespace {
        if name == Self.classAttribute { return .protectionClass }
        if name.starts(with: Array("user.vaultfs.".utf8)) { return .reserved }
        if name.starts(with: Array("user.".utf8)) { return name.count == "user.".utf8.count ? .nameless : .encrypted }
        let passed = ["security.", "trusted.", "system.posix_acl_"]
        return passed.contains { name.starts(with: Array($0.utf8)) } ? .passedThrough : .unsupported
    }

    /// getxattr(2): the value. Throws `ENODATA`.
    package func attribute(_ id: NodeID, _ name: [UInt8]) throws(StoreError) -> [UInt8] {
        let node = try nodes.node(id)
        let namespace = namespace(of: name)
        // The kernel reads the root's ACL when it checks access.
        if node !== nodes.root || namespace != .passedThrough { try admit(node, .attributes) }
        switch namespace {
        case .protectionClass: return Array(try classAttribute(of: node).name.utf8)
        case .reserved: throw .system(.noData)
        case .unsupported: throw .system(.notSupported)
        case .nameless: throw .system(.invalidArgument)
        case .passedThrough: return try ExtendedAttributes(try pinForAttributes(node)).value(of: name)
        case .encrypted:
            return try withEncrypted(node) { (attributes) throws(StoreError) in try attributes.value(of: name) }
        }
    }

    /// listxattr(2): the names, without the class, which a copy must not inherit.
    package func attributeNames(_ id: NodeID) throws(StoreError) -> [[UInt8]] {
        let node = try nodes.node(id)
        try admit(node, .attributes)
        let stored = try ExtendedAttributes(try pinForAttributes(node)).names()
        // Without a user attribute no keys are needed.
        guard let firstUser = stored.firstIndex(where: Self.isUser) else { return passedThrough(stored[...]) }
        return try withEncrypted(node) { (attributes) throws(StoreError) in
            // Read the names again, because they may have moved to the pack.
            let users = try ExtendedAttributes(try pinForAttributes(node)).names().filter(Self.isUser)
            let (names, damaged) = try attributes.names(ofStored: users)
            store.counters.hiddenNames.count(damaged)
            // In the store's order, so that an archive of the mount equals one of a plain copy.
            return passedThrough(stored[..<firstUser]) + names + passedThrough(stored[firstUser...])
        }
    }

    private func passedThrough(_ stored: ArraySlice<[UInt8]>) -> [[UInt8]] {
        stored.filter { namespace(of: $0) == .passedThrough }
    }

    private static func isUser(_ name: [UInt8]) -> Bool { name.starts(with: Array("user.".utf8)) }

    /// setxattr(2).
    /// - Parameter flags: XATTR_CREATE, XATTR_REPLACE.
    package func setAttribute(_ id: NodeID, _ name: [UInt8], value: [UInt8], flags: Int32) throws(StoreError) {
        try store.admitChange()
        let node = try nodes.node(id)
        try admit(node, .attributes)
        switch namespace(of: name) {
        case .protectionClass: try setProtectionClass(of: node, to: value, flags: flags)
        case .reserved: throw .system(.notPermitted)
        case .unsupported: throw .system(.notSupported)
        case .nameless: throw .system(.invalidArgument)
        case .passedThrough:
            let attributes = ExtendedAttributes(try pinForAttributes(node))
            try excludingSeals(of: node) { () throws(StoreError) in try attributes.set(name, value, flags: flags) }
        case .encrypted:
            try withEncrypted(node) { (attributes) throws(StoreError) in
                try attributes.set(name, value, flags: flags)
            }
        }
    }

    /// removexattr(2).
    package func removeAttribute(_ id: NodeID, _ name: [UInt8]) throws(StoreError) {
        try store.admitChange()
        let node = try nodes.node(id)
        try admit(node, .attributes)
        switch namespace(of: name) {
        case .protectionClass, .reserved: throw .system(.notPermitted)
        case .unsupported: throw .system(.notSupported)
        case .nameless: throw .system(.invalidArgument)
        case .passedThrough:
            let attributes = ExtendedAttributes(try pinForAttributes(node))
            try excludingSeals(of: node) { () throws(StoreError) in try attributes.remove(name) }
        case .encrypted:
            try withEncrypted(node) { (attributes) throws(StoreError) in try attributes.remove(name) }
        }
    }

    /// Calls `body` with the encrypted attributes of a file or directory. No other thread uses them meanwhile.
    private func withEncrypted<Result>(
        _ node: Node, _ body: (inout EncryptedAttributes) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        let codec = try codec(of: node)
        let pinned = try pinForAttributes(node)
        return try node.hasNoPack.withLock { (hasNoPack) throws(StoreError) -> Result in
            var attributes = EncryptedAttributes(pinned, codec, mayHavePack: !hasNoPack)
            // Beside a writer on another machine, that machine can make a pack at any time.
            defer { hasNoPack = !attributes.mayHavePack && !store.followsWriter }
            return try body(&attributes)
        }
    }

    private func pinForAttributes(_ node: Node) throws(StoreError) -> Descriptor {
        node === nodes.root ? store.root : try pin(node)
    }

    /// The keys of a file's or directory's attributes. Other objects have no `user.*`.
    private func codec(of node: Node) throws(StoreError) -> AttributeCodec {
        guard node.isDirectory || node.isRegularFile else { throw .system(.noData) }
        let key = node.isDirectory ? try directory(node).keys.attributeKey : try openFile(node).keys.attributeKey
        do { return try AttributeCodec(key: key) } catch { throw StoreError(error) }
    }
}

/// The attribute `user.vaultfs.class` of files and directories. It is not listed, so that no tool copies it.
extension VaultFileSystem {
    /// - Throws: `ENODATA` if the node is neither a file nor a directory.
    func classAttribute(of node: Node) throws(StoreError) -> ProtectionClass {
        if node.isDirectory { return try directory(node).protectionClass }
        guard node.isRegularFile else { throw .system(.noData) }
        return try openFile(node).protectionClass
    }

    /// setxattr(2) of the class.
    /// - Parameters:
    ///   - name: the name of a class.
    ///   - flags: XATTR_CREATE, XATTR_REPLACE.
    /// - Throws: `EINVAL` for another name, `EEXIST` for XATTR_CREATE, `EPERM` for objects without `user.*` (xattr(7)).
    func setProtectionClass(of node: Node, to name: [UInt8], flags: Int32) throws(StoreError) {
        guard node.isDirectory || node.isRegularFile else { throw .system(.notPermitted) }
        if flags & linux_XATTR_CREATE != 0 { throw .system(.fileExists) }
        guard let newClass = ProtectionClass.allCases.first(where: { Array($0.name.utf8) == name }) else {
            throw .system(.invalidArgument)
        }
        // A lock has purged and kept data according to the old class.
        guard gate.isUnlocked() else { throw refusal() }
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
