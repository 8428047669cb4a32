import CLinux
import FileSystem
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// A redo log that is damaged, removed, replaced, or an old one (FileFormat: Log-3 and Log-10 to Log-15). A store that is left
/// without its end is one whose daemon was killed.
@Suite struct LogDamageTests {
    private static let c = 4096
    /// Bytes from one entry of a whole chunk to the next.
    private static let space = 4224

    /// A store with three files of four chunks each, open.
    private struct Place {
        let vault: TestStore
        let store: Store
        let files: [EncryptedFile]

        init(_ vault: TestStore, isDurable: Bool = true) throws {
            self.vault = vault
            for name in ["a", "b", "c"] { try vault.make(pattern(4 * c), entry: name) }
            let store = try vault.open(cacheSize: 0)
            self.store = store
            files = try ["a", "b", "c"].map { try vault.reopen($0, in: store) }
        }

        /// Overwrites a chunk of each file, and syncs it.
        func overwrite(chunk: Int, seed: UInt64) throws {
            for file in files {
                try file.put(pattern(c, seed: seed), at: chunk * c)
                try file.synchronize(dataOnly: true)
            }
        }
    }

    private func content(_ seeds: [Int: UInt64]) -> [UInt8] {
        var bytes = pattern(4 * Self.c)
        for (chunk, seed) in seeds {
            bytes.replaceSubrange((chunk * Self.c)..<((chunk + 1) * Self.c), with: pattern(Self.c, seed: seed))
        }
        return bytes
    }

    /// Changes a byte of the log's entry with this index.
    private func damageEntry(_ index: Int, byte: Int, in vault: TestStore) throws {
        try vault.change("vaultfs.log") { $0[4096 + index * Self.space + byte] ^= 1 }
    }

    // MARK: A living daemon

    @Test(
        "Log-10, Log-14: an entry that a living daemon cannot read costs its own chunk, and is reported",
        arguments: [0, 70, 4200])
    func livingDamage(_ byte: Int) throws {
        let place = try Place(TestStore())
        let lost = Mutex<[LostChunks]>([])
        place.store.reportProblems(to: { _ in }, lose: { loss in lost.withLock { $0.append(loss) } })
        try place.overwrite(chunk: 1, seed: 11)
        try place.overwrite(chunk: 2, seed: 12)
        try damageEntry(1, byte: byte, in: place.vault)
        try place.overwrite(chunk: 3, seed: 13)
        try place.store.log.checkpoint()
        let losses = lost.withLock { $0 }
        #expect(losses.count == 1 && losses.first?.file === place.files[1] && losses.first?.chunks == 1..<2)
        #expect(place.store.problems.count == 1 && place.store.faults.isDataMissing)
        #expect(place.files[1].failedSynchronizations.load(ordering: .relaxed) == 1)
        for (index, file) in place.files.enumerated() {
            if index == 1 {
                damage { _ = try file.get(10, at: Self.c) }
                #expect(try file.get(Self.c) == Array(content([:])[..<Self.c]))
                #expect(try file.get(2 * Self.c, at: 2 * Self.c) == Array(content([2: 12, 3: 13])[(2 * Self.c)...]))
            } else {
                #expect(try file.contents() == content([1: 11, 2: 12, 3: 13]))
            }
        }
        // The new log works, and the next mount sees the same.
        try place.overwrite(chunk: 0, seed: 14)
        #expect(try place.vault.bytes("vaultfs.log.damaged").count > 4096)
        let next = try place.vault.open(cacheSize: 0)
        #expect(try place.vault.reopen("a", in: next).contents() == content([0: 14, 1: 11, 2: 12, 3: 13]))
        damage { _ = try place.vault.reopen("b", in: next).get(10, at: Self.c) }
        // A program that writes the chunk again has it again.
        let file = try place.vault.reopen("b", in: next)
        try file.put(pattern(Self.c, seed: 15), at: Self.c)
        #expect(try file.contents() == content([0: 14, 1: 15, 2: 12, 3: 13]))
    }

