internal import FileSystem
internal import Glibc
internal import LinuxSystem
package import SystemPackage
internal import VaultCrypto
package import VaultFormat

/// Makes a new vault: a directory with `vaultfs.dir`, then `vaultfs.json`, which is what makes it one.
package enum VaultCreation {
    private static let directoryRecordEntry = "vaultfs.dir"

    /// Says early, before a passphrase is asked for, whether `create` would be refused at `path`.
    /// - Throws: as `create`.
    package static func check(at path: FilePath) throws(VaultError) {
        do throws(VaultError) {
            _ = try findRemains(in: VaultDirectory.openDirectory(path), path: path)
        } catch {
            guard case .notFound = error else { throw error }
            // Its parent has to be there.
            _ = try VaultDirectory.openDirectory(parent(of: path))
        }
    }

    /// Makes a vault at `path`, a directory that is empty but for what one that was killed has left, or is made here with
    /// mode 0700. What was made is removed when it fails. Takes as long as the slots' key derivations.
    /// - Parameter onReady: called when the vault has only to be written; what it throws is thrown on, and no vault made.
    /// - Throws: `notFound` (the parent), `notADirectory`, `notEmpty`, `vaultExists`, `inUse`, `system`, `format`.
    @discardableResult
    package static func create(
        at path: FilePath, chunkSize: Int, slots: [SlotRequest],
        onReady: (VaultConfiguration) throws(VaultError) -> Void = { _ in }
    ) throws(VaultError) -> VaultConfiguration {
        try check(at: path)
        let (record, configuration) = try makeContents(chunkSize: chunkSize, slots: slots)
        let isMade = try makeDirectory(path)
        do throws(VaultError) {
            let root = try VaultDirectory.openDirectory(path)
            try lock(root, path: path)
            _ = try findRemains(in: root, path: path)
            try onReady(configuration)
            let hold = try takeHold(of: root, path: path)
            defer { hold?.release() }
            let remains = try findRemains(in: root, path: path)
            try VaultError.wrapping("cannot write", path) { () throws(StoreError) in
                try Self.remove(remains, from: root)
            }
            try fill(root, path: path, record: record, configuration: configuration)
        } catch {
            if isMade { _ = path.withPlatformString { rmdir($0) } }
            throw error
        }
        if isMade { try synchronize(parent(of: path)) }
        return configuration
    }

    /// fsync(2) of a directory.
    private static func synchronize(_ path: FilePath) throws(VaultError) {
        let directory = try VaultDirectory.openDirectory(path)
        try VaultError.wrapping("cannot write", path) { () throws(StoreError) in
            try directory.synchronize(dataOnly: false)
        }
    }

    /// `vaultfs.dir` of the root and the configuration, under a new master key that nobody keeps.
    private static func makeContents(
        chunkSize: Int, slots: [SlotRequest]
    ) throws(VaultError) -> (record: [UInt8], configuration: VaultConfiguration) {
        let masterKey: SecretBytes
        do throws(CryptoError) {
            masterKey = try SecretBytes.random(count: KeyDerivation.secretSize)
        } catch {
            throw .format(FormatError(.cryptography, "cannot draw a master key: \(error)"))
        }
        do throws(FormatError) {
            let configuration = try VaultConfiguration.make(
                chunkSize: chunkSize, masterKey: masterKey, slots: slots, created: UtcTime.now())
            let classKey = try KeyDerivation.classKey(master: masterKey, vault: configuration.vault, .complete)
            let cipher: SivCipher
            do throws(CryptoError) {
                cipher = try SivCipher(key: classKey)
            } catch {
                throw FormatError(.cryptography, "cannot set up AES-SIV: \(error)")
            }
            let record = try DirectoryRecord.make(
                .complete, isRoot: true, classCipher: cipher, vault: configuration.vault)
            return (record.bytes, configuration)
        } catch {
            throw .format(error)
        }
    }

    /// mkdir(2); false where the directory was there.
    private static func makeDirectory(_ path: FilePath) throws(VaultError) -> Bool {
        do throws(StoreError) {
            try retrying { path.withPlatformString { mkdir($0, 0o700) } }
            return true
        } catch {
            if error == .system(.fileExists) { return false }
            throw .system(error.errno, "cannot make", path)
        }
    }

    /// So that of two 'init' at once, one finds the directory taken.
    private static func lock(_ root: Descriptor, path: FilePath) throws(VaultError) {
        do throws(StoreError) {
            try retrying { flock(root.fd, LOCK_EX | LOCK_NB) }
        } catch {
            guard error == .system(.wouldBlock) else { throw .system(error.errno, "cannot lock", path) }
            throw .inUse(path, LockOwner.find(descriptor: FileDescriptor(rawValue: root.fd)))
        }
    }

    /// So that another machine's does not take what is made here for what one has left that was killed; and so that a
    /// reader, too, has something to lock.
    private static func takeHold(of root: Descriptor, path: FilePath) throws(VaultError) -> WriterLock? {
        do throws(StoreError) {
            return try WriterLock.take(root: root, .exclusive, wait: .zero)
        } catch {
            guard error == .system(.wouldBlock) else {
                throw .system(error.errno, "cannot write", path.appending("vaultfs.lock"))
            }
            throw .inUse(path, WriterLock.record(in: root).flatMap(LockOwner.init))
        }
    }

    private static func fill(
        _ root: Descriptor, path: FilePath, record: [UInt8], configuration: VaultConfiguration
    ) throws(VaultError) {
        let files = [
            (directoryRecordEntry, record), (VaultDirectory.configurationEntry, configuration.serialized()),
        ]
        do throws(VaultError) {
            for (entry, contents) in files {
                try VaultError.wrapping("cannot write", path.appending(entry)) { () throws(StoreError) in
                    try root.replace(entry, with: contents, temporary: VaultDirectory.temporaryEntry(), mode: 0o600)
                }
            }
        } catch {
            for entry in files.map(\.0) + ["vaultfs.lock"] { unlinkat(root.fd, entry, 0) }
            throw error
        }
    }

    /// What was left by one that was killed.
    private static func findRemains(in directory: Descriptor, path: FilePath) throws(VaultError) -> [[UInt8]] {
        let remains = try VaultError.wrapping("cannot read", path) { () throws(StoreError) in
            try Self.remains(in: directory)
        }
        if let remains { return remains }
        let isVault = (try? directory.status(of: Array(VaultDirectory.configurationEntry.utf8))) != nil
        throw isVault ? .vaultExists(path) : .notEmpty(path)
    }

    private static func parent(of path: FilePath) -> FilePath {
        let parent = path.removingLastComponent()
        return parent.isEmpty ? "." : parent
    }
}
