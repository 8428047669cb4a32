import Foundation
import Glibc
import LinuxSystem
import Locking
import SystemPackage
import VaultCrypto
import VaultFormat

@testable import VaultCare
@testable import VaultFileSystem
@testable import VaultStore

/// A vault with simulated states as its backing directory, and its mounts.
final class CutVault: Sendable {
    let chunkSize: Int
    let keyRing: KeyRing
    let masterKey: SecretBytes
    /// The class of the root, and so of all directories.
    let rootClass: ProtectionClass
    private let configuration: [UInt8]
    private let rootRecord: [UInt8]

    init(chunkSize: Int, rootClass: ProtectionClass = .complete) throws {
        self.chunkSize = chunkSize
        self.rootClass = rootClass
        masterKey = try SecretBytes.random(count: 32)
        // A keyfile saves the time of scrypt.
        let secret = try SlotSecret.keyfile([UInt8](repeating: 7, count: 32))
        let made = try VaultConfiguration.make(
            chunkSize: chunkSize, masterKey: masterKey, slots: [SlotRequest(secret: secret)],
            created: "2026-01-01T00:00:00Z")
        configuration = made.serialized()
        keyRing = try KeyRing(masterKey: masterKey, configuration: made)
        rootRecord = try DirectoryRecord.make(
            rootClass, isRoot: true, classCipher: keyRing.classCipher(rootClass), vault: keyRing.vault
        ).bytes
    }

    /// Makes the files of a new vault.
    func create(at path: String) throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        try Bytes.put(configuration, at: path + "/vaultfs.json")
        try Bytes.put(rootRecord, at: path + "/vaultfs.dir")
        try Bytes.put(LogHeader(logSize: LogHeader.smallestSize(keyRing.layout)).bytes, at: path + "/vaultfs.log")
    }

    /// Mounts as the daemon does, without its threads, and without FUSE. After an unclean end this must do everything
    /// that a daemon does before the first request.
    func mount(_ path: String) throws -> VaultFileSystem {
        let root = try Descriptor(path: FilePath(bytes: ascii(path)), flags: O_RDONLY | O_DIRECTORY)
        let lock = try WriterLock.acquire(root: root, .exclusive, wait: .seconds(60), isRemote: false)
        let store = try Store(
            root: FileDescriptor(rawValue: root.fd), keyRing: keyRing, cacheSize: 8 * chunkSize, isReadOnly: false,
            writerLock: lock)
        return try VaultFileSystem(store: store)
    }

    /// Does what the daemon's threads do in the background.
    static func workInBackground(_ system: VaultFileSystem) { system.store.durability.sealer.sealAll() }

    /// Replaces the record of this process in the lock file by one of another boot, as after a power cut.
    static func reboot(_ path: String) throws {
        let lockFile = path + "/vaultfs.lock"
        guard let content = try? Bytes.of(lockFile), content.contains(UInt8(ascii: " ")) else { return }
        let record = WriterRecord(
            id: "1", boot: "another", process: ProcessIdentity(processID: 1, start: 1, namespace: 1), host: "here")
        try Bytes.put(record.bytes, at: lockFile)
    }

    /// Returns the damage found by a verifier.
    func damage(_ path: String) throws -> [String] {
        var damage: [String] = []
        let directory = try VaultDirectory.open(FilePath(path))
        _ = try Verifier(directory: directory, masterKey: masterKey).run(onFinding: { finding in
            if !finding.kind.isNote {
                damage.append("\(String(decoding: finding.path, as: UTF8.self)): \(finding.message)")
            }
        })
        return damage
    }
}
