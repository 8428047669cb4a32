import LinuxSystem
import Testing

@testable import VaultStore

/// The writer's record in `vaultfs.lock` (FileFormat, "The lock file").
@Suite struct WriterRecordTests {
    @Test(
        "An invalid record does not count",
        arguments: [
            "", "\n", "a b 1 c", "a b 1\n", "a b 0 c\n", "a b -1 c\n", "a b x c\n", "a  1 c\n", "a b 1 c d\n",
            "a b 1 c -1 2\n", "a b 1 c 1 2 3\n", "a b 1 c 1 2 3 x\n", "a b 1 c 1 2 3 4 5\n",
            "a b 1 \u{1B}[2J\n", String(repeating: "a", count: 600) + " b 1 c\n",
        ])
    func malformed(text: String) {
        #expect(WriterRecord(parsing: Array(text.utf8)) == nil)
    }

    @Test("A writer record is read as it was written")
    func parsing() throws {
        let note = try WriterRecord.own(root: RootIdentity(device: 5, inode: 7))
        #expect(WriterRecord(parsing: note.bytes) == note)
        #expect(WriterRecord(parsing: Array("a b 1 c\n".utf8))?.process.isAlive == nil)
        #expect(note.process.isAlive == true && note.isOfLivingOther(in: note.root) == false)
        let others = WriterRecord.elsewhere
        #expect(LockOwner(others, in: note.root)?.description == "process 4711 on elsewhere")
        // A record of the reading process itself does not name an owner.
        #expect(LockOwner(note, in: note.root) == nil)
    }
}

extension WriterRecord {
    /// A record made by another machine.
    static var elsewhere: WriterRecord {
        WriterRecord(
            id: "5e", boot: "another-boot", process: ProcessIdentity(processID: 4711, start: 0, namespace: 0),
            host: "elsewhere")
    }
}
