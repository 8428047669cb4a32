internal import CLinux
internal import Glibc
package import LinuxSystem
internal import Synchronization
package import SystemPackage
package import VaultCrypto
package import VaultFormat

/// An open vault without keys: its root directory and the parsed, not yet authenticated `vaultfs.json`.
///
/// Keep it while `root` is used, because the last reference closes the descriptor, and so drops the flock. Any thread.
package final class VaultDirectory: Sendable {
    package enum Sharing: Sendable {
        /// Only this process has it (a read-write mount).
        case exclusive
        /// Others may read it too (a read-only mount).
        case shared
    }

    /// The name of the file that makes a directory a vault.
    package static let configurationEntry: Component = "vaultfs.json"
    package let path: FilePath
    package let configuration: VaultConfiguration
    /// True if the backing store is mounted read-only.
    package let isOnReadOnlyStore: Bool
    package let descriptor: Descriptor
    private let acquiredLock: Mutex<WriterLock?>
    private let knownTraits: Mutex<StoreTraits?>

    /// The lock visible to other machines, while the vault is locked.
    package var writerLock: WriterLock? { acquiredLock.withLock { $0 } }

    /// The root directory's descriptor, open for reading.
    package var root: FileDescriptor { FileDescriptor(rawValue: descriptor.fd) }

    private init(
        path: FilePath, descriptor: Descriptor, writerLock: WriterLock? = nil, traits: StoreTraits? = nil
    ) throws(VaultError) {
        acquiredLock = Mutex(writerLock)
        knownTraits = Mutex(traits)
        self.path = path
        self.descriptor = descriptor
        configuration = try Self.readConfiguration(of: descriptor, path: path)
        var space = statvfs()
        try VaultError.wrapping("cannot check", path, retrying { fstatvfs(descriptor.fd, &space) })
        isOnReadOnlyStore = space.f_flag & UInt(ST_RDONLY) != 0
    }

    /// Opens the vault at `path`. Follows a link to a directory, but no links inside it.
    /// - Throws: `notFound`, `notAVault`, `unusable`, `system`.
    package static func open(_ path: FilePath) throws(VaultError) -> VaultDirectory {
        try VaultDirectory(path: path, descriptor: openDirectory(path))
    }

    /// Returns the traits of the store. Probes them once in the vault's directory, if this process can write there.
    package func traits() -> StoreTraits {
        knownTraits.withLock { known in
            if let known { return known }
            let isWritable = !isOnReadOnlyStore && access("/proc/self/fd/\(descriptor.fd)", W_OK) == 0
            guard isWritable, let traits = try? StoreTraits(probing: descriptor) else {
                return StoreTraits(reading: descriptor)
            }
            // Probe again after an error, such as that of a full disk.
            if traits.isComplete { known = traits }
            return traits
        }
    }

    /// Reads the configuration again and returns the same vault with it, on the same descriptor. Once the vault is
    /// locked, no other process writes it.
    /// - Throws: as `open`.
    package func reread() throws(VaultError) -> VaultDirectory {
        try VaultDirectory(
            path: path, descriptor: descriptor, writerLock: writerLock, traits: knownTraits.withLock { $0 })
    }

    /// open(2) of a directory at a path from the user.
    static func openDirectory(_ path: FilePath) throws(VaultError) -> Descriptor {
        do throws(StoreError) {
            return try Descriptor(path: path, flags: O_RDONLY | O_DIRECTORY)
        } catch {
            switch error {
            case .system(.noSuchFileOrDirectory): throw .notFound(path)
            case .system(.notDirectory): throw .unusable("not a directory: \(path.shown)")
            default: throw VaultError(error, "cannot open", path)
            }
        }
    }

    static func readConfiguration(of root: Descriptor, path: FilePath) throws(VaultError) -> VaultConfiguration {
        let file = path.appending(entry: configurationEntry)
        let bytes: [UInt8]
        do throws(StoreError) {
            bytes = try root.readFile(configurationEntry, limit: VaultConfiguration.maximumSize)
        } catch .system(.noSuchFileOrDirectory) {
            // An encrypted tree shows a vault that lost this file. Advice to make a new vault would be wrong then.
            guard (try? Descriptor(at: root, OpenDirectory.recordEntry, flags: linux_O_PATH)) == nil else {
                let advice =
                    ConfigurationReplacement.newest(in: root).map {
                        "its last version is \(RekeyDirectory.shown($0)) beside it, so rename that to vaultfs.json"
                    } ?? "put a copy of it back"
                throw .unusable("\(file.shown) is missing, and without it nothing opens the vault: \(advice)")
            }
            throw .notAVault(path)
        } catch {
            throw VaultError(error, "cannot read", file)
        }
        do throws(FormatError) { return try VaultConfiguration.parse(bytes) } catch {
            throw VaultError(error, configuration: file)
        }
    }

    /// Reads `vaultfs.json` from the store, not from the page cache. The file may be absent.
    /// - Throws: the store's error if it does not answer.
    static func checkAnswer(of root: Descriptor) throws(StoreError) {
        do throws(StoreError) {
            let entry = configurationEntry
            _ = try WriterLockFile.read(Descriptor(at: root, entry, flags: O_RDONLY | O_NONBLOCK))
        } catch .system(.noSuchFileOrDirectory) {}
    }

    /// Returns a temporary name for a file to be renamed: `vaultfs.tmp.` and 64 random bits.
    /// - Throws: the error of libcrypto if it has no random bytes.
    package static func temporaryEntry() throws(StoreError) -> Component { EntryName.temporary(try randomDigits()) }

    static func randomDigits() throws(StoreError) -> Component {
        Component(hexadecimal: try StoreError.ofCrypto(SecureRandom.integer()))
    }
}

