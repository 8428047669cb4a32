internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Replaces `vaultfs.json` (FileFormat, Store-16 and Store-21), with an flock on the file, which one process has at a time.
/// The lock lasts until the last copy of this value is released. The old file stays in place until the new one is complete
/// and durable. If the replacement fails, or a signal ends the process, the old file stays.
///
/// The lock is not the flock on the root directory, because a mount has that one, and slots are changed while the vault
/// is mounted.
struct ConfigurationReplacement {
    enum Step: CaseIterable, Sendable {
        case write, readBack, rename, synchronize
    }

    /// The prefix of temporary names. A mount sweeps them, and no other file has it.
    static let prefix = "vaultfs.tmp.json-"
    private static let entry = Array(VaultDirectory.configurationEntry.utf8)
    /// Maximum number of times that the file is written again because a mount has swept the temporary file.
    private static let maximumTries = 5

    /// The vault with the configuration to replace, which was read under the lock. It is not authenticated.
    let vault: VaultDirectory
    private let file: Descriptor
    /// fstat(2) of the file.
    private let status: stat
    /// Called before each step, for tests. If it throws, the step fails with its error.
    var before: (Step) throws(StoreError) -> Void = { _ in }

    private var root: Descriptor { vault.descriptor }

    /// Takes the lock. Waits up to `wait` for another process that replaces the file. Such a replacement gives the name to
    /// another inode. The lock is then taken again, on the new one.
    /// - Throws: `inUse`; `system`, also if the file may not be written; `damaged` if it is not a regular file; as
    ///   `VaultDirectory.open`.
    init(of vault: VaultDirectory, wait: Duration) throws(VaultError) {
        let path = vault.path.appending(VaultDirectory.configurationEntry)
        let deadline = ContinuousClock.now + wait
        var found: (file: Descriptor, status: stat)
        repeat {
            found = try VaultError.wrapping("cannot open for writing", path) { () throws(StoreError) in
                // For writing, because NFS gives exclusive locks only on such descriptors.
                let file = try Descriptor(at: vault.descriptor.fd, Self.entry, flags: O_RDWR | O_NONBLOCK | O_NOCTTY)
                return (file, try file.status())
            }
            guard found.status.st_mode & S_IFMT == S_IFREG else { throw .damaged(path, "not a regular file") }
            do throws(StoreError) { try found.file.lockWhole(LOCK_EX, wait: deadline - .now) } catch {
                guard error == .system(.wouldBlock) else { throw .system(error.errno, "cannot lock", path) }
                throw .inUse(path, LockOwner.find(descriptor: FileDescriptor(rawValue: found.file.fd)))
            }
        } while try !VaultError.wrapping("cannot lock", path) { () throws(StoreError) in
            try Self.isCurrent(found.status, in: vault.descriptor)
        }
        (file, status) = found
        self.vault = try vault.reread()
    }

    /// True if the name still leads to the locked file. A program that takes no lock, such as a sync client, may change
    /// that.
    private static func isCurrent(_ status: stat, in root: Descriptor) throws(StoreError) -> Bool {
        try root.statusIfPresent(of: entry).map(FileIdentity.init) == FileIdentity(status)
    }

    /// - Parameter onReady: called when the new file is complete and only has to be renamed. If it throws, the old file
    ///   stays.
    /// - Throws: `system`, `unusable`; `refused` if a process without the lock has replaced the file. Also throws if
    ///   the new file cannot be made durable. Then it is in place.
    func put(_ bytes: [UInt8], onReady: () throws(VaultError) -> Void = {}) throws(VaultError) {
        sweep()
        var isReady = false
        for _ in 1...Self.maximumTries {
            guard let temporary = try write(bytes) else { continue }
            do throws(VaultError) {
                if !isReady { try onReady() }
                isReady = true
                guard try rename(temporary) else { continue }
            } catch {
                root.removeQuietly(temporary)
                throw error
            }
            return try wrapping("the change is made, but may not outlive a power cut:") { () throws(StoreError) in
                try before(.synchronize)
                try root.synchronize(dataOnly: false)
            }
        }
        throw .refused("\(vault.path.shown): the new vaultfs.json was removed repeatedly; nothing was changed")
    }

    /// Removes the temporary files of replacements that were killed. Such a file is a whole configuration, with slots
    /// that may have been removed since. Only a process with the lock makes them. Best effort.
    private func sweep() {
        for entry in (try? root.allEntries()) ?? [] where entry.starts(with: Array(Self.prefix.utf8)) {
            root.removeQuietly(entry)
        }
    }

    /// Makes the file under a temporary name and reads it back. Returns the name, or nil if a mount has removed the file
    /// as a leftover.
    private func write(_ bytes: [UInt8]) throws(VaultError) -> [UInt8]? {
        try wrapping("cannot replace") { () throws(StoreError) in
            let temporary = Array((Self.prefix + (try VaultDirectory.randomDigits())).utf8)
            return try root.withTemporary(temporary) { () throws(StoreError) -> [UInt8]? in
                try before(.write)
                try root.makeFile(temporary, of: bytes, owner: Owner(status), mode: status.st_mode & 0o7777)
                try before(.readBack)
                let file: Descriptor
                do throws(StoreError) {
                    file = try Descriptor(at: root.fd, temporary, flags: O_RDONLY)
                } catch .system(.noSuchFileOrDirectory) {
                    return nil
                }
                try copyAttributes(to: file)
                try file.synchronize(dataOnly: false)
                guard try file.readToEnd(limit: bytes.count) == bytes else {
                    throw .damaged("the store does not give back what was written")
                }
                return temporary
            }
        }
    }

    /// Copies the extended attributes to the replacement, best effort, because removing a slot is more important. An
    /// access control list must be copied: it may deny access that the mode gives.
    private func copyAttributes(to other: Descriptor) throws(StoreError) {
        let (from, to) = (ExtendedAttributes(file), ExtendedAttributes(other))
        for name in try from.namesIfSupported() {
            do throws(StoreError) { try to.set(name, try from.value(of: name), flags: 0) } catch {
                guard name != Array("system.posix_acl_access".utf8) else { throw error }
            }
        }
    }

    /// Returns false if the temporary file was removed.
    private func rename(_ temporary: [UInt8]) throws(VaultError) -> Bool {
        // A process without the lock may have replaced the file, or written to it.
        let isCurrent = try wrapping("cannot look at") { () throws(StoreError) in try Self.isCurrent(status, in: root) }
        guard isCurrent, try vault.reread().configuration == vault.configuration else {
            throw .refused("\(vault.path.shown): somebody else has replaced vaultfs.json; nothing was changed")
        }
        return try wrapping("cannot replace") { () throws(StoreError) in
            try before(.rename)
            do throws(StoreError) {
                try root.rename(temporary, as: Self.entry)
                return true
            } catch .system(.noSuchFileOrDirectory) {
                return false
            }
        }
    }

    private func wrapping<Result>(
        _ operation: String, _ body: () throws(StoreError) -> Result
    ) throws(VaultError) -> Result {
        try VaultError.wrapping(operation, vault.path.appending(VaultDirectory.configurationEntry), body)
    }
}
