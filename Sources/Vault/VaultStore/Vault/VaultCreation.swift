internal import Glibc
package import LinuxSystem
package import SystemPackage
package import VaultCrypto
package import VaultFormat

/// The creation of a vault: a directory with a log if its size is given, `vaultfs.dir`, and at last `vaultfs.json`.
package enum VaultCreation {
    /// Checks early, before the user types a passphrase, if `create` would be refused at `path`.
    /// - Throws: as `create`.
    package static func check(at path: FilePath) throws(VaultError) {
        var written = path
        do throws(VaultError) {
            _ = try findRemains(in: VaultDirectory.openDirectory(path), path: path)
        } catch {
            guard case .notFound = error else { throw error }
            // The directory's parent must exist.
            written = parent(of: path)
        }
        let directory = try VaultDirectory.openDirectory(written)
        try VaultError.wrapping("cannot write", written, directory.checkAccess(W_OK | X_OK))
    }

    /// Makes a vault at `path`. An absent directory is made with mode 0700. An existing one must be empty, except for
    /// the remains of a killed `init`. On failure, everything made is removed. Takes as long as the slots' key
    /// derivations.
    /// - Parameters:
    ///   - logSize: the log's maximum size. The standard one if nil.
    ///   - onStore: called first, with the traits of the store.
    ///   - onReady: called just before the vault is written. If it throws, no vault is made.
    /// - Throws: `notFound` (the parent), `unusable`, `refused`, `inUse`, `invalid`, `system`.
    @discardableResult
    package static func create(
        at path: FilePath, chunkSize: Int, logSize: UInt64? = nil, slots: [SlotRequest],
        onStore: (StoreTraits) -> Void = { _ in },
        onReady: (VaultConfiguration) throws(VaultError) -> Void = { _ in }
    ) throws(VaultError) -> VaultConfiguration {
        try check(at: path)
        let (record, configuration) = try makeContents(chunkSize: chunkSize, slots: slots)
        let isMade = try makeDirectory(path)
        do throws(VaultError) {
            let root = try VaultDirectory.openDirectory(path)
            // Let only one of two concurrent `init` continue.
            try VaultDirectory.lock(root, LOCK_EX, wait: .zero, path: path)
            // Unlock explicitly: another thread's forked child has the descriptor, and so the lock, until its exec(2).
            defer { flock(root.fd, LOCK_UN) }
            for entry in try findRemains(in: root, path: path) where entry.starts(with: StoreTraits.prefix) {
                StoreTraits.remove(entry, from: root)
            }
            let traits = try VaultError.wrapping("cannot write", path, StoreTraits(probing: root))
            if traits.overwritesInPlace == false { throw VaultDirectory.cannotOverwrite(path) }
            onStore(traits)
            try onReady(configuration)
            // An `init` on another machine must not mistake the files made here for the remains of a killed one. This
            // also makes `vaultfs.lock`, which readers lock.
            let writerLock: WriterLock?
            do throws(StoreError) { writerLock = try WriterLock.acquire(root: root, .exclusive, wait: .zero) } catch {
                throw VaultDirectory.refusal(error, root, path)
            }
            defer { writerLock?.release() }
            let remains = try findRemains(in: root, path: path)
            try VaultError.wrapping("cannot write", path) { () throws(StoreError) in
                for entry in remains where entry != WriterLockFile.entry { try root.remove(entry) }
            }
            try fill(root, path: path, record, logSize.map { LogHeader(logSize: $0) }, configuration)
        } catch {
            if isMade { _ = path.withPlatformString { rmdir($0) } }
            throw error
        }
        if isMade {
            let parent = try VaultDirectory.openDirectory(parent(of: path))
            try VaultError.wrapping("cannot write", path, parent.synchronize(dataOnly: false))
        }
        return configuration
    }

    /// Returns the root's `vaultfs.dir` and the configuration, under a new master key, which is not kept.
    private static func makeContents(
        chunkSize: Int, slots: [SlotRequest]
    ) throws(VaultError) -> (record: [UInt8], configuration: VaultConfiguration) {
        let masterKey = try drawMasterKey()
        do throws(FormatError) {
            let configuration = try VaultConfiguration.make(
                chunkSize: chunkSize, masterKey: masterKey, slots: slots, created: UtcTime.now())
            let cipher = try SivCipher.under(
                KeyDerivation.classKey(master: masterKey, vault: configuration.vault, .complete))
            let record = try DirectoryRecord.make(
                .complete, isRoot: true, classCipher: cipher, vault: configuration.vault)
            return (record.bytes, configuration)
        } catch {
            throw .format(error)
        }
    }

    /// Returns 32 random bytes.
    /// - Throws: `.format` if libcrypto has no random bytes.
    package static func drawMasterKey() throws(VaultError) -> SecretBytes {
        do throws(CryptoError) { return try SecretBytes.random(count: KeyDerivation.secretSize) } catch {
            throw .format(FormatError(.cryptography, "cannot draw a master key: \(error)"))
        }
    }

    private static func makeDirectory(_ path: FilePath) throws(VaultError) -> Bool {
        do throws(StoreError) {
            try retrying { path.withPlatformString { mkdir($0, 0o700) } }
            return true
        } catch {
            if error == .system(.fileExists) { return false }
            throw .system(error.errno, "cannot make", path)
        }
    }

    private static func fill(
        _ root: Descriptor, path: FilePath, _ record: [UInt8], _ log: LogHeader?, _ configuration: VaultConfiguration
    ) throws(VaultError) {
        var files = [
            (OpenDirectory.recordEntry, record), (VaultDirectory.configurationEntry, configuration.serialized()),
        ]
        if let log { files.insert((RedoLog.fileName, log.bytes), at: 0) }
        do throws(VaultError) {
            for (entry, contents) in files {
                try VaultError.wrapping("cannot write", path.appending(entry: entry)) { () throws(StoreError) in
                    let temporary = try VaultDirectory.temporaryEntry()
                    try root.install(contents, as: entry, by: temporary, owner: nil, mode: 0o600)
                    try root.synchronize(dataOnly: false)
                }
            }
        } catch {
            for entry in files.map(\.0) + [WriterLockFile.entry] { root.removeQuietly(entry) }
            throw error
        }
    }

    private static func parent(of path: FilePath) -> FilePath {
        let parent = path.removingLastComponent()
        return parent.isEmpty ? "." : parent
    }
}

