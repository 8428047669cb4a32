import FileSystem
import Foundation
import LinuxSystem
import Testing
import VaultFormat
import VaultStore

/// Contents of the journal after a daemon's death.
struct VerifierJournalTests {
    private static let chunkSize = 4096

    /// Puts a record into a slot, under the file's id unless another is given.
    private func fillSlot(
        _ slot: Int, of vault: VerifierVault, file: [UInt8], chunk: UInt64, record: [UInt8], fileID: UInt64? = nil
    ) throws {
        let id = file[8..<16].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        let slotSize = JournalSlot.size(chunkSize: Self.chunkSize)
        try vault.edit(vault.path + "/vaultfs.journal") { bytes in
            bytes += [UInt8](repeating: 0, count: max(0, 64 * slotSize - bytes.count))
            let place = (slot * slotSize)..<((slot + 1) * slotSize)
            bytes.withUnsafeMutableBytes { bytes in
                record.withUnsafeBytes { record in
                    JournalSlot.serialized(
                        fileID: fileID ?? id, chunkIndex: chunk, record: record,
                        into: UnsafeMutableRawBufferPointer(rebasing: bytes[place]))
                }
            }
        }
    }

    private func makeVault(isSealed: Bool = true, count: Int = 10_000) throws -> (VerifierVault, String, [UInt8]) {
        let vault = try VerifierVault(chunkSize: Self.chunkSize) {
            try $0.file("f", count: count, isSealed: isSealed)
        }
        let path = try vault.backing("f")
        return (vault, path, try VerifierVault.contents(path))
    }

    @Test(arguments: [true, false])
    func aRecordThatIsOnlyInTheJournal(_ isSealed: Bool) throws {
        let (vault, path, bytes) = try makeVault(isSealed: isSealed)
        try fillSlot(7, of: vault, file: bytes, chunk: 1, record: Array(bytes[vault.record(1, in: bytes)]))
        try vault.edit(path) { $0[128 + 4128 + 1000] ^= 1 }
        let notes = ["journaled f@4096+4096"] + (isSealed ? [] : ["unsealed f"])
        #expect(try vault.found() == notes)
        #expect(try vault.findings().totals.damage == 0)
    }

    @Test func aSlotWhoseRecordIsInPlace() throws {
        let (vault, _, bytes) = try makeVault()
        try fillSlot(0, of: vault, file: bytes, chunk: 2, record: Array(bytes[vault.record(2, in: bytes)]))
        #expect(try vault.found() == ["leftover vaultfs.journal"])
    }

    @Test func aSlotWhoseFileIsGone() throws {
        let (vault, _, bytes) = try makeVault()
        try fillSlot(63, of: vault, file: bytes, chunk: 0, record: Array(bytes[vault.record(0, in: bytes)]), fileID: 1)
        let findings = try vault.findings().findings
        #expect(findings.map(VerifierVault.text) == ["leftover vaultfs.journal"])
        #expect(findings.first?.message == "slot 63: no file has its id")
    }

    @Test func aSlotThatDoesNotVerify() throws {
        let (vault, path, bytes) = try makeVault()
        var record = Array(bytes[vault.record(1, in: bytes)])
        record[20] ^= 1
        try fillSlot(3, of: vault, file: bytes, chunk: 1, record: record)
        try vault.edit(path) { $0[128 + 4128 + 1000] ^= 1 }
        #expect(try vault.found() == ["damaged f@4096+4096", "leftover vaultfs.journal"])
    }

    /// Journal-3, the worked example: the truncation did not happen, and the slot sets the end.
    @Test func aPartialRecordEndsAnUnsealedFile() throws {
        let (vault, path, bytes) = try makeVault(isSealed: false, count: 5000)
        let record = Array(bytes[vault.record(1, in: bytes)])
        try #require(record.count == 936)
        try fillSlot(1, of: vault, file: bytes, chunk: 1, record: record)
        try vault.edit(path) { $0 += [UInt8](repeating: 9, count: 3000) }
        #expect(try vault.found() == ["journaled f@4096+904", "unsealed f"])
        #expect(try vault.findings().totals.bytes == 5000)
    }

    /// Journal-4: a sealed file's length says how long the record is.
    @Test func aRecordOfAnotherSizeIsNotTheSealedFiles() throws {
        let (vault, _, _) = try makeVault(isSealed: false, count: 5000)
        let path = try vault.backing("f")
        let short = try VerifierVault.contents(path)
        try vault.write { writer in
            let descriptor = try Descriptor(at: writer.store.root.fd, Array(vault.entry("f").utf8), flags: O_RDWR)
            let file = try EncryptedFile.open(descriptor, in: writer.store)
            try writer.write(10_000, to: file, at: 0)
            writer.store.sealer.add(file)
        }
        try fillSlot(1, of: vault, file: short, chunk: 1, record: Array(short[vault.record(1, in: short)]))
        #expect(try vault.found() == ["leftover vaultfs.journal"])
        try vault.edit(path) { $0[128 + 4128 + 1000] ^= 1 }
        #expect(try vault.found() == ["damaged f@4096+4096", "leftover vaultfs.journal"])
    }

    @Test func aJournalThatIsNoFile() throws {
        let (vault, _, _) = try makeVault()
        try FileManager.default.removeItem(atPath: vault.path + "/vaultfs.journal")
        #expect(try vault.found() == [])
        try FileManager.default.createDirectory(
            atPath: vault.path + "/vaultfs.journal", withIntermediateDirectories: false)
        #expect(try vault.found() == ["damaged vaultfs.journal"])
    }
}
