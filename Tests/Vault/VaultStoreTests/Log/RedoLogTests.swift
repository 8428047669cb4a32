import CLinux
import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultStore

/// The redo log (FileFormat: Log), without a mount. A store left open simulates a killed daemon.
@Suite struct RedoLogTests {
    private static let c = 4096

    @Test("Log-1: an overwrite is one write to the log, and nothing in place before the checkpoint")
    func overwrite() throws {
        let vault = try TestStore()
        try vault.make(pattern(3 * Self.c))
        let before = try vault.bytes()
        let store = try vault.open()
        let file = try vault.reopen(in: store)
        try file.put(pattern(5000, seed: 2), at: 100)
        var expected = pattern(3 * Self.c)
        expected.replaceSubrange(100..<5100, with: pattern(5000, seed: 2))
        #expect(try vault.bytes() == before)
        #expect(try file.contents() == expected)
        try store.log.checkpoint(.due)
        #expect(try vault.bytes() != before)
        #expect(try file.contents() == expected)
        #expect(!file.isLogged && store.log.usedSize == 0)
    }

    @Test("Log-2: a killed daemon's changes are there for the next mount, for a reader, and for a check")
    func killed() throws {
        let vault = try TestStore()
        try vault.make(pattern(10_000))
        let file = try vault.reopen(in: try vault.open())
        try file.truncate(to: 5000)
        try file.put(pattern(100, seed: 3), at: 4990)
        try file.truncate(to: 20_000)
        let expected = try file.contents()
        let readOnly = try vault.open(isReadOnly: true)
        #expect(readOnly.hasFoundChanges)
        #expect(try vault.reopen(in: readOnly).contents() == expected)
        let next = try vault.open()
        #expect(try vault.bytes("vaultfs.log").count == 4096)
        #expect(try vault.reopen(in: next).contents() == expected)
        #expect(try vault.reopen(in: try vault.open(isReadOnly: true)).contents() == expected)
    }

    @Test("Log-3: an entry that is torn anywhere, and all after it, is not applied", arguments: 0..<16)
    func torn(_ cut: Int) throws {
        let vault = try TestStore()
        try vault.make(pattern(2 * Self.c))
        let file = try vault.reopen(in: try vault.open())
        try file.put(pattern(Self.c, seed: 2), at: 0)
        try file.put(pattern(Self.c, seed: 3), at: 0)
        try file.put(pattern(Self.c, seed: 4), at: Self.c)
        let size = 64 + Self.c + 32 + 16
        // Damage the second of three entries.
        try vault.change("vaultfs.log") { $0[4096 + (size + 63) / 64 * 64 + cut * (size - 1) / 15] ^= 0x40 }
        let recovered = try vault.reopen(in: try vault.open()).contents()
        #expect(recovered == pattern(Self.c, seed: 2) + pattern(2 * Self.c)[Self.c...])
    }

    @Test("Log-4: a recovery that is interrupted after any file begins again, with the same result")
    func recoveredTwice() throws {
        let vault = try TestStore()
        try vault.make(pattern(3 * Self.c))
        let file = try vault.reopen(in: try vault.open())
        try file.put(pattern(Self.c, seed: 2), at: Self.c)
        try file.truncate(to: 5000)
        try file.put(pattern(3 * Self.c, seed: 5), at: 5000)
        let expected = try file.contents()
        let log = try vault.bytes("vaultfs.log")
        for _ in 0..<3 {
            try vault.write(log, to: "vaultfs.log")
            #expect(try vault.reopen(in: try vault.open()).contents() == expected)
        }
    }

    @Test("Log-5: the changes of a file that was removed are dropped")
    func removed() throws {
        let vault = try TestStore()
        try vault.make(pattern(Self.c))
        try vault.make(pattern(Self.c, seed: 7), entry: "other")
        let store = try vault.open()
        let (file, other) = (try vault.reopen(in: store), try vault.reopen("other", in: store))
        try file.put([1, 2, 3], at: 0)
        try other.put([1, 2, 3], at: 0)
        unlink(vault.path("file"))
        let next = try vault.open()
        #expect(try vault.reopen("other", in: next).get(3) == [1, 2, 3])
        #expect(try vault.bytes("vaultfs.log").count == 4096)
    }

    @Test("Log-6: a full log makes a checkpoint, and loses nothing", .timeLimit(.minutes(60)))
    func full() throws {
        let vault = try TestStore()
        try vault.write(LogHeader(logSize: LogHeader.smallestSize(vault.layout)).bytes, to: "vaultfs.log")
        try vault.make(pattern(64 * Self.c))
        let file = try vault.reopen(in: try vault.open())
        var expected = pattern(64 * Self.c)
        var generator = SeededGenerator(seed: 1)
        for round in 0..<1500 {
            let (start, count) = (
                Int.random(in: 0..<(60 * Self.c), using: &generator), Int.random(in: 1...9000, using: &generator)
            )
            let bytes = pattern(count, seed: UInt64(round))
            expected.replaceSubrange(start..<(start + count), with: bytes)
            try file.put(bytes, at: start)
        }
        #expect(try file.contents() == expected)
        #expect(try vault.bytes("vaultfs.log").count <= LogHeader.smallestSize(vault.layout))
        #expect(try vault.reopen(in: try vault.open()).contents() == expected)
    }

