internal import CLinux
internal import FileSystem
internal import LinuxSystem
internal import Locking
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

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
