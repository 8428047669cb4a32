internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// The right to replace `vaultfs.json`: an flock on the file, which one process has at a time. It lasts until the last
/// copy of this value is released.
///
/// It is not the flock on the root directory, because a mount has that one, and slots are changed while the vault is
/// mounted.
struct ConfigurationLock {
    private static let entry = Array(VaultDirectory.configurationEntry.utf8)

    private let root: Descriptor
    private let file: Descriptor
    /// fstat(2) of the file.
    let status: stat

    /// Waits up to `wait` for another process that replaces the file. Such a replacement gives the name to another
    /// inode. The lock is then taken again, on the new one.
    /// - Throws: `inUse`; `system`, also if the file may not be written; `damaged` if it is not a regular file.
    static func take(_ vault: VaultDirectory, wait: Duration) throws(VaultError) -> ConfigurationLock {
        let path = vault.path.appending(VaultDirectory.configurationEntry)
        let deadline = ContinuousClock.now + wait
        while true {
            let lock = try VaultError.wrapping("cannot open for writing", path) { () throws(StoreError) in
                try ConfigurationLock(root: vault.descriptor)
            }
            guard lock.status.st_mode & S_IFMT == S_IFREG else { throw .damaged(path, "not a regular file") }
            do throws(StoreError) {
                try lock.file.lockWhole(LOCK_EX, wait: deadline - .now)
                if try lock.isCurrent() { return lock }
            } catch {
                guard error == .system(.wouldBlock) else { throw .system(error.errno, "cannot lock", path) }
                throw .inUse(path, LockOwner.find(descriptor: FileDescriptor(rawValue: lock.file.fd)))
            }
        }
    }

    /// Opens the file for writing, because NFS gives exclusive locks only on such descriptors.
    private init(root: Descriptor) throws(StoreError) {
        self.root = root
        file = try Descriptor(at: root.fd, Self.entry, flags: O_RDWR | O_NONBLOCK | O_NOCTTY)
        status = try file.status()
    }

    /// Copies the extended attributes to the replacement, best effort, because removing a slot is more important. An
    /// access control list must be copied: it may deny access that the mode gives.
    func copyAttributes(to other: Descriptor) throws(StoreError) {
        let (from, to) = (ExtendedAttributes(file), ExtendedAttributes(other))
        let names: [[UInt8]]
        do throws(StoreError) { names = try from.names() } catch .system(.notSupported) { return }
        for name in names {
            do throws(StoreError) {
                try to.set(name, try from.value(of: name), flags: 0)
            } catch {
                guard name != Array("system.posix_acl_access".utf8) else { throw error }
            }
        }
    }

    /// True if the name still leads to the locked file. A program that takes no lock, such as a sync client, may change
    /// that.
    func isCurrent() throws(StoreError) -> Bool {
        do throws(StoreError) {
            let named = try root.status(of: Self.entry)
            return named.st_dev == status.st_dev && named.st_ino == status.st_ino
        } catch .system(.noSuchFileOrDirectory) {
            return false
        }
    }
}