/// The remains of an `init` killed before it made `vaultfs.json`.
extension VaultCreation {
    /// The beginning of every `vaultfs.json`.
    private static let configurationBeginning = Array("{\n  \"format\": \"vaultfs\",\n  \"version\": 1,\n".utf8)

    /// Returns the remains, or an empty array for an empty directory. Throws for any other entry.
    private static func findRemains(in directory: Descriptor, path: FilePath) throws(VaultError) -> [Component] {
        if let remains = try VaultError.wrapping("cannot read", path, remains(in: directory)) { return remains }
        func has(_ entry: Component) -> Bool { (try? directory.status(of: entry)) != nil }
        if has(VaultDirectory.configurationEntry) { throw .refused("a vault already exists: \(path.shown)") }
        // mkfs makes this directory (mklost+found(8)).
        let advice =
            has("lost+found")
            ? ": it has lost+found, as the root of a disk has: make the vault below it, such as "
                + path.appending("Vault").shown : ""
        throw .refused("directory is not empty: \(path.shown)\(advice)")
    }

    /// Returns nil if there is anything else, so that parts of a former vault never count as remains.
    private static func remains(in directory: Descriptor) throws(StoreError) -> [Component]? {
        var reader = DirectoryReader(try directory.openedForReading())
        var found: [Component] = []
        while let entry = try reader.next() {
            guard isRemains(entry, in: directory) else { return nil }
            found.append(entry)
        }
        // Require the lock file, because `init` makes it first.
        let isProbed = found.allSatisfy { $0.starts(with: StoreTraits.prefix) }
        return isProbed || found.contains(WriterLockFile.entry) ? found : nil
    }

    private static func isRemains(_ entry: Component, in directory: Descriptor) -> Bool {
        if entry.starts(with: StoreTraits.prefix) { return true }
        // Check the type first, because opening a device can have effects.
        guard [.temporary, .reserved].contains(EntryName.kind(of: entry.bytes)),
            let status = try? directory.status(of: entry),
            status.st_mode & S_IFMT == S_IFREG, status.st_nlink == 1, status.st_size <= VaultConfiguration.maximumSize,
            let file = try? Descriptor(at: directory, entry, flags: O_RDONLY | O_NONBLOCK),
            let bytes = try? file.readToEnd(limit: VaultConfiguration.maximumSize)
        else { return false }
        switch entry {
        // This file must be empty, because a vault's writer writes to it first.
        case WriterLockFile.entry: return bytes.isEmpty
        case RedoLog.fileName: return LogHeader(parsing: bytes) != nil
        case OpenDirectory.recordEntry: return (try? DirectoryRecord.parse(bytes))?.isRoot == true
        default: return isTemporary(entry) && isBeginning(bytes)
        }
    }

    /// Returns true for `vaultfs.tmp.` and up to 64 random bits. A replacement of a `vaultfs.json` has another name.
    private static func isTemporary(_ entry: Component) -> Bool {
        let digits = entry.dropFirst(EntryName.temporaryPrefix.count)
        return entry.starts(with: EntryName.temporaryPrefix) && (1...16).contains(digits.count)
            && digits.allSatisfy(Array("0123456789abcdef".utf8).contains)
    }

    /// Returns true for a beginning, of any length, of a root's `vaultfs.dir`, of a log or of a `vaultfs.json`.
    private static func isBeginning(_ bytes: [UInt8]) -> Bool {
        func agrees(with beginning: [UInt8]) -> Bool { zip(bytes, beginning).allSatisfy { $0 == $1 } }
        return agrees(with: configurationBeginning)
            || bytes.count <= DirectoryRecord.size
                && (agrees(with: DirectoryRecord.magic) || agrees(with: LogHeader.magic))
    }
}
