import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// A damaged or old redo log, found by the next mount (FileFormat: Log-3 and Log-8 to Log-15). A store left open
/// simulates a killed daemon.
@Suite struct LogDamageTests {
    @Test("Log-3, Log-10, Log-13: a damaged entry below a durable number costs its own chunk, and the log is kept")
    func recoveredDamage() throws {
        let place = try LogPlace(TestStore())
        try place.overwrite(chunk: 1, seed: 51)
        try place.overwrite(chunk: 2, seed: 52)
        try LogPlace.damageEntry(1, byte: 200, in: place.vault)
        let reader = try place.vault.open(cacheSize: 0, isReadOnly: true)
        #expect(reader.problems.count == 1)
        damage { _ = try place.vault.reopen("b", in: reader).get(10, at: LogPlace.c) }
        #expect(try place.vault.reopen("c", in: reader).contents() == LogPlace.content([1: 51, 2: 52]))
        let next = try place.vault.open(cacheSize: 0)
        #expect(next.problems.count == 1 && !next.faults.isDataMissing)
        damage { _ = try place.vault.reopen("b", in: next).get(10, at: LogPlace.c) }
        #expect(
            try place.vault.reopen("b", in: next).get(LogPlace.c, at: 2 * LogPlace.c) == pattern(LogPlace.c, seed: 52))
        #expect(try place.vault.reopen("a", in: next).contents() == LogPlace.content([1: 51, 2: 52]))
        // The recovery has moved the damaged log to lost+found.
        #expect(try place.vault.root.statusIfPresent(of: "vaultfs.log.damaged") == nil)
    }

    @Test("Log-3: a damaged head costs its own chunk too, and the entries after it are found")
    func damagedHead() throws {
        let place = try LogPlace(TestStore())
        try place.overwrite(chunk: 1, seed: 53)
        try LogPlace.damageEntry(0, byte: 3, in: place.vault)
        let next = try place.vault.open()
        #expect(next.problems.count == 1)
        #expect(try place.vault.reopen("b", in: next).contents() == LogPlace.content([1: 53]))
    }

    @Test(
        "Log-8: a damaged header of a log with entries is replaced by its copy, and is damage without one",
        arguments: [3, 17, 24, 32, 40, 50])
    func damagedLogHeader(_ byte: Int) throws {
        let place = try LogPlace(TestStore())
        try place.overwrite(chunk: 1, seed: 54)
        let log = try place.vault.bytes("vaultfs.log")
        try place.vault.change("vaultfs.log") { $0[byte] ^= 0x40 }
        for isReadOnly in [true, false] {
            let next = try place.vault.open(isReadOnly: isReadOnly)
            #expect(next.problems == [LogRecovery.damagedHeader])
            #expect(try place.vault.reopen("b", in: next).contents() == LogPlace.content([1: 54]))
        }
        // Remove the header's copy, which logs of an older version do not have.
        try place.vault.write(log, to: "vaultfs.log")
        try place.vault.change("vaultfs.log") { bytes in
            bytes[byte] ^= 0x40
            bytes.replaceSubrange(2048..<2112, with: [UInt8](repeating: 0, count: 64))
        }
        damage { _ = try place.vault.open() }
        #expect(try place.vault.open(isReadOnly: true).problems.count == 1)
        try place.vault.change("vaultfs.log") { $0.replaceSubrange(..<64, with: [UInt8](repeating: 0, count: 64)) }
        damage { _ = try place.vault.open() }
    }

    @Test("Log-10: several damaged entries in a row cost only their own chunks, also at the end of an unsealed file")
    func damagedRun() throws {
        let vault = try TestStore()
        let store = try vault.open(cacheSize: 0)
        let file = try vault.create(in: store)
        try file.put(pattern(4 * LogPlace.c), at: 0)
        try file.synchronize(dataOnly: true)
        for chunk in 0..<4 {
            try file.put(pattern(LogPlace.c, seed: 55), at: chunk * LogPlace.c)
            try file.synchronize(dataOnly: true)
        }
        try LogPlace.damageEntry(1, byte: 100, in: vault)
        try LogPlace.damageEntry(2, byte: 100, in: vault)
        for isReadOnly in [true, false] {
            let next = try vault.open(cacheSize: 0, isReadOnly: isReadOnly)
            let found = try vault.reopen(in: next)
            #expect(found.length == UInt64(4 * LogPlace.c))
            for chunk in 0..<4 {
                if chunk == 1 || chunk == 2 {
                    damage { _ = try found.get(10, at: chunk * LogPlace.c) }
                } else {
                    #expect(try found.get(LogPlace.c, at: chunk * LogPlace.c) == pattern(LogPlace.c, seed: 55))
                }
            }
        }
    }

    @Test("Log-10: a length that was changed in a head cuts no file; a sound head of a damaged entry gives the length")
    func damagedLength() throws {
        let place = try LogPlace(TestStore())
        try place.files[0].truncate(to: 3 * LogPlace.c + 100)
        try place.overwrite(chunk: 1, seed: 56)
        try place.overwrite(chunk: 2, seed: 57)
        // The first entry has the record that the cut has left partial.
        let log = try place.vault.bytes("vaultfs.log")
        try LogPlace.damageEntry(0, byte: 150, in: place.vault)
        let cut = try place.vault.reopen("a", in: try place.vault.open(isReadOnly: true))
        #expect(cut.length == UInt64(3 * LogPlace.c + 100))
        damage { _ = try cut.get(10, at: 3 * LogPlace.c) }
        #expect(try cut.get(LogPlace.c, at: LogPlace.c) == pattern(LogPlace.c, seed: 56))
        // The later entries have the length too. With their heads damaged, neither the length nor the chunk is known.
        try place.vault.write(log, to: "vaultfs.log")
        for index in 0..<4 { try LogPlace.damageEntry(index, byte: 33, in: place.vault) }
        let next = try place.vault.open()
        #expect(next.problems.count == 1)
        #expect(try place.vault.reopen("a", in: next).length == UInt64(3 * LogPlace.c + 100))
    }

    @Test("Log-10: damage of the first entry after a checkpoint, at the log's beginning, costs its own chunk too")
    func damagedFirstEntry() throws {
        let place = try LogPlace(TestStore())
        try place.overwrite(chunk: 1, seed: 54)
        try place.store.log.checkpoint(.due)
        try place.overwrite(chunk: 2, seed: 55)
        try LogPlace.damageEntry(0, byte: 200, in: place.vault)
        let next = try place.vault.open(cacheSize: 0)
        #expect(next.problems.count == 1)
        damage { _ = try place.vault.reopen("a", in: next).get(10, at: 2 * LogPlace.c) }
        #expect(try place.vault.reopen("b", in: next).contents() == LogPlace.content([1: 54, 2: 55]))
    }

    @Test("Log-11, Log-12: an old log changes no file that was sealed since", arguments: [true, false])
    func oldLog(_ isCleanEnd: Bool) throws {
        let place = try LogPlace(TestStore())
        let workspace = try Workspace(layout: place.vault.layout)
        try place.files[0].truncate(to: 100)
        try place.files[1].put(pattern(LogPlace.c, seed: 61), at: 3 * LogPlace.c)
        try place.files[2].punchHole(0..<8192, workspace: workspace)
        let old = try place.vault.bytes("vaultfs.log")
        try place.store.log.checkpoint(.due)
        for file in place.files {
            try file.truncate(to: 0)
            try file.put(pattern(6 * LogPlace.c, seed: 62), at: 0)
            #expect(try file.sealInPlace())
        }
        let expected = pattern(6 * LogPlace.c, seed: 62)
        try place.vault.write(old, to: "vaultfs.log")
        if isCleanEnd { try place.vault.write([10], to: "vaultfs.lock") }
        let reader = try place.vault.open(isReadOnly: true)
        for name in ["a", "b", "c"] { #expect(try place.vault.reopen(name, in: reader).contents() == expected) }
        #expect(reader.problems.count == 1)
        let next = try place.vault.open()
        for name in ["a", "b", "c"] { #expect(try place.vault.reopen(name, in: next).contents() == expected) }
        #expect(next.problems.count == 1)
    }

    @Test("Log-1: the writer refuses what a reader refuses; a cut and a growth of large chunks leave a readable log")
    func emptyHole() throws {
        let vault = try TestStore(chunkSize: 1 << 20)
        try vault.make(pattern(3_000_000))
        let store = try vault.open()
        let file = try vault.reopen(in: store)
        try file.truncate(to: 2_500_000)
        try file.truncate(to: 3_800_000)
        try file.truncate(to: 3_000_000)
        try file.truncate(to: 6_000_000)
        let expected = pattern(3_000_000)[..<2_500_000] + [UInt8](repeating: 0, count: 3_500_000)
        #expect(try vault.reopen(in: try vault.open(isReadOnly: true)).contents() == Array(expected))
        try store.log.checkpoint(.due)
        #expect(try file.contents() == Array(expected))
        var entry = LogEntry(.hole, fileID: file.fileID)
        (entry.first, entry.end) = (3, 3)
        let workspace = try Workspace(layout: vault.layout)
        #expect(throws: StoreError.system(.ioError)) {
            try store.log.append(
                entry, in: workspace.logEntry, of: file, file.anyDescriptor, reserving: {}, { _, _ in })
        }
    }

    @Test("Log-15: a log that is missing after an unclean end is reported, and one is made at each mount")
    func missing() throws {
        let place = try LogPlace(TestStore())
        #expect(try place.vault.root.statusIfPresent(of: "vaultfs.log") != nil)
        #expect(unlink(place.vault.path + "/vaultfs.log") == 0)
        try place.vault.write(ascii("incomplete\n"), to: "vaultfs.lock")
        #expect(try place.vault.open(isReadOnly: true).problems.count == 1)
        #expect(try place.vault.open().problems.count == 1)
        #expect(try place.vault.open().problems.isEmpty)
    }
}