    @Test("Log-7: readers see every acknowledged change while checkpoints free the log", .timeLimit(.minutes(60)))
    func readersBesideCheckpoints() throws {
        let vault = try TestStore()
        let chunks = 16
        try vault.make([UInt8](repeating: 0, count: chunks * Self.c))
        let store = try vault.open(cacheSize: 0)
        let file = try vault.reopen(in: store)
        let newest = Mutex([UInt8](repeating: 0, count: chunks))
        let isOver = Atomic<Bool>(false)
        try concurrently([
            {
                for round in 1...200 {
                    for chunk in 0..<chunks {
                        try file.put([UInt8](repeating: UInt8(round), count: Self.c), at: chunk * Self.c)
                        newest.withLock { $0[chunk] = UInt8(round) }
                    }
                }
                isOver.store(true, ordering: .releasing)
            },
            { while !isOver.load(ordering: .acquiring) { try store.log.checkpoint(.due) } },
            {
                var chunk = 0
                while !isOver.load(ordering: .acquiring) {
                    let least = newest.withLock { $0[chunk] }
                    let seen = try file.get(Self.c, at: chunk * Self.c)
                    #expect(seen.allSatisfy { $0 == seen[0] } && seen[0] >= least)
                    chunk = (chunk + 1) % chunks
                }
            },
        ])
    }

    @Test("Log-8: what is no log is damage, and nothing is written", arguments: ["fifo", "directory", "text"])
    func noLog(_ kind: String) throws {
        let vault = try TestStore()
        try vault.make(pattern(100))
        unlink(vault.path + "/vaultfs.log")
        switch kind {
        case "fifo": makeFifo(vault.path + "/vaultfs.log")
        case "directory": makeDirectory(vault.path + "/vaultfs.log")
        default: try vault.write(pattern(5000), to: "vaultfs.log")
        }
        damage { _ = try vault.open() }
        let reader = try vault.open(isReadOnly: true)
        #expect(reader.problems.count == 1)
        #expect(try vault.reopen(in: reader).contents() == pattern(100))
    }

    @Test("an older version does not come back: entries of before a checkpoint, and a checkpoint's lost header")
    func staleEntries() throws {
        let vault = try TestStore()
        try vault.make(pattern(2 * Self.c))
        let store = try vault.open()
        let file = try vault.reopen(in: store)
        try file.put(pattern(Self.c, seed: 1), at: 0)
        try file.put(pattern(Self.c, seed: 2), at: 0)
        try file.synchronize(dataOnly: true)
        let old = try vault.bytes("vaultfs.log")
        try store.log.checkpoint(.due)
        // The new entry replaces the first old one, so the second old one follows it in the file.
        try file.put(pattern(Self.c, seed: 3), at: Self.c)
        let log = try vault.bytes("vaultfs.log")
        #expect(log[(4096 + 5000)...].starts(with: old[(4096 + 5000)...]))
        let expected = pattern(Self.c, seed: 2) + pattern(Self.c, seed: 3)
        #expect(try vault.reopen(in: try vault.open()).contents() == expected)
        // Simulates a power cut that lost the checkpoint's last write: both entries are applied again, in order.
        try vault.write(old, to: "vaultfs.log")
        #expect(try vault.reopen(in: try vault.open()).contents() == expected)
    }

    @Test("a reader sees a hole that follows a truncation whose checkpoint was made already")
    func holeBehindCheckpoint() throws {
        let vault = try TestStore()
        try vault.make(pattern(10 * Self.c))
        let file = try vault.reopen(in: try vault.open())
        try file.truncate(to: 3 * Self.c)
        try file.truncate(to: 2 << 20)
        // Simulates a checkpoint that ended between the two entries.
        let size = 128
        let log = try Descriptor(at: vault.root, "vaultfs.log", flags: O_RDWR)
        var header = try #require(LogHeader(parsing: try log.read(at: 0, count: LogHeader.size)))
        (header.startSequence, header.startOffset) = (2, UInt64(4096 + size))
        try file.store.log.writing.access { try $0.write(header, to: log) }
        try vault.change {
            $0.removeLast($0.count - Int(vault.layout.backingSize(ofPlaintextLength: UInt64(3 * Self.c))))
        }
        let expected = pattern(10 * Self.c)[..<(3 * Self.c)] + [UInt8](repeating: 0, count: (2 << 20) - 3 * Self.c)
        #expect(try vault.reopen(in: try vault.open(isReadOnly: true)).contents() == Array(expected))
        #expect(try vault.reopen(in: try vault.open()).contents() == Array(expected))
    }

    @Test(
        "the changes of a file that its owner has closed to themselves are put in place", .enabled(if: geteuid() == 0))
    func closedToOwner() throws {
        let vault = try TestStore()
        try vault.make(pattern(3 * Self.c))
        let file = try vault.reopen(in: try vault.open())
        try file.put([1, 2, 3], at: 0)
        let user: uid_t = 65534
        for path in [vault.path] + ["file", "vaultfs.dir", "vaultfs.log"].map(vault.path) {
            try #require(chown(path, user, user) == 0)
        }
        try #require(chmod(vault.path("file"), 0) == 0)
        try concurrently([
            {
                // The recovery gets a thread of its own, because only that may take another user's rights.
                _ = linux_become_user_on_thread(user, user)
                _ = try vault.open()
            }
        ])
        #expect(try vault.bytes("vaultfs.log").count == 4096)
        #expect(try vault.reopen(in: try vault.open()).get(3) == [1, 2, 3])
    }
}
