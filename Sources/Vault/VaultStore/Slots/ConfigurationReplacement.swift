internal import Glibc
internal import LinuxSystem
internal import VaultFormat

/// A replacement of `vaultfs.json` (FileFormat, Store-16 and Store-21), under an exclusive flock on the file, which
/// lasts until the last copy of this value is released. The old file stays in place until the new one is complete and
/// durable. If the replacement fails, or a signal ends the process, the old file stays, or the store has removed it and
/// the new one has another name.
///
/// The flock on the root directory cannot serve here, because a mount holds that one while commands change slots.
package struct ConfigurationReplacement {
    enum Step: CaseIterable, Sendable {
        case write, readBack, rename, synchronize
    }

    /// The prefix of temporary names, unique to these files.
    static let prefix: Component = "vaultfs.tmp.json-"
    private static let entry = VaultDirectory.configurationEntry

    /// The vault with the configuration to replace, which was read under the lock. It is not authenticated.
    package let vault: VaultDirectory
    /// The locked file. Nil after it was closed because the store refuses to replace an open file.
    private var file: Descriptor?
    /// fstat(2) of the file.
    private let status: stat
    private let traits: StoreTraits
    /// Called before each step, for tests. If it throws, the step fails with its error.
    var before: (Step) throws(StoreError) -> Void = { _ in }

    private var root: Descriptor { vault.descriptor }

    /// Takes the lock. Waits up to `wait` for another process that replaces the file. Because a replacement gives the
    /// name to another inode, the lock is then taken again, on the new one.
    /// - Throws: `inUse`; `system`, also without permission to write the file; `damaged` if it is not a regular file;
    ///   as `VaultDirectory.open`.
    package init(of vault: VaultDirectory, wait: Duration) throws(VaultError) {
        let path = vault.path.appending(entry: VaultDirectory.configurationEntry)
        let deadline = ContinuousClock.now + wait
        let traits = vault.traits()
        self.traits = traits
        var found: (file: Descriptor, status: stat)
        repeat {
            found = try VaultError.wrapping("cannot open for writing", path) { () throws(StoreError) in
                // Open it for writing, because NFS gives exclusive locks only on such descriptors.
                let file = try Descriptor(at: vault.descriptor, Self.entry, flags: O_RDWR | O_NONBLOCK | O_NOCTTY)
                return (file, try file.status())
            }
            guard found.status.st_mode & S_IFMT == S_IFREG else { throw .damaged(path, "not a regular file") }
            try VaultDirectory.lock(
                found.file, LOCK_EX, isMandatory: traits.locks == .mandatory, wait: deadline - .now, path: path)
        } while try !VaultError.wrapping("cannot lock", path, Self.isCurrent(found.status, in: vault.descriptor))
        (file, status) = found
        self.vault = try vault.reread()
    }

    /// Returns true if the name still leads to the locked file. A program without the lock may change this (a sync
    /// client).
    private static func isCurrent(_ status: stat, in root: Descriptor) throws(StoreError) -> Bool {
        try root.statusIfPresent(of: entry).map(FileIdentity.init) == FileIdentity(status)
    }

    /// Replaces the file.
    /// - Parameter onReady: called when the new file is complete, just before its rename. If it throws, the old file
    ///   stays.
    /// - Throws: `system`, `unusable`; `refused` if a process without the lock has replaced the file. `damaged` if the
    ///   store has removed the old file. The text names the new one. Also throws if the new file cannot be made
    ///   durable. Then it is in place.
    package mutating func put(_ bytes: [UInt8], onReady: () throws(VaultError) -> Void = {}) throws(VaultError) {
        let leftovers = leftovers()
        let temporary = try write(bytes)
        do throws(VaultError) {
            try onReady()
            // Close the file now, not after a refusal: if another machine has it open too, Samba would then remove the
            // new file with the old one. This drops the lock, so another process may change the file from now on.
            if traits.refusesReplacingOpenFiles(in: root) { file = nil }
            try checkCurrent()
            try wrapping("cannot replace") { () throws(StoreError) in try before(.rename) }
        } catch {
            root.removeQuietly(temporary)
            throw error
        }
        try rename(temporary)
        for entry in leftovers { root.removeQuietly(entry) }
        try wrapping("the change is made, but may not outlive a power cut:") { () throws(StoreError) in
            try before(.synchronize)
            try root.synchronize(dataOnly: false)
        }
    }

    /// Returns the temporary files of killed replacements. Each is a whole configuration, perhaps with slots removed
    /// since, so it must be removed, but only after the new file is in place: until then only it may open the vault.
    /// Listed before that, under the lock, because the next process locks the new file at once, and makes a temporary
    /// file of its own. Best effort.
    private func leftovers() -> [Component] {
        ((try? root.allEntries()) ?? []).filter { $0.starts(with: Self.prefix) }
    }

    /// Returns the newest version of a `vaultfs.json` lost by a failed or killed replacement. Not authenticated.
    static func newest(in root: Descriptor) -> Component? {
        let prefixes = [prefix, entry + Descriptor.keptPrefix]
        let found = ((try? root.allEntries()) ?? []).filter { entry in prefixes.contains { entry.starts(with: $0) } }
        let versions = found.compactMap { entry -> (entry: Component, generation: UInt64)? in
            guard let bytes = try? root.readFile(entry, limit: VaultConfiguration.maximumSize),
                let configuration = try? VaultConfiguration.parse(bytes)
            else { return nil }
            return (entry, configuration.generation)
        }
        return versions.max { $0.generation < $1.generation }?.entry
    }

    /// Makes the file under a temporary name, durably, and reads it back. Returns the name.
    private func write(_ bytes: [UInt8]) throws(VaultError) -> Component {
        try wrapping("cannot replace") { () throws(StoreError) in
            let temporary = Self.prefix + (try VaultDirectory.randomDigits())
            return try root.withTemporary(temporary) { () throws(StoreError) -> Component in
                try before(.write)
                try root.makeFile(temporary, of: bytes, owner: Owner(status), mode: status.st_mode & 0o7777)
                try before(.readBack)
                let file = try Descriptor(at: root, temporary, flags: O_RDONLY)
                try copyAttributes(to: file)
                try file.synchronize(dataOnly: false)
                guard try file.readToEnd(limit: bytes.count) == bytes else {
                    throw .damaged("the store does not give back what was written")
                }
                try root.synchronize(dataOnly: false)
                return temporary
            }
        }
    }

    /// Copies the extended attributes to the replacement, best effort, because removing a slot is more important. But
    /// an access control list must be copied, because it may deny access that the mode gives.
    private func copyAttributes(to other: Descriptor) throws(StoreError) {
        guard let file else { return }
        let (from, to) = (ExtendedAttributes(file), ExtendedAttributes(other))
        for name in try from.namesIfSupported() {
            do throws(StoreError) { try to.set(name, try from.value(of: name), flags: 0) } catch {
                guard name != Array("system.posix_acl_access".utf8) else { throw error }
            }
        }
    }

    /// Throws if a process without the lock has replaced the file, or written to it.
    private func checkCurrent() throws(VaultError) {
        let isCurrent = try wrapping("cannot check") { () throws(StoreError) in try Self.isCurrent(status, in: root) }
        guard isCurrent, try vault.reread().configuration == vault.configuration else {
            throw .refused("\(vault.path.shown): another program has replaced vaultfs.json; nothing was changed")
        }
    }

    private mutating func rename(_ temporary: Component) throws(VaultError) {
        let (root, vault) = (root, vault)
        let path = vault.path.appending(entry: VaultDirectory.configurationEntry)
        do throws(StoreError) {
            try root.replace(Self.entry, by: temporary) { () throws(StoreError) in
                file = nil
                if let found = try? vault.reread(), found.configuration != vault.configuration {
                    throw .damaged("another program has replaced it; nothing was changed")
                }
            }
        } catch .damaged(let reason) {
            throw .unusable("\(path.shown): \(reason)")
        } catch {
            throw VaultError(error, "cannot replace", path)
        }
    }

    private func wrapping<Result>(
        _ operation: String, _ body: () throws(StoreError) -> Result
    ) throws(VaultError) -> Result {
        try VaultError.wrapping(operation, vault.path.appending(entry: VaultDirectory.configurationEntry), body)
    }
}