extension VaultDirectory {
    /// Takes the flock on the root directory and the writer lock. Both last until their descriptors and all duplicates
    /// are closed. Retries for up to `wait`, because a stopping daemon keeps them until everything is flushed.
    /// - Parameter isRemote: as for `WriterLock.acquire`.
    /// - Throws: `inUse`, with the owner if the kernel or the writer record names it; `refused` if the store cannot
    ///   overwrite; `system`.
    package func lock(_ sharing: Sharing = .exclusive, wait: Duration, isRemote: Bool? = nil) throws(VaultError) {
        let deadline = ContinuousClock.now + wait
        try Self.lock(descriptor, sharing == .exclusive ? LOCK_EX : LOCK_SH, wait: wait, path: path)
        do throws(StoreError) {
            let acquired = try WriterLock.acquire(root: descriptor, sharing, wait: deadline - .now, isRemote: isRemote)
            acquiredLock.withLock { $0 = acquired }
        } catch {
            releaseLock()
            throw sharing == .exclusive ? writingRefusal(error) : Self.refusal(error, descriptor, path)
        }
    }

    /// Takes an flock, until the descriptor and all its duplicates are closed. Retries for up to `wait`.
    /// - Parameter isMandatory: true to use the lock of `vaultfs.lock`, because an flock would keep readers out. An
    ///   flock of an older release conflicts with it there.
    static func lock(
        _ file: Descriptor, _ operation: Int32, isMandatory: Bool = false, wait: Duration, path: FilePath
    ) throws(VaultError) {
        do throws(StoreError) {
            try Descriptor.locking(wait: wait) { () throws(StoreError) in
                if isMandatory { return try WriterLockFile.lock(file, F_WRLCK) }
                try retrying { flock(file.fd, operation | LOCK_NB) }
            }
        } catch {
            guard error == .system(.wouldBlock) else { throw .system(error.errno, "cannot lock", path) }
            throw .inUse(path, LockOwner.find(descriptor: file))
        }
    }

    /// Writes the record of this process into the lock file, once, before the first change.
    /// - Throws: `inUse` if another process has taken the vault since it was locked; `refused` if the store cannot
    ///   overwrite; `unavailable` if it is full; `system`.
    package func claim() throws(VaultError) {
        do throws(StoreError) { try writerLock?.claim() } catch { throw writingRefusal(error) }
    }

    /// Returns the error if this process cannot write the vault. Does not probe a vault in use by another process.
    private func writingRefusal(_ error: StoreError) -> VaultError {
        error != .system(.wouldBlock) && traits().overwritesInPlace == false
            ? Self.cannotOverwrite(path) : Self.refusal(error, descriptor, path)
    }

    static func cannotOverwrite(_ path: FilePath) -> VaultError {
        .refused(
            "\(path.shown): the store cannot overwrite a file in place, as many object stores: keep the vault on a local disk, "
                + "and copy it there with 'rclone sync' (Sync.md)")
    }

    static func refusal(_ error: StoreError, _ root: Descriptor, _ path: FilePath) -> VaultError {
        error == .system(.wouldBlock)
            ? .inUse(path, recordedOwner(in: root)) : VaultError(error, "cannot lock vaultfs.lock in", path)
    }

