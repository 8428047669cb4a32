internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// The right to replace `vaultfs.json`: an flock on the file, which one process has at a time. It goes with the last copy.
///
/// Not the flock on the root directory: a mount holds that one, and slots are changed while the vault is mounted.
struct ConfigurationLock {
    private let root: Descriptor
    private let file: Descriptor
    /// fstat(2) of the file.
    let status: stat

    /// Waits up to `wait` for another process that replaces the file. Since that gives the name to another inode, the lock
    /// counts only where the name leads to the inode that was locked; else it is taken again, on the new one.
    /// - Throws: `inUse`; `system`, also where the file may not be written; `damaged` where it is no regular file.
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

    /// Opens the file for writing, because NFS locks exclusively only what is open for that.
    private init(root: Descriptor) throws(StoreError) {
        self.root = root
        file = try Descriptor(
            at: root.fd, Array(VaultDirectory.configurationEntry.utf8), flags: O_RDWR | O_NONBLOCK | O_NOCTTY)
        status = try file.status()
    }

    /// Gives the file that is to take its place its extended attributes, as far as the file system lets it: that a slot goes is worth
    /// more. But not without an access control list, by which others than the mode says may be kept out.
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

    /// Whether the name still leads to the file that is locked. What takes no lock, such as a sync client, may change that.
    func isCurrent() throws(StoreError) -> Bool {
        let named: stat
        do throws(StoreError) {
            named = try root.status(of: Array(VaultDirectory.configurationEntry.utf8))
        } catch {
            if error == .system(.noSuchFileOrDirectory) { return false }
            throw error
        }
        return named.st_dev == status.st_dev && named.st_ino == status.st_ino
    }
}
