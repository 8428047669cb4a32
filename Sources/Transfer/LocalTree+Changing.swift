internal import CLinux
package import FileSystem
package import Glibc
package import LinuxSystem
internal import SystemPackage
package import VaultStore

extension LocalTree {
    package func makeDirectory(_ name: [UInt8], in directory: Descriptor) throws(StoreError) -> Descriptor {
        try withCString(name) { (name) throws(StoreError) in
            _ = try retrying { mkdirat(directory.fd, name, 0o700) }
        }
        return try found(name, in: directory)
    }

    package func makeLink(
        _ name: [UInt8], to target: [UInt8], in directory: Descriptor
    ) throws(StoreError) -> Descriptor {
        try withCString(name) { (name) throws(StoreError) in
            try withCString(target) { (target) throws(StoreError) in
                _ = try retrying { symlinkat(target, directory.fd, name) }
            }
        }
        return try found(name, in: directory)
    }

    package func makeNode(
        _ name: [UInt8], like status: stat, in directory: Descriptor
    ) throws(StoreError) -> Descriptor {
        try withCString(name) { (name) throws(StoreError) in
            _ = try retrying { mknodat(directory.fd, name, status.st_mode & S_IFMT | 0o600, status.st_rdev) }
        }
        return try found(name, in: directory)
    }

    private func found(_ name: [UInt8], in directory: Descriptor) throws(StoreError) -> Descriptor {
        guard let item = try find(name, in: directory) else { throw .system(.noSuchFileOrDirectory) }
        return item
    }

    /// Locked with flock(2) while it is open: another export is not to take it for a stale one.
    package func makeFile(
        _ name: [UInt8], in directory: Descriptor
    ) throws(StoreError) -> (Descriptor, Descriptor) {
        let file = try Descriptor(at: directory.fd, name, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        try retrying { flock(file.fd, LOCK_EX | LOCK_NB) }
        return (file, file)
    }

    package func link(_ item: Descriptor, as name: [UInt8], in directory: Descriptor) throws(StoreError) {
        // By the kernel's own link: AT_EMPTY_PATH takes a capability, linkat(2).
        let path = "/proc/self/fd/\(item.fd)"
        try withCString(name) { (name) throws(StoreError) in
            _ = try retrying { linkat(AT_FDCWD, path, directory.fd, name, AT_SYMLINK_FOLLOW) }
        }
    }

    package func write(
        _ bytes: UnsafeRawBufferPointer, to content: Descriptor, at offset: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        try content.write(bytes, at: offset)
        // The disk is at work while the next are decrypted. Where it cannot be told, it begins later.
        _ = linux_start_writing(content.fd, Int64(offset), Int64(bytes.count))
    }

    package func setLength(_ length: UInt64, of content: Descriptor, _ workspace: Workspace) throws(StoreError) {
        try content.truncate(to: length)
    }

    package func change(
        _ item: Descriptor, _ changes: AttributeChanges, _ workspace: Workspace
    ) throws(StoreError) {
        try changes.apply(to: item, kind: try item.status().st_mode & S_IFMT)
    }

    package func setAttribute(_ name: [UInt8], _ value: [UInt8], of item: Descriptor) throws(StoreError) {
        try ExtendedAttributes(item).set(name, value, flags: 0)
    }

    package func removeAttribute(_ name: [UInt8], of item: Descriptor) throws(StoreError) {
        try ExtendedAttributes(item).remove(name)
    }

    package func rename(
        _ name: [UInt8], to newName: [UInt8], in directory: Descriptor, isReplacing: Bool
    ) throws(StoreError) {
        try withCString(name) { (old) throws(StoreError) in
            try withCString(newName) { (new) throws(StoreError) in
                let flags = isReplacing ? 0 : linux_RENAME_NOREPLACE
                do throws(StoreError) {
                    _ = try retrying { linux_renameat2(directory.fd, old, directory.fd, new, flags) }
                } catch .system(.invalidArgument) where !isReplacing {
                    // A file system that cannot rename without replacing (NFS) may know links.
                    _ = try retrying { linkat(directory.fd, old, directory.fd, new, 0) }
                    unlinkat(directory.fd, old, 0)
                }
            }
        }
    }

    package func remove(_ name: [UInt8], in directory: Descriptor) throws(StoreError) {
        try withCString(name) { (name) throws(StoreError) in
            _ = try retrying { unlinkat(directory.fd, name, 0) }
        }
    }

    /// A file that is locked is being written.
    package func isStale(_ item: Descriptor) -> Bool {
        let user = geteuid()
        // What root makes gets its source's owner.
        guard let status = try? item.status(), user == 0 || status.st_uid == user, status.st_mode & S_IFMT != S_IFDIR
        else { return false }
        guard status.st_mode & S_IFMT == S_IFREG else { return true }
        // It gets its mode when it is whole.
        if user != 0 && status.st_mode & 0o400 == 0 { return true }
        guard let file = try? item.reopened(flags: O_RDONLY | O_NONBLOCK) else { return false }
        return flock(file.fd, LOCK_EX | LOCK_NB) == 0
    }
}