    private static func recordedOwner(in root: Descriptor) -> LockOwner? {
        WriterLockFile.record(in: root).flatMap { LockOwner($0, in: RootIdentity(of: root)) }
    }

    /// Finds the process that has the vault, by its flock or, if it uses another path or machine, by the writer record.
    /// Nil if there is none, or if it is unknown.
    package func findLockOwner() -> LockOwner? {
        if let owner = LockOwner.find(descriptor: descriptor) { return owner }
        do throws(StoreError) {
            _ = try WriterLock.acquire(root: descriptor, .shared, wait: .zero)
            return nil
        } catch {
            return error == .system(.wouldBlock) ? Self.recordedOwner(in: descriptor) : nil
        }
    }

    /// True if a former writer had an unclean end, and its files without a header are not completed yet (`Completion`).
    /// Valid only if the caller has locked the vault.
    package var followsUncleanEnd: Bool { writerLock?.followsUncleanEnd ?? WriterLockFile.isUnclean(descriptor) }

    /// Must be called when all of these files are completed.
    package func clearUncleanEnd() { writerLock?.clearUncleanEnd() }

    /// Removes the writer record, once everything is durable after the last change. If this fails, the end is unclean.
    package func releaseWriterLock() { writerLock?.release() }

    /// True if the last writer of this vault had an unclean end. False for a copied vault with the record of the
    /// original's writer, or without a record. Valid only if the caller has locked the vault.
    package var wasLeftUncleanHere: Bool {
        guard let content = WriterLockFile.content(in: descriptor), WriterLockFile.isUnclean(content) else {
            return false
        }
        let record = WriterRecord(parsing: content)
        return record.map { !$0.root.isCertainlyOther(than: RootIdentity(of: descriptor)) } ?? true
    }

    /// Gives up writing before the first change, and shares the locked vault with readers.
    /// - Throws: `inUse` if another process has taken it meanwhile; `system`.
    package func shareInsteadOfWriting() throws(VaultError) {
        releaseWriterLock()
        releaseLock()
        try lock(.shared, wait: .zero)
    }

    /// True if this process of this machine was the last writer, and its end was unclean. Nil if unknown.
    /// - Parameter processID: nil if it is not known.
    package func wasLeftUnclean(by processID: Int32?) -> Bool? {
        guard let content = WriterLockFile.content(in: descriptor) else { return nil }
        guard let record = WriterRecord(parsing: content) else { return false }
        return processID.map { record.isOfThisMachine && record.processID == $0 }
    }

    /// Drops both locks, for example after a test if the vault can be locked.
    package func releaseLock() {
        acquiredLock.withLock { $0 = nil }
        flock(descriptor.fd, LOCK_UN)
    }

    /// Returns the master key and the slot opened by `secret`. Takes as long as the slots' key derivations. Does not
    /// start a play window.
    /// - Parameters:
    ///   - now: seconds since 1970-01-01T00:00:00Z.
    ///   - choice: the slots to try.
    ///   - onTry: called before each slot is tried.
    /// - Throws: `noSlot`, `wrongSecret`, `slotEnded`, `tooCostly`, `invalid` if there is no such slot; `unusable` if
    ///   the MAC does not verify.
    package func openSlot(
        with secret: SlotSecret, at now: Int64 = UtcTime.secondsSinceEpoch(), choice: SlotChoice = SlotChoice(),
        onTry: (KeySlot) -> Void = { _ in }
    ) throws(VaultError) -> (masterKey: SecretBytes, slot: KeySlot) {
        if let id = choice.only, configuration.slot(id)?.kind != secret.kind {
            let kind = secret.kind == .recovery ? "recovery key" : secret.kind.rawValue
            let others = configuration.slots.filter { $0.kind == secret.kind }.map { "\($0.id)" }
            let advice =
                others.isEmpty
                ? "'vaultfs slot list' shows the slots"
                : "those that do: \(others.joined(separator: ", "))"
            throw .invalid("\(path.shown): slot \(id) does not exist or takes no \(kind); \(advice)")
        }
        guard configuration.slots.contains(where: { $0.kind == secret.kind }) else { throw .noSlot(path, secret.kind) }
        let opened: (masterKey: SecretBytes, slot: KeySlot)?
        do throws(FormatError) {
            opened = try configuration.unwrapMasterKey(with: secret, at: now, choice: choice, onTry: onTry)
        } catch {
            if error.kind == .tooCostly { throw .tooCostly(path, error.reason) }
            throw VaultError(error, configuration: path.appending(entry: Self.configurationEntry))
        }
        guard let opened else { throw .wrongSecret(path, secret.kind) }
        try checkLease(of: opened.slot, at: now)
        return opened
    }