    @Test(
        "Log-14: a log that is removed, exchanged or cut is made anew by the next fsync, and loses nothing it can read",
        arguments: ["removed", "exchanged", "directory", "cut"])
    func displaced(_ kind: String) throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 21)
        let path = place.vault.path + "/vaultfs.log"
        switch kind {
        case "removed": #expect(unlink(path) == 0)
        case "directory":
            #expect(unlink(path) == 0)
            makeDirectory(path)
        case "cut": #expect(truncate(path, 4096 + 3 * Self.space) == 0)
        default:
            #expect(rename(path, place.vault.path + "/elsewhere") == 0)
            try place.vault.write(LogHeader(logSize: 1 << 20).bytes, to: "vaultfs.log")
        }
        try place.overwrite(chunk: 2, seed: 22)
        #expect(place.store.problems.isEmpty)
        let inode = try place.vault.root.status(of: ascii("vaultfs.log")).st_ino
        try place.overwrite(chunk: 2, seed: 22)
        #expect(try place.vault.root.status(of: ascii("vaultfs.log")).st_ino == inode)
        // Killed: what was synced is in the new log.
        let next = try place.vault.open()
        for name in ["a", "b", "c"] {
            #expect(try place.vault.reopen(name, in: next).contents() == content([1: 21, 2: 22]))
        }
    }

    @Test("Log-14: a sync that failed is not taken for one that succeeded: a new log begins")
    func failedSync() throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 31)
        let inode = try place.vault.root.status(of: ascii("vaultfs.log")).st_ino
        try place.files[0].put(pattern(Self.c, seed: 32), at: 0)
        let failure = Atomic<Bool>(true)
        let path = place.vault.path
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .synchronize && call.path == path + "/vaultfs.log"
                && failure.exchange(false, ordering: .relaxed) ? EIO : 0
        }
        try CallWatcher.watch(path, answer) {
            #expect(throws: StoreError.system(.ioError)) { try place.files[0].synchronize(dataOnly: true) }
            #expect(place.store.problems.count == 1)
            // No thread runs here that makes the new log.
            #expect(throws: StoreError.system(.ioError)) { try place.files[1].put([1], at: 0) }
            try place.store.log.renewIfNeeded()
        }
        #expect(place.store.problems.isEmpty)
        #expect(try place.vault.root.status(of: ascii("vaultfs.log")).st_ino != inode)
        try place.files[1].put([1], at: 0)
        let next = try place.vault.open()
        #expect(try place.vault.reopen("a", in: next).contents() == content([0: 32, 1: 31]))
        #expect(try place.vault.reopen("b", in: next).get(1) == [1])
    }

    @Test("Log-14: entries that a failed sync has dropped are not lost: the new log has them from memory")
    func droppedBySync() throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 33)
        // In the order of the entries: a and b again, not synced.
        for file in place.files[..<2] { try file.put(pattern(Self.c, seed: 34), at: 2 * Self.c) }
        let fails = Atomic<Bool>(true)
        let path = place.vault.path + "/vaultfs.log"
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .synchronize && call.path == path && fails.exchange(false, ordering: .relaxed) ? EIO : 0
        }
        CallWatcher.watch(place.vault.path, answer) {
            #expect(throws: StoreError.system(.ioError)) { try place.files[0].synchronize(dataOnly: true) }
        }
        for index in [3, 4] { try damageEntry(index, byte: 200, in: place.vault) }
        try place.store.log.renewIfNeeded()
        #expect(place.store.problems.isEmpty)
        try place.files[1].synchronize(dataOnly: true)
        let next = try place.vault.open()
        for name in ["a", "b"] {
            #expect(try place.vault.reopen(name, in: next).contents() == content([1: 33, 2: 34]))
        }
    }

    @Test("Store-9: after a failed sync of a file, its data is written again before another sync counts")
    func failedSyncOfFile() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let file = try vault.create(in: store)
        try file.put(pattern(20_000), at: 0)
        let calls = Mutex<[String]>([])
        let fails = Atomic<Bool>(true)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.path.hasSuffix("/file") else { return 0 }
            calls.withLock { $0.append("\(call.kind)") }
            return call.kind == .synchronize && fails.exchange(false, ordering: .relaxed) ? EIO : 0
        }
        try CallWatcher.watch(vault.path, answer) {
            #expect(throws: StoreError.system(.ioError)) { try file.synchronize(dataOnly: true) }
            #expect(store.problems.count == 1 && store.faults.isDataMissing)
            try file.synchronize(dataOnly: true)
        }
        #expect(calls.withLock { $0 } == ["synchronize", "write", "write", "synchronize"])
        #expect(store.problems.isEmpty && !store.faults.isDataMissing)
        #expect(try file.contents() == pattern(20_000))
    }

    @Test("Store-9: a file whose sync has failed is synced again without a program's request")
    func failedSyncIsRepeated() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let thread = try BackgroundThread { store.log.run() }
        defer {
            store.log.stop()
            thread.join()
        }
        let file = try vault.create(in: store)
        try file.put(pattern(20_000), at: 0)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .synchronize && call.path.hasSuffix("/file") ? EIO : 0
        }
        CallWatcher.watch(vault.path, answer) {
            #expect(throws: StoreError.system(.ioError)) { try file.synchronize(dataOnly: true) }
            #expect(store.faults.isDataMissing)
        }
        try poll("the sync", timeout: .seconds(20)) { store.problems.isEmpty }
    }

    @Test("one file that cannot be written keeps no other from being put in place, and nothing is lost")
    func oneBadFile() throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 41)
        let bad = place.vault.path + "/b"
        let answer = { @Sendable (call: WatchedCall) -> Int32 in call.kind == .write && call.path == bad ? EIO : 0 }
        try CallWatcher.watch(place.vault.path, answer) {
            #expect(throws: StoreError.system(.ioError)) { try place.store.log.checkpoint() }
            #expect(!place.files[0].isLogged && place.files[1].isLogged && !place.files[2].isLogged)
            #expect(place.store.faults.isDataMissing)
            #expect(try place.files[1].contents() == content([1: 41]))
            try place.overwrite(chunk: 2, seed: 42)
        }
        try place.store.log.checkpoint()
        #expect(!place.store.faults.isDataMissing && place.store.log.usedSize == 0)
        for file in place.files { #expect(try file.contents() == content([1: 41, 2: 42])) }
    }

    // MARK: A recovery

    @Test("Log-3, Log-10, Log-13: a damaged entry below a durable number costs its own chunk, and the log is kept")
    func recoveredDamage() throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 51)
        try place.overwrite(chunk: 2, seed: 52)
        try damageEntry(1, byte: 200, in: place.vault)
        let reader = try place.vault.open(cacheSize: 0, isReadOnly: true)
        #expect(reader.problems.count == 1)
        damage { _ = try place.vault.reopen("b", in: reader).get(10, at: Self.c) }
        #expect(try place.vault.reopen("c", in: reader).contents() == content([1: 51, 2: 52]))
        let next = try place.vault.open(cacheSize: 0)
        #expect(next.problems.count == 1 && !next.faults.isDataMissing)
        damage { _ = try place.vault.reopen("b", in: next).get(10, at: Self.c) }
        #expect(try place.vault.reopen("b", in: next).get(Self.c, at: 2 * Self.c) == pattern(Self.c, seed: 52))
        #expect(try place.vault.reopen("a", in: next).contents() == content([1: 51, 2: 52]))
        // It is in lost+found by now.
        #expect(try place.vault.root.statusIfPresent(of: ascii("vaultfs.log.damaged")) == nil)
    }

    @Test("Log-3: a damaged head costs its own chunk too, and the entries after it are found")
    func damagedHead() throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 53)
        try damageEntry(0, byte: 3, in: place.vault)
        let next = try place.vault.open()
        #expect(next.problems.count == 1)
        #expect(try place.vault.reopen("b", in: next).contents() == content([1: 53]))
    }

    @Test(
        "Log-8: a damaged header of a log with entries is damage, and a repair keeps the log",
        arguments: [3, 17, 24, 32, 40, 50])
    func damagedLogHeader(_ byte: Int) throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 54)
        try place.vault.change("vaultfs.log") { $0[byte] ^= 0x40 }
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
        try file.put(pattern(4 * Self.c), at: 0)
        try file.synchronize(dataOnly: true)
        for chunk in 0..<4 {
            try file.put(pattern(Self.c, seed: 55), at: chunk * Self.c)
            try file.synchronize(dataOnly: true)
        }
        try damageEntry(1, byte: 100, in: vault)
        try damageEntry(2, byte: 100, in: vault)
        for isReadOnly in [true, false] {
            let next = try vault.open(cacheSize: 0, isReadOnly: isReadOnly)
            let found = try vault.reopen(in: next)
            #expect(found.length == UInt64(4 * Self.c))
            for chunk in 0..<4 {
                if chunk == 1 || chunk == 2 {
                    damage { _ = try found.get(10, at: chunk * Self.c) }
                } else {
                    #expect(try found.get(Self.c, at: chunk * Self.c) == pattern(Self.c, seed: 55))
                }
            }
        }
    }

    @Test("Log-10: a length that was changed in a head cuts no file; a sound head of a damaged entry gives the length")
    func damagedLength() throws {
        let place = try Place(TestStore())
        try place.files[0].truncate(to: 3 * Self.c + 100)
        try place.overwrite(chunk: 1, seed: 56)
        try place.overwrite(chunk: 2, seed: 57)
        // The first entry is of the record that the cut has left.
        let log = try place.vault.bytes("vaultfs.log")
        try damageEntry(0, byte: 150, in: place.vault)
        let cut = try place.vault.reopen("a", in: try place.vault.open(isReadOnly: true))
        #expect(cut.length == UInt64(3 * Self.c + 100))
        damage { _ = try cut.get(10, at: 3 * Self.c) }
        #expect(try cut.get(Self.c, at: Self.c) == pattern(Self.c, seed: 56))
        // The later entries have the length too. Their heads are changed: nobody believes the length, nor the chunk.
        try place.vault.write(log, to: "vaultfs.log")
        for index in 0..<4 { try damageEntry(index, byte: 33, in: place.vault) }
        let next = try place.vault.open()
        #expect(next.problems.count == 1)
        #expect(try place.vault.reopen("a", in: next).length == UInt64(3 * Self.c + 100))
    }

    @Test("Tags: after an entry that was written in part, no number is used again under the same salt")
    func partialEntry() throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 58)
        let salt = { try LogHeader(parsing: Array(place.vault.bytes("vaultfs.log")[..<64]))?.salt }
        let before = try #require(try salt())
        let isFull = Atomic<Bool>(true)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .write && call.path.hasSuffix("/vaultfs.log") && isFull.exchange(false, ordering: .relaxed)
                ? ENOSPC : 0
        }
        try CallWatcher.watch(place.vault.path, answer) { try place.overwrite(chunk: 2, seed: 59) }
        #expect(try salt() != before && !isFull.load(ordering: .relaxed))
        let next = try place.vault.open()
        #expect(next.problems.isEmpty)
        for name in ["a", "b", "c"] {
            #expect(try place.vault.reopen(name, in: next).contents() == content([1: 58, 2: 59]))
        }
    }

    @Test("Log-10: damage of the first entry after a checkpoint, at the log's beginning, costs its own chunk too")
    func damagedFirstEntry() throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 54)
        try place.store.log.checkpoint()
        try place.overwrite(chunk: 2, seed: 55)
        try damageEntry(0, byte: 200, in: place.vault)
        let next = try place.vault.open(cacheSize: 0)
        #expect(next.problems.count == 1)
        damage { _ = try place.vault.reopen("a", in: next).get(10, at: 2 * Self.c) }
        #expect(try place.vault.reopen("b", in: next).contents() == content([1: 54, 2: 55]))
    }

    @Test("Log-11, Log-12: an old log changes no file that was sealed since", arguments: [true, false])
    func oldLog(_ isCleanEnd: Bool) throws {
        let place = try Place(TestStore())
        let workspace = try Workspace(layout: place.vault.layout)
        try place.files[0].truncate(to: 100)
        try place.files[1].put(pattern(Self.c, seed: 61), at: 3 * Self.c)
        try place.files[2].punchHole(0..<8192, workspace: workspace)
        let old = try place.vault.bytes("vaultfs.log")
        try place.store.log.checkpoint()
        for file in place.files {
            try file.truncate(to: 0)
            try file.put(pattern(6 * Self.c, seed: 62), at: 0)
            #expect(try file.sealInPlace())
        }
        let expected = pattern(6 * Self.c, seed: 62)
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
        try store.log.checkpoint()
        #expect(try file.contents() == Array(expected))
        var entry = LogEntry(.hole, fileID: file.fileID)
        (entry.first, entry.end) = (3, 3)
        let workspace = try Workspace(layout: vault.layout)
        #expect(throws: StoreError.system(.ioError)) {
            try store.log.append(entry, in: workspace.logEntry, of: file, file.anyDescriptor) { _, _, _ in }
        }
    }

    @Test("Log-15: a log that is missing after an unclean end is reported, and one is made at each mount")
    func missing() throws {
        let place = try Place(TestStore())
        #expect(try place.vault.root.statusIfPresent(of: ascii("vaultfs.log")) != nil)
        #expect(unlink(place.vault.path + "/vaultfs.log") == 0)
        try place.vault.write(ascii("incomplete\n"), to: "vaultfs.lock")
        #expect(try place.vault.open(isReadOnly: true).problems.count == 1)
        #expect(try place.vault.open().problems.count == 1)
        #expect(try place.vault.open().problems.isEmpty)
    }

    // MARK: A full disk

    @Test("a growth that fails on a full disk leaves the length, also if the log has no space yet")
    func failedGrowth() throws {
        let vault = try TestStore()
        try vault.make(pattern(Self.c))
        let file = try vault.reopen(in: try vault.open())
        for fullFrom in [0, 1] {
            let path = vault.path
            let answer = { @Sendable (call: WatchedCall) -> Int32 in
                call.kind == .write && (fullFrom == 0 || call.path == path + "/file") ? ENOSPC : 0
            }
            CallWatcher.watch(path, answer) {
                #expect(throws: StoreError.system(.noSpace)) { try file.truncate(to: (2 << 20) + 1) }
            }
            #expect(file.length == UInt64(Self.c))
            #expect(try file.contents() == pattern(Self.c))
        }
    }

    @Test("Log-6: on a full disk, a file that cannot be put in place gets the space of removed files")
    func fullDisk() throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 73)
        #expect(unlink(place.vault.path + "/b") == 0)
        let path = place.vault.path + "/c"
        let isFreed = Atomic<Bool>(false)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .write && call.path == path else { return 0 }
            return isFreed.exchange(true, ordering: .relaxed) ? 0 : ENOSPC
        }
        try CallWatcher.watch(place.vault.path, answer) { try place.store.log.checkpoint() }
        #expect(isFreed.load(ordering: .relaxed) && place.store.log.usedSize == 0 && place.store.problems.isEmpty)
        #expect(try place.files[2].contents() == content([1: 73]))
    }

    // MARK: Removed files

    @Test("Log-6: the changes of a file without a name are dropped when its removal is durable")
    func removedFile() throws {
        let place = try Place(TestStore())
        try place.overwrite(chunk: 1, seed: 71)
        #expect(unlink(place.vault.path + "/b") == 0)
        let calls = Mutex<[String]>([])
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            calls.withLock { $0.append("\(call.kind) \(call.path.split(separator: "/").last ?? "")") }
            return 0
        }
        try CallWatcher.watch(place.vault.path, answer) { try place.store.log.checkpoint() }
        let made = calls.withLock { $0 }
        #expect(!made.contains { $0.hasPrefix("write b") } && made.contains { $0.hasPrefix("synchronizeAll") })
        #expect(place.store.log.usedSize == 0)
        // A program that gets at it all the same finds no older version.
        damage { _ = try place.files[1].get(10, at: Self.c) }
        #expect(try place.files[0].contents() == content([1: 71]))
    }
}
