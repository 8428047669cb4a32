import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// A rekey while another machine tries to write the vault too (FileFormat: Store-30, Store-35).
@Suite(.timeLimit(.minutes(60))) struct RekeyHoldTests {
    private let vault: RekeyVault
    private let directory: VaultDirectory
    private let hold: WriterLock
    private var noteFile: String { vault.path + "/vaultfs.lock" }

    init() throws {
        vault = try RekeyVault { writer in
            for index in 0..<6 { try writer.file("file\(index)", count: 5000) }
            try writer.file("inner", count: 10, in: try writer.directory("directory"))
        }
        directory = try VaultDirectory.open(FilePath(vault.path))
        try directory.lock(.exclusive, wait: .seconds(60), isRemote: true)
        hold = try #require(directory.writerLock)
    }

    /// Takes the lock as another machine does.
    private static func takeOver(_ noteFile: String, _ hold: WriterLock) {
        let note = WriterRecord.elsewhere
        #expect(throws: Never.self) { try Data(note.bytes).write(to: URL(fileURLWithPath: noteFile), options: []) }
        hold.lastCheck.store(0, ordering: .releasing)
    }

    private func begin() throws -> SecretBytes {
        let opened = try directory.openSlot(with: .passphrase(RekeyVault.passphrase))
        return try RekeyStart.begin(
            directory, keeping: opened.slot, secret: .passphrase(RekeyVault.passphrase), masterKey: opened.masterKey)
    }

    private func run(_ masterKey: SecretBytes, before: @escaping RekeyHook = { _ in }) throws -> RekeyOutcome {
        let locked = try directory.reread()
        let rekeyer = try Rekeyer(directory: locked, masterKey: masterKey, before: before)
        let layout = ChunkLayout(chunkSize: locked.configuration.chunkSize)
        return try rekeyer.run(workspaces: [try Workspace(layout: layout)])
    }

    @Test("Store-30: the writer record exists before the rekey begins, and is removed when it is finished")
    func note() throws {
        #expect(WriterLockFile.record(in: directory.descriptor) == nil)
        let masterKey = try begin()
        #expect(WriterLockFile.record(in: directory.descriptor)?.processID == getpid())
        #expect(try run(masterKey).isFinished)
        #expect(WriterLockFile.record(in: directory.descriptor) == nil)
    }

    @Test("Store-35: if another machine has the lock by now, a rekey does not begin")
    func lostBeforeBegin() throws {
        let before = try VerifierVault.contents(vault.path + "/vaultfs.json")
        hold.state.withLock { $0.file = Descriptor(owning: open(noteFile, O_RDWR)) }
        let other = try WriterLock.acquire(root: directory.descriptor, .exclusive, wait: .seconds(60), isRemote: true)
        #expect(throws: VaultError.self) { try begin() }
        withExtendedLifetime(other) {}
        #expect(try VerifierVault.contents(vault.path + "/vaultfs.json") == before)
    }

    @Test(
        "Store-35: a rekey changes nothing more once another machine has the vault, and leaves the other's record",
        arguments: [RekeyPoint.makeObject, .replaceEntry, .writeIntent, .renameName, .renameRecord, .finish])
    func takenOver(at point: RekeyPoint) throws {
        let masterKey = try begin()
        let (noteFile, hold, path) = (self.noteFile, self.hold, vault.path)
        let after = Mutex<[String]?>(nil)
        #expect(throws: VaultError.self) {
            _ = try run(masterKey) { (now) throws(StoreError) in
                guard now == point, after.withLock({ $0 == nil }) else { return }
                Self.takeOver(noteFile, hold)
                after.withLock { $0 = Self.entries(path) }
            }
        }
        let expected = try #require(after.withLock { $0 })
        #expect(!expected.isEmpty)
        // The rekey may remove only its own temporary files.
        #expect(Set(Self.entries(path)).isSubset(of: expected))
        #expect(Set(expected).subtracting(Self.entries(path)).allSatisfy { $0.contains("vaultfs.tmp.") })
        #expect(WriterLockFile.record(in: directory.descriptor)?.host == "elsewhere")
        #expect(try VaultDirectory.open(FilePath(path)).configuration.isRekeying)
    }

    /// Returns every entry with its inode.
    private static func entries(_ path: String) -> [String] {
        let found: [String]
        do { found = try FileManager.default.subpathsOfDirectory(atPath: path) } catch {
            Issue.record(error)
            return []
        }
        return found.map { entry in
            var status = stat()
            lstat(path + "/" + entry, &status)
            return "\(entry) \(status.st_ino)"
        }
    }

    @Test("Store-30: a repair records that it writes before it moves anything aside")
    func repairing() throws {
        hold.state.withLock { $0.file = Descriptor(owning: open(noteFile, O_RDWR)) }
        let other = try WriterLock.acquire(root: directory.descriptor, .exclusive, wait: .seconds(60), isRemote: true)
        let stray = vault.path + "/vaultfs.log"
        unlink(stray)
        #expect(mkdir(stray, 0o755) == 0)
        let masterKey = try directory.openSlot(with: .passphrase(RekeyVault.passphrase)).masterKey
        #expect(throws: VaultError.self) { _ = try Repairer(directory: directory, masterKey: masterKey) }
        withExtendedLifetime(other) {}
        #expect(try FileManager.default.contentsOfDirectory(atPath: vault.path).contains("vaultfs.log"))
    }
}
