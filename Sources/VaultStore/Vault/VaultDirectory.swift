internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
package import SystemPackage
package import VaultCrypto
package import VaultFormat

/// An open vault without keys: its root directory and the parsed, not yet authenticated `vaultfs.json`.
///
/// Keep it as long as `root` is used: it closes the descriptor, and with it the flock, when the last reference goes.
/// Any thread.
package final class VaultDirectory: Sendable {
    /// How a process shares the vault with others.
    package enum Sharing: Sendable {
        /// No other process has it (a read-write mount).
        case exclusive
        /// Others may read it too (a read-only mount).
        case shared
    }

    /// The name of the file that makes a directory a vault.
    package static let configurationEntry = "vaultfs.json"
    package let path: FilePath
    package let configuration: VaultConfiguration
    /// True where the backing store refuses every write (mounted read-only).
    package let isOnReadOnlyStore: Bool
    /// The root directory.
    let descriptor: Descriptor
    private let heldLock: Mutex<WriterLock?>

    /// What keeps other machines out, while the vault is locked.
    package var writerLock: WriterLock? { heldLock.withLock { $0 } }

    /// The root directory's descriptor, open for reading.
    package var root: FileDescriptor { FileDescriptor(rawValue: descriptor.fd) }

    private init(path: FilePath, descriptor: Descriptor, writerLock: WriterLock? = nil) throws(VaultError) {
        heldLock = Mutex(writerLock)
        self.path = path
        self.descriptor = descriptor
        configuration = try Self.readConfiguration(of: descriptor, path: path)
        var space = statvfs()
        try VaultError.wrapping("cannot look at", path) { () throws(StoreError) in
            try retrying { fstatvfs(descriptor.fd, &space) }
        }
        isOnReadOnlyStore = space.f_flag & UInt(ST_RDONLY) != 0
    }

    /// Opens the vault at `path` (a link to a directory is followed; nothing in it is).
    /// - Throws: `notFound`, `notADirectory`, `notAVault`, `damaged`, `newerVersion`, `system`.
    package static func open(_ path: FilePath) throws(VaultError) -> VaultDirectory {
        try VaultDirectory(path: path, descriptor: openDirectory(path))
    }

    /// The same vault with its configuration read again, on the same descriptor: once locked, nobody else writes it.
    /// - Throws: as `open`.
    package func reread() throws(VaultError) -> VaultDirectory {
        try VaultDirectory(path: path, descriptor: descriptor, writerLock: writerLock)
    }

    /// open(2) of a directory that a person named.
    static func openDirectory(_ path: FilePath) throws(VaultError) -> Descriptor {
        do throws(StoreError) {
            let fd = try retrying {
                path.withPlatformString { Glibc.open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
            }
            return Descriptor(owning: fd)
        } catch {
            switch error {
            case .system(.noSuchFileOrDirectory): throw .notFound(path)
            case .system(.notDirectory): throw .notADirectory(path)
            case .system(let errno): throw .system(errno, "cannot open", path)
            case .damaged(let reason), .crypto(let reason): throw .damaged(path, reason)
            }
        }
    }

    static func readConfiguration(
        of root: Descriptor, path: FilePath
    ) throws(VaultError) -> VaultConfiguration {
        let file = path.appending(configurationEntry)
        let bytes: [UInt8]?
        do throws(StoreError) {
            // O_NONBLOCK: a FIFO put there must not hang us.
            let descriptor = try Descriptor(
                at: root.fd, Array(configurationEntry.utf8), flags: O_RDONLY | O_NONBLOCK)
            guard try descriptor.status().st_mode & S_IFMT == S_IFREG else {
                throw StoreError.damaged("not a regular file")
            }
            bytes = try descriptor.readToEnd(limit: JSONParser.maximumSize)
        } catch {
            switch error {
            case .system(.noSuchFileOrDirectory):
                // With an encrypted tree, it is a vault that lost it: making another there would help nobody.
                guard (try? Descriptor(at: root.fd, OpenDirectory.recordEntry, flags: linux_O_PATH)) == nil else {
                    throw .damaged(file, "it is missing, and without it nothing opens the vault: put a copy of it back")
                }
                throw .notAVault(path)
            case .system(.tooManySymbolicLinkLevels): throw .damaged(file, "a symbolic link, which is not followed")
            case .system(let errno): throw .system(errno, "cannot read", file)
            case .damaged(let reason), .crypto(let reason): throw .damaged(file, reason)
            }
        }
        guard let bytes else { throw .damaged(file, "over \(JSONParser.maximumSize) bytes") }
        do throws(FormatError) {
            return try VaultConfiguration.parse(bytes)
        } catch {
            throw VaultError(error, configuration: file)
        }
    }
}

extension VaultDirectory {
    /// Takes the flock on the root directory, and the lock that other machines see (`WriterLock`); they last until the
    /// descriptors (and every duplicate) are closed.
    ///
    /// Tries again for up to `wait`, because a daemon that is shutting down holds them until all is flushed.
    /// - Throws: `inUse`, naming the holder where the kernel or its note tells; `system`.
    package func lock(_ sharing: Sharing = .exclusive, wait: Duration) throws(VaultError) {
        try lock(sharing, wait: wait, isRemote: nil)
    }

    /// The same.
    /// - Parameter isRemote: as for `WriterLock.take`.
    func lock(_ sharing: Sharing, wait: Duration, isRemote: Bool?) throws(VaultError) {
        let deadline = ContinuousClock.now + wait
        do throws(StoreError) {
            try descriptor.lockWhole(sharing == .exclusive ? LOCK_EX : LOCK_SH, wait: wait)
        } catch {
            guard error == .system(.wouldBlock) else { throw .system(error.errno, "cannot lock", path) }
            throw .inUse(path, LockOwner.find(descriptor: root))
        }
        do throws(StoreError) {
            let taken = try WriterLock.take(
                root: descriptor, sharing, wait: deadline - .now, isRemote: isRemote)
            heldLock.withLock { $0 = taken }
        } catch {
            releaseLock()
            throw refusal(error)
        }
    }

    /// Says, to other machines, that this process writes from now on (`WriterLock`); before the first change. Once is enough.
    /// - Throws: `inUse` where another has taken the vault over since it was locked; `system`.
    package func claim() throws(VaultError) {
        do throws(StoreError) { try writerLock?.claim() } catch { throw refusal(error) }
    }

    /// Of a hold that could not be had.
    private func refusal(_ error: StoreError) -> VaultError {
        error == .system(.wouldBlock)
            ? .inUse(path, notedHolder) : .system(error.errno, "cannot lock vaultfs.lock in", path)
    }

    private var notedHolder: LockOwner? { WriterLock.record(in: descriptor).flatMap(LockOwner.init) }

    /// Who has the vault: by its flock, or, by another path to it or on another machine, by the file that others see. Nil where
    /// nobody has, or nothing tells who.
    package func findHolder() -> LockOwner? {
        if let holder = LockOwner.find(descriptor: root) { return holder }
        do throws(StoreError) {
            _ = try WriterLock.take(root: descriptor, .shared, wait: .zero)
            return nil
        } catch {
            return error == .system(.wouldBlock) ? notedHolder : nil
        }
    }

    /// True if a former writer did not end properly, and the files without a header that it left are not completed
    /// yet (`Completion`). Valid only if the caller has locked the vault.
    package var followsUncleanEnd: Bool { writerLock?.followsUncleanEnd ?? WriterLock.isUnclean(descriptor) }

    /// Notes that all of these files are completed.
    package func noteCompletion() { writerLock?.noteCompletion() }

    /// Nothing will be changed any more, and all is durable: the next machine need not wait.
    package func releaseWriterLock() { writerLock?.release() }

    /// Gives the locks back, for a vault that was locked only to see whether it can be.
    package func releaseLock() {
        heldLock.withLock { $0 = nil }
        flock(descriptor.fd, LOCK_UN)
    }

    /// The master key, if `secret` opens a slot. Takes as long as the slots' key derivations.
    /// - Throws: `noSlot`, `wrongSecret`, `slotExpired`, `clockSetBack`; `damaged` where the MAC does not verify.
    package func unlock(with secret: SlotSecret) throws(VaultError) -> SecretBytes {
        try openSlot(with: secret).masterKey
    }

    /// The same, and which slot it was. A play window that was not started stays so.
    /// - Parameters:
    ///   - now: seconds since 1970-01-01T00:00:00Z.
    ///   - choice: the slots to try.
    ///   - onTry: called before each slot is tried.
    /// - Throws: also `tooCostly`, `noSuchSlot`.
    package func openSlot(
        with secret: SlotSecret, at now: Int64 = UtcTime.secondsSinceEpoch(), choice: SlotChoice = SlotChoice(),
        onTry: (KeySlot) -> Void = { _ in }
    ) throws(VaultError) -> (masterKey: SecretBytes, slot: KeySlot) {
        if let id = choice.only, configuration.slot(id)?.kind != secret.kind {
            throw .noSuchSlot(path, id: id, secret.kind)
        }
        guard configuration.slots.contains(where: { $0.kind == secret.kind }) else { throw .noSlot(path, secret.kind) }
        let opened: (masterKey: SecretBytes, slot: KeySlot)?
        do throws(FormatError) {
            opened = try configuration.openMasterKey(with: secret, at: now, choice: choice, onTry: onTry)
        } catch {
            if error.kind == .tooCostly { throw .tooCostly(path, error.reason) }
            throw VaultError(error, configuration: path.appending(Self.configurationEntry))
        }
        guard let opened else { throw .wrongSecret(path, secret.kind) }
        try checkLease(of: opened.slot, at: now)
        return opened
    }

    /// Checks the MAC of `vaultfs.json` under a master key that another process took from a slot.
    /// - Throws: `damaged`.
    package func authenticate(masterKey: SecretBytes) throws(VaultError) {
        guard configuration.authenticates(masterKey: masterKey) else {
            throw .damaged(path.appending(Self.configurationEntry), "mac does not verify")
        }
    }
}

extension VaultError {
    /// What a format error in `vaultfs.json`, at `file`, means for the vault.
    fileprivate init(_ error: FormatError, configuration file: FilePath) {
        self =
            switch error.kind {
            case .newerVersion: .newerVersion(file, error.reason)
            case .malformed, .doesNotAuthenticate: .damaged(file, error.reason)
            case .tooLong, .invalidValue, .tooCostly, .cryptography, .keyForgotten: .format(error)
            }
    }
}
