internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Puts a new `vaultfs.json` in the place of the old one (FileFormat, Store-16 and Store-21), which is there, whole, until the
/// new one is, whole and durable. Where it fails, or a signal ends the process, the old one stays.
struct ConfigurationReplacement {
    enum Step: CaseIterable, Sendable {
        case write, readBack, rename, synchronize
    }

    /// Of the temporary names: of those that a mount sweeps, and of no other.
    static let prefix = "vaultfs.tmp.json-"
    /// How often it is written anew because a mount that sweeps what others left has removed the temporary file.
    private static let maximumTries = 5

    let vault: VaultDirectory
    let lock: ConfigurationLock
    /// What is replaced.
    let base: VaultConfiguration
    /// Called before each step; what it throws is the failure of that step. Tests look, and make steps fail.
    var before: (Step) throws(StoreError) -> Void = { _ in }

    /// - Parameter onReady: called when the new file is complete and has only to get its name: what it throws leaves the
    ///   old one.
    /// - Throws: `system`, `damaged`; `slotRefused` where somebody without the lock has replaced the file meanwhile. Where the
    ///   new file cannot be made durable it is in place, and this throws.
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
        throw .slotRefused("\(vault.path.shown): the new vaultfs.json is removed time and again; nothing was changed")
    }

    /// Removes what a replacement that was killed has left: a whole configuration, with slots that may be gone since. Whoever makes
    /// one holds the lock. What cannot be removed stays for the next.
    private func sweep() {
        guard
            let root = try? Descriptor(at: vault.descriptor.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        else { return }
        var reader = DirectoryReader(root)
        while let entry = try? reader.next() {
            guard entry.name.starts(with: Array(Self.prefix.utf8)) else { continue }
            _ = withCString(entry.name) { unlinkat(root.fd, $0, 0) }
        }
    }

    /// Makes the file under a temporary name, which it returns, and reads it back. Nil where it is gone meanwhile: whoever mounts
    /// the vault takes it for a leftover.
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

    /// False where the temporary file is gone.
    private func rename(_ temporary: String) throws(VaultError) -> Bool {
        // Who takes no lock may have put another file there, or written in this one.
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
            } catch {
                if error == .system(.noSuchFileOrDirectory) { return false }
                throw error
            }
        }
    }

    private func wrapping<Result>(
        _ operation: String, _ body: () throws(StoreError) -> Result
    ) throws(VaultError) -> Result {
        try VaultError.wrapping(operation, vault.path.appending(VaultDirectory.configurationEntry), body)
    }
}

extension VaultDirectory {
    /// A name for a file that is to be renamed: `vaultfs.tmp.` and 64 random bits.
    static func temporaryEntry() throws(StoreError) -> String { "vaultfs.tmp." + (try randomDigits()) }

    fileprivate static func randomDigits() throws(StoreError) -> String {
        do throws(CryptoError) {
            return String(try SecureRandom.integer(), radix: 16)
        } catch {
            throw StoreError(error)
        }
    }
}
