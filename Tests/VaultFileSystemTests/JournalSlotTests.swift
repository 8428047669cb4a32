import FileSystem
import FoundationEssentials
import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing
import VaultFormat

@testable import VaultFileSystem
@testable import VaultStore

/// Slots of the journal whose record verifies nowhere: there are 64, and a mount must not run out of them in silence.
@Suite(.timeLimit(.minutes(20))) struct JournalSlotTests {
    private static let c = 4096

    /// A file whose first chunk is damaged, with as many slots as asked for that do not help.
    private func makeVault(slots: Int = 1) throws -> (MountedVault, NodeID) {
        let vault = try MountedVault()
        try vault.file("f", pattern(2 * Self.c))
        try vault.file("other", pattern(100))
        vault.system.shutDown()
        let entry = try vault.system.rootDirectory.encode(ascii("f")).entry
        let path = vault.path + "/" + String(decoding: entry, as: UTF8.self)
        var file = Array(try Data(contentsOf: URL(filePath: path)))
        file[1000] ^= 1
        try Data(file).write(to: URL(filePath: path))
        let id = file[8..<16].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        var journal = [UInt8](repeating: 0, count: JournalSlot.journalSize(chunkSize: Self.c))
        let size = JournalSlot.size(chunkSize: Self.c)
        journal.withUnsafeMutableBytes { journal in
            for slot in 0..<slots {
                pattern(Self.c + 32, seed: UInt64(slot)).withUnsafeBytes { record in
                    JournalSlot.serialized(
                        fileID: id, chunkIndex: 0, record: record,
                        into: UnsafeMutableRawBufferPointer(rebasing: journal[(slot * size)..<((slot + 1) * size)]))
                }
            }
        }
        try Data(journal).write(to: URL(filePath: vault.path + "/vaultfs.journal"))
        try vault.remount()
        #expect(vault.system.store.hasJournaledRecords)
        return (vault, try vault.system.lookUp(ascii("f"), in: .root).id)
    }

    @Test func aFileThatIsUnlinkedHasNoSlots() throws {
        let (vault, _) = try makeVault(slots: 3)
        try vault.system.remove(ascii("f"), in: .root, isDirectory: false)
        #expect(!vault.system.store.hasJournaledRecords)
        try vault.remount()
        #expect(!vault.system.store.hasJournaledRecords)
    }

    @Test func norHasOneThatIsReplaced() throws {
        let (vault, _) = try makeVault()
        try vault.system.rename(ascii("other"), in: .root, to: ascii("f"), in: .root, flags: 0, for: vault.caller)
        #expect(!vault.system.store.hasJournaledRecords)
    }

    @Test func norOneThatIsCutToNothing() throws {
        let (vault, id) = try makeVault()
        let handle = try vault.system.open(
            id, flags: O_WRONLY | O_TRUNC, for: vault.caller, workspace: vault.workspace)
        #expect(!vault.system.store.hasJournaledRecords)
        vault.system.release(handle)
    }

    @Test func oneThatIsOpenHasThemUntilItIsClosed() throws {
        let (vault, id) = try makeVault()
        do {
            let handle = try vault.system.open(id, flags: O_RDONLY, for: vault.caller, workspace: vault.workspace)
            try vault.system.remove(ascii("f"), in: .root, isDirectory: false)
            #expect(vault.system.store.hasJournaledRecords)
            vault.system.release(handle)
        }
        #expect(!vault.system.store.hasJournaledRecords)
    }

    @Test func oneWithAnotherNameKeepsThem() throws {
        let (vault, id) = try makeVault()
        _ = try vault.system.make(ascii("g"), in: .root, .hardLink(of: id), for: vault.caller)
        try vault.system.remove(ascii("f"), in: .root, isDirectory: false)
        #expect(vault.system.store.hasJournaledRecords)
        try vault.system.remove(ascii("g"), in: .root, isDirectory: false)
        #expect(!vault.system.store.hasJournaledRecords)
    }

    @Test func withoutSlotsItSaysWhyAndWhatToDo() throws {
        let (vault, _) = try makeVault(slots: 64)
        let store = vault.system.store
        let said = Mutex<[String]>([])
        store.reportProblems { line in said.withLock { $0.append(line) } }
        let id = try vault.system.lookUp(ascii("other"), in: .root).id
        let handle = try vault.system.open(id, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)
        for _ in 0..<2 {
            #expect(throws: StoreError.self) { try vault.write(handle, [1, 2, 3], at: 5) }
        }
        let lines = said.withLock { $0 }
        // When it was mounted, and once when a write failed.
        #expect(lines.count == 2 && Set(lines) == Set(store.problems))
        #expect(lines.allSatisfy { $0.contains("nothing can be overwritten") && $0.contains("verify --repair") })
        try vault.system.remove(ascii("f"), in: .root, isDirectory: false)
        #expect(store.problems == [])
        try vault.write(handle, [1, 2, 3], at: 5)
        vault.system.release(handle)
    }
}