    /// Checks the MAC of `vaultfs.json` under a master key that another process took from a slot.
    /// - Throws: `damaged`.
    package func authenticate(masterKey: SecretBytes) throws(VaultError) {
        guard configuration.authenticates(masterKey: masterKey) else {
            throw .damagedConfiguration(path.appending(entry: Self.configurationEntry), "changed without a secret")
        }
    }

    /// Refuses a vault with an incomplete step of a killed rekey, because it is unreadable until the step is completed.
    /// - Throws: `refused`.
    package func checkNoRekeyStep() throws(VaultError) {
        guard configuration.isRekeying, try hasRekeyStep() else { return }
        throw .refused(
            "\(path.shown): a rekey was killed in the middle of a step: run 'vaultfs rekey' to continue it, or mount the "
                + "vault for writing")
    }

    /// Returns true if a step of a killed rekey is incomplete.
    /// - Throws: `.system` with errno of fstatat(2), except `ENOENT`.
    package func hasRekeyStep() throws(VaultError) -> Bool {
        try VaultError.wrapping("cannot check", path, RekeySteps.isIncomplete(in: descriptor))
    }

    /// Completes the step of a killed rekey. The caller has locked the vault, exclusively.
    /// - Throws: `system`; `damaged` for a `vaultfs.rekey` that does not authenticate.
    package func finishRekeyStep(masterKey: SecretBytes) throws(VaultError) {
        guard configuration.isRekeying else { return }
        try claim()
        let keyRing = try KeyRing(masterKey: masterKey, configuration: configuration)
        try VaultError.wrapping(
            "cannot continue the rekey of", path,
            RekeySteps.finishOrUndo(in: descriptor, keyRing: keyRing, writerLock: writerLock))
    }

    /// Returns the configuration, authenticated with a mount's configuration key.
    /// - Throws: `unusable`.
    package func authenticated(by configurationKey: SecretBytes) throws(VaultError) -> VaultConfiguration {
        guard configuration.authenticates(configurationKey: configurationKey) else {
            throw .damagedConfiguration(path.appending(entry: Self.configurationEntry), "changed without a secret")
        }
        return configuration
    }

    /// Saves the time in the window of a slot, and starts the window if necessary. Writes nothing if the window already
    /// has a later time, or if the slot has no window.
    /// - Parameters:
    ///   - time: `YYYY-MM-DDThh:mm:ssZ`.
    ///   - wait: maximum wait for another process that changes slots.
    /// - Returns: the resulting configuration.
    /// - Throws: `inUse`, `refused`, `unusable`, `system`.
    @discardableResult
    package func saveTime(
        _ time: String, inWindowOf id: Int, configurationKey: SecretBytes, wait: Duration
    ) throws(VaultError) -> VaultConfiguration {
        guard !isOnReadOnlyStore else {
            throw .refused(
                "slot \(id) has a play window, and \(path.shown) is read-only: its start cannot be recorded")
        }
        var replacement = try ConfigurationReplacement(of: self, wait: wait)
        let current = try replacement.vault.authenticated(by: configurationKey)
        guard let window = current.slot(id)?.window?.seeing(time) else { return current }
        let (bytes, changed) = try SlotEditor.wrapping { () throws(FormatError) in
            let change = try current.settingWindow(of: id, to: window, configurationKey: configurationKey)
            return (try change.checkedBytes(configurationKey: configurationKey), change.configuration)
        }
        try replacement.put(bytes)
        return changed
    }

    /// Checks if a slot may be used.
    /// - Parameter now: seconds since 1970-01-01T00:00:00Z.
    /// - Throws: `slotEnded`.
    package func checkLease(of slot: KeySlot, at now: Int64) throws(VaultError) {
        switch Lease(slot, at: now) {
        case .valid, .starts: break
        case .expired(let end):
            throw .slotEnded(
                "\(path.shown): slot \(slot.id) expired at \(UtcTime.text(secondsSinceEpoch: end)): renew it with "
                    + "'vaultfs slot change' and another slot's secret")
        case .setBack(let seen):
            throw .slotEnded(
                "\(path.shown): slot \(slot.id) expires, and the clock was set back: it shows "
                    + "\(UtcTime.text(secondsSinceEpoch: now)), the slot has seen \(UtcTime.text(secondsSinceEpoch: seen)). "
                    + "Correct the clock, or change the slot with another slot's secret")
        }
    }
}
