internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Replaces `vaultfs.json` (FileFormat, Store-16 and Store-21). The old file stays in place until the new one is complete
/// and durable. If the replacement fails, or a signal ends the process, the old file stays.
struct ConfigurationReplacement {
    enum Step: CaseIterable, Sendable {
        case write, readBack, rename, synchronize
    }

    /// The prefix of temporary names. A mount sweeps them, and no other file has it.
    static let prefix = "vaultfs.tmp.json-"
    /// Maximum number of times that the file is written again because a mount has swept the temporary file.
    private static let maximumTries = 5

    let vault: VaultDirectory
    let lock: ConfigurationLock
    /// The configuration to replace.
    let base: VaultConfiguration
    /// Called before each step, for tests. If it throws, the step fails with its error.
    var before: (Step) throws(StoreError) -> Void = { _ in }

    /// - Parameter onReady: called when the new file is complete and only has to be renamed. If it throws, the old file
    ///   stays.
    /// - Throws: `system`, `damaged`; `slotRefused` if a process without the lock has replaced the file. Also throws if
    ///   the new file cannot be made durable. Then it is in place.
    func put(_ bytes: [UInt8], onReady: () throws(VaultError) -> Void) throws(VaultError) {
        sweep()
        var isReady = false
        for _ in 1...Self.maximumTries {
            guard let temporary = try write(bytes) else { continue }
            do throws(VaultError) {
                if !isReady { try onReady() }
                isReady = true
                guard try rename(temporary) else { continue }
            } catch {
                unlinkat(vault.descriptor.fd, temporary, 0)
                throw error
            }
            return try wrapping("the change is made, but may not outlive a power cut:") { () throws(StoreError) in
                try before(.synchronize)
                try vault.descriptor.synchronize(dataOnly: false)
            }
        }
        throw .slotRefused("\(vault.path.shown): the new vaultfs.json was removed repeatedly; nothing was changed")
    }

    /// Removes the temporary files of replacements that were killed. Such a file is a whole configuration, with slots
    /// that may have been removed since. Only a process with the lock makes them. Best effort.
    private func sweep() {
        guard let root = try? vault.descriptor.openedForReading() else { return }
        var reader = DirectoryReader(root)
        while let entry = try? reader.next() {
            if entry.name.starts(with: Array(Self.prefix.utf8)) { root.removeQuietly(entry.name) }
        }
    }

    /// Makes the file under a temporary name and reads it back. Returns the name, or nil if a mount has removed the file
    /// as a leftover.
    private func write(_ bytes: [UInt8]) throws(VaultError) -> String? {
        try wrapping("cannot replace") { () throws(StoreError) in
            let temporary = try Self.prefix + VaultDirectory.randomDigits()
            do throws(StoreError) {
                try before(.write)
                try vault.descriptor.makeFile(Array(temporary.utf8), of: bytes, like: lock.status)
                try before(.readBack)
                let file: Descriptor
                do throws(StoreError) {
                    file = try Descriptor(at: vault.descriptor.fd, Array(temporary.utf8), flags: O_RDONLY)
                } catch .system(.noSuchFileOrDirectory) {
                    return nil
                }
                try lock.copyAttributes(to: file)
                try file.synchronize(dataOnly: false)
                guard try file.readToEnd(limit: bytes.count) == bytes else {
                    throw StoreError.damaged("the store does not give back what was written")
                }
            } catch {
                unlinkat(vault.descriptor.fd, temporary, 0)
                throw error
            }
            return temporary
        }
    }

    /// Returns false if the temporary file was removed.
    private func rename(_ temporary: String) throws(VaultError) -> Bool {
        // A process without the lock may have replaced the file, or written to it.
        let isCurrent = try wrapping("cannot look at", lock.isCurrent)
        guard isCurrent, try vault.reread().configuration == base else {
            throw .slotRefused("\(vault.path.shown): somebody else has replaced vaultfs.json; nothing was changed")
        }
        return try wrapping("cannot replace") { () throws(StoreError) in
            try before(.rename)
            let root = vault.descriptor.fd
            do throws(StoreError) {
                try retrying { renameat(root, temporary, root, VaultDirectory.configurationEntry) }
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
