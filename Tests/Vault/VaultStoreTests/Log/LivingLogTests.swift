import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// A redo log that is damaged, removed, replaced, or on a full disk, under a living daemon (FileFormat: Log-6, Log-10
/// and Log-14).
@Suite struct LivingLogTests {
    @Test(
        "Log-10, Log-14: an entry that a living daemon cannot read costs its own chunk, and is reported",
        arguments: [0, 70, 4200])
    func livingDamage(_ byte: Int) throws {
        let place = try LogPlace(TestStore())
        let lost = Mutex<[LostChunks]>([])
        place.store.reportProblems(to: { _ in }, lose: { loss in lost.withLock { $0.append(loss) } })
        try place.overwrite(chunk: 1, seed: 11)
        try place.overwrite(chunk: 2, seed: 12)
        try LogPlace.damageEntry(1, byte: byte, in: place.vault)
        try place.overwrite(chunk: 3, seed: 13)
        try place.store.log.checkpoint(.due)
        let losses = lost.withLock { $0 }
        #expect(losses.count == 1 && losses.first?.file === place.files[1] && losses.first?.chunks == 1..<2)
        #expect(place.store.problems.count == 1 && place.store.faults.isDataMissing)
        #expect(place.files[1].parts.syncs.reports.load(ordering: .relaxed) == 1)
        for (index, file) in place.files.enumerated() {
            if index == 1 {
                damage { _ = try file.get(10, at: LogPlace.c) }
                #expect(try file.get(LogPlace.c) == Array(LogPlace.content([:])[..<LogPlace.c]))
                #expect(
                    try file.get(2 * LogPlace.c, at: 2 * LogPlace.c)
                        == Array(LogPlace.content([2: 12, 3: 13])[(2 * LogPlace.c)...]))
            } else {
                #expect(try file.contents() == LogPlace.content([1: 11, 2: 12, 3: 13]))
            }
        }
        // The new log works, and the next mount finds the same contents.
        try place.overwrite(chunk: 0, seed: 14)
        #expect(try place.vault.bytes("vaultfs.log.damaged").count > 4096)
        let next = try place.vault.open(cacheSize: 0)
        #expect(try place.vault.reopen("a", in: next).contents() == LogPlace.content([0: 14, 1: 11, 2: 12, 3: 13]))
        damage { _ = try place.vault.reopen("b", in: next).get(10, at: LogPlace.c) }
        // A program can replace the lost chunk by writing it again.
        let file = try place.vault.reopen("b", in: next)
        try file.put(pattern(LogPlace.c, seed: 15), at: LogPlace.c)
        #expect(try file.contents() == LogPlace.content([0: 14, 1: 15, 2: 12, 3: 13]))
    }

    @Test(
        "Log-14: a log that is removed, exchanged or cut is made anew by the next fsync, and loses nothing it can read",
        arguments: ["removed", "exchanged", "directory", "cut"])
    func displaced(_ kind: String) throws {
        let place = try LogPlace(TestStore())
        try place.overwrite(chunk: 1, seed: 21)
        let path = place.vault.path + "/vaultfs.log"
        switch kind {
        case "removed": #expect(unlink(path) == 0)
        case "directory":
            #expect(unlink(path) == 0)
            makeDirectory(path)
        case "cut": #expect(truncate(path, 4096 + 3 * LogPlace.space) == 0)
        default:
            #expect(rename(path, place.vault.path + "/elsewhere") == 0)
            try place.vault.write(LogHeader(logSize: 1 << 20).bytes, to: "vaultfs.log")
        }
        try place.overwrite(chunk: 2, seed: 22)
        #expect(place.store.problems.isEmpty)
        let inode = try place.vault.root.status(of: "vaultfs.log").st_ino
        try place.overwrite(chunk: 2, seed: 22)
        #expect(try place.vault.root.status(of: "vaultfs.log").st_ino == inode)
        // After a kill, the new log has everything synced.
        let next = try place.vault.open()
        for name in ["a", "b", "c"] {
            #expect(try place.vault.reopen(name, in: next).contents() == LogPlace.content([1: 21, 2: 22]))
        }
    }

    @Test("Log-14: a sync that failed is not taken for one that succeeded: a new log begins")
    func failedSync() throws {
        let place = try LogPlace(TestStore())
        try place.overwrite(chunk: 1, seed: 31)
        let inode = try place.vault.root.status(of: "vaultfs.log").st_ino
        try place.files[0].put(pattern(LogPlace.c, seed: 32), at: 0)
        let failure = Atomic<Bool>(true)
        let path = place.vault.path
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .synchronize && call.path == path + "/vaultfs.log"
                && failure.exchange(false, ordering: .relaxed) ? EIO : 0
        }
        try CallWatcher.watch(path, answer) {
            #expect(throws: StoreError.system(.ioError)) { try place.files[0].synchronize(dataOnly: true) }
            #expect(place.store.problems.count == 1)
            // The thread for new logs does not run here, so the log stays failed.
            #expect(throws: StoreError.system(.ioError)) { try place.files[1].put([1], at: 0) }
            try place.store.log.renewIfNeeded()
        }
        #expect(place.store.problems.isEmpty)
        #expect(try place.vault.root.status(of: "vaultfs.log").st_ino != inode)
        try place.files[1].put([1], at: 0)
        let next = try place.vault.open()
        #expect(try place.vault.reopen("a", in: next).contents() == LogPlace.content([0: 32, 1: 31]))
        #expect(try place.vault.reopen("b", in: next).get(1) == [1])
    }

    @Test("Log-14: entries that a failed sync has dropped are not lost: the new log has them from memory")
    func droppedBySync() throws {
        let place = try LogPlace(TestStore())
        try place.overwrite(chunk: 1, seed: 33)
        // In the log, these unsynced entries of a and b follow the synced ones.
        for file in place.files[..<2] { try file.put(pattern(LogPlace.c, seed: 34), at: 2 * LogPlace.c) }
        let fails = Atomic<Bool>(true)
        let path = place.vault.path + "/vaultfs.log"
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .synchronize && call.path == path && fails.exchange(false, ordering: .relaxed) ? EIO : 0
        }
        CallWatcher.watch(place.vault.path, answer) {
            #expect(throws: StoreError.system(.ioError)) { try place.files[0].synchronize(dataOnly: true) }
        }
        for index in [3, 4] { try LogPlace.damageEntry(index, byte: 200, in: place.vault) }
        try place.store.log.renewIfNeeded()
        #expect(place.store.problems.isEmpty)
        try place.files[1].synchronize(dataOnly: true)
        let next = try place.vault.open()
        for name in ["a", "b"] {
            #expect(try place.vault.reopen(name, in: next).contents() == LogPlace.content([1: 33, 2: 34]))
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
            guard call.path == vault.path("file") else { return 0 }
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
        let thread = try BackgroundThread { store.durability.run() }
        defer {
            store.durability.stop()
            thread.join()
        }
        let file = try vault.create(in: store)
        try file.put(pattern(20_000), at: 0)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .synchronize && call.path == vault.path("file") ? EIO : 0
        }
        CallWatcher.watch(vault.path, answer) {
            #expect(throws: StoreError.system(.ioError)) { try file.synchronize(dataOnly: true) }
            #expect(store.faults.isDataMissing)
        }
        try poll("the sync", timeout: .seconds(20)) { store.problems.isEmpty }
    }

    @Test(
        "one file that cannot be put in place is that file's error, keeps no other from it, and nothing is lost",
        arguments: [WatchedCall.Kind.write, .synchronize, .setAttributes])
    func oneBadFile(_ kind: WatchedCall.Kind) throws {
        let place = try LogPlace(TestStore())
        let (log, durability) = (place.store.log, place.store.durability)
        try place.overwrite(chunk: 1, seed: 41)
        let bad = place.vault.path("b")
        let namesAreDurable = Atomic<Bool>(false)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            if call.kind == .synchronizeAll { namesAreDurable.store(true, ordering: .relaxed) }
            return call.kind == kind && call.path == bad ? EIO : 0
        }
        try CallWatcher.watch(place.vault.path, includesAttributes: true, answer) {
            #expect(throws: StoreError.system(.ioError)) { try log.checkpoint(.due) }
            #expect(!place.files[0].isLogged && place.files[1].isLogged && !place.files[2].isLogged)
            #expect(place.store.faults.isDataMissing && place.store.problems.count == 1)
            #expect(try place.files[1].contents() == LogPlace.content([1: 41]))
            for file in place.files { try file.put(pattern(LogPlace.c, seed: 42), at: 2 * LogPlace.c) }
            // The error concerns an fsync or a change of this file, but of no other.
            for reason in [CheckpointReason.fsync, CheckpointReason.change, CheckpointReason.holes] {
                try log.checkpoint(reason(place.files[0].fileID))
                #expect(throws: StoreError.system(.ioError)) { try log.checkpoint(reason(place.files[1].fileID)) }
            }
            #expect(!place.files[0].isLogged && place.files[1].isLogged && !place.files[2].isLogged)
            // 'vaultfs sync' finishes everything else before it ends with the error.
            #expect(throws: StoreError.system(.ioError)) { try durability.synchronizeEverything() }
            let areDurable = namesAreDurable.load(ordering: .relaxed)
            #expect(areDurable)
        }
        try log.checkpoint(.due)
        try place.files[1].synchronize(dataOnly: true)
        #expect(!place.store.faults.isDataMissing && log.usedSize == 0)
        for file in place.files { #expect(try file.contents() == LogPlace.content([1: 41, 2: 42])) }
    }

    @Test("a file that cannot be put in place fills half of the log, so the others can be written")
    func oneBadFileInFullLog() throws {
        let vault = try TestStore()
        try vault.write(LogHeader(logSize: 1 << 20).bytes, to: "vaultfs.log")
        let place = try LogPlace(vault)
        let bad = place.vault.path("b")
        let answer = { @Sendable (call: WatchedCall) -> Int32 in call.kind == .write && call.path == bad ? EIO : 0 }
        try CallWatcher.watch(place.vault.path, answer) {
            let bytes = pattern(LogPlace.c, seed: 43)
            // At first the log is full before the error is known. The second time this file may use only half.
            for _ in 0..<2 {
                #expect(throws: StoreError.system(.ioError)) {
                    for _ in 0..<300 { try place.files[1].put(bytes, at: LogPlace.c) }
                }
                try place.store.log.renew { $0.sequence.isMultiple(of: 2) }
            }
            for _ in 0..<300 { try place.files[0].put(bytes, at: LogPlace.c) }
            try place.store.log.checkpoint(.fsync(place.files[0].fileID))
        }
        try place.store.log.checkpoint(.due)
        for file in place.files[..<2] { #expect(try file.contents() == LogPlace.content([1: 43])) }
    }

    @Test("Log-6: a store that goes by names fails no checkpoint, sync or seal for a removed file that is open")
    func namelessFile() throws {
        let place = try LogPlace(TestStore())
        try place.overwrite(chunk: 1, seed: 44)
        #expect(unlink(place.vault.path("b")) == 0)
        let gone = place.vault.path("b") + " (deleted)"
        let refused = Atomic<Int>(0)
        let file = place.files[1]
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.path == gone, call.kind == .setAttributes || call.kind == .synchronize else { return 0 }
            refused.add(1, ordering: .relaxed)
            return ENOENT
        }
        file.parts.openHandles.add(1, ordering: .relaxed)
        try CallWatcher.watch(place.vault.path, includesAttributes: true, answer) {
            for reason in [CheckpointReason.fsync(file.fileID), .sync, .change(place.files[0].fileID)] {
                try file.put(pattern(LogPlace.c, seed: 45), at: 2 * LogPlace.c)
                _ = file.parts.log.setTime(timespec(tv_sec: 1, tv_nsec: 0))
                try place.store.log.checkpoint(reason)
                #expect(!file.isLogged)
            }
            try file.synchronize(dataOnly: false)
            try place.store.durability.synchronizeEverything()
            #expect(place.store.problems.isEmpty && !place.store.faults.isDataMissing)
            #expect(try file.contents() == LogPlace.content([1: 44, 2: 45]))
        }
        let count = refused.load(ordering: .relaxed)
        #expect(count >= 6)
    }

    @Test("Tags: after an entry that was written in part, no number is used again under the same salt")
    func partialEntry() throws {
        let place = try LogPlace(TestStore())
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
            #expect(try place.vault.reopen(name, in: next).contents() == LogPlace.content([1: 58, 2: 59]))
        }
    }

    @Test("a growth that fails on a full disk leaves the length, also if the log has no space yet")
    func failedGrowth() throws {
        // The log has no room. The file has room for a few writes, such as its header and its last chunk.
        for room in 0..<3 {
            let vault = try TestStore()
            try vault.make(pattern(LogPlace.c))
            let file = try vault.reopen(in: try vault.open())
            let path = vault.path
            let writes = Atomic<Int>(0)
            let answer = { @Sendable (call: WatchedCall) -> Int32 in
                guard call.kind == .write else { return 0 }
                guard call.path == vault.path("file") else { return ENOSPC }
                return writes.wrappingAdd(1, ordering: .relaxed).newValue > room ? ENOSPC : 0
            }
            CallWatcher.watch(path, answer) {
                #expect(throws: StoreError.system(.noSpace)) { try file.truncate(to: (2 << 20) + 1) }
            }
            #expect(file.length == UInt64(LogPlace.c))
            #expect(try file.contents() == pattern(LogPlace.c))
        }
    }

    @Test(
        "growths are taken back on a full disk, also after others filled the log, or a new one began",
        arguments: [false, true])
    func takenBack(afterNewLog: Bool) throws {
        let vault = try TestStore()
        try vault.write(LogHeader(logSize: 1 << 20).bytes, to: "vaultfs.log")
        let place = try LogPlace(vault)
        let (log, path, growing) = (place.store.log, place.vault.path, place.files[1])
        try place.overwrite(chunk: 1, seed: 61)
        try growing.truncate(to: 4 * LogPlace.c - 1)
        // Once the disk is full, the log has only its undo space.
        let mostWrites = Atomic<Int>(.max)
        let isFull = Atomic<Bool>(!afterNewLog)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            guard isFull.load(ordering: .relaxed), call.kind == .write, call.path != place.vault.path("b") else {
                return 0
            }
            guard call.path.hasSuffix("/vaultfs.log") else { return ENOSPC }
            return mostWrites.wrappingSubtract(1, ordering: .relaxed).newValue < 0 ? ENOSPC : 0
        }
        try CallWatcher.watch(path, answer) {
            try log.keepingUndoSpace(of: growing.fileID) { () throws(StoreError) in
                try log.keepingUndoSpace(of: place.files[2].fileID) { () throws(StoreError) in
                    if afterNewLog {
                        try log.checkpointing.withLock { (_) throws(StoreError) in
                            try log.renew { _ in false }
                        }
                    } else {
                        let bytes = pattern(LogPlace.c, seed: 62)
                        while (try? place.files[0].put(bytes, at: 0)) != nil {}
                    }
                    mostWrites.store(2, ordering: .relaxed)
                    isFull.store(true, ordering: .relaxed)
                    let workspace = try Workspace(layout: growing.layout)
                    for cut in 2..<UInt64(4) {
                        try growing.writing.withLock { (writer) throws(StoreError) in
                            let length = 4 * UInt64(LogPlace.c) - cut
                            try writer.prepare()
                            try writer.shrink(to: length, undoes: true, workspace)
                        }
                    }
                }
            }
        }
        #expect(growing.length == 4 * UInt64(LogPlace.c) - 3)
        #expect(try growing.contents() == LogPlace.content([1: 61]).dropLast(3))
    }

    @Test("a growth of a sparse file is taken back, although the disk reserves no space")
    func takenBackOfSparse() throws {
        let place = try LogPlace(try TestStore())
        let growing = place.files[1]
        try growing.truncate(to: 2 << 20)
        try growing.put(pattern(100), at: 2 << 20)
        let length = growing.length - 2
        // The header, which cannot be written then, needs no change any more.
        for cut in [3, 1] { try growing.truncate(to: Int(length) + 2 - cut) }
        let refuse = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .write && call.path == place.vault.path("b") ? ENOSPC : 0
        }
        try CallWatcher.watch(place.vault.path, refuse) {
            let workspace = try Workspace(layout: growing.layout)
            try growing.writing.withLock { (writer) throws(StoreError) in
                try writer.prepare()
                try writer.shrink(to: length, undoes: true, workspace)
            }
        }
        #expect(growing.length == length)
        #expect(try growing.contents().suffix(98) == pattern(97) + [0])
    }

    @Test("an entry that takes a growth back fits, although its file may use only half of the log")
    func takenBackOfUnplaced() throws {
        let vault = try TestStore()
        try vault.write(LogHeader(logSize: 1 << 20).bytes, to: "vaultfs.log")
        let place = try LogPlace(vault)
        let (log, growing) = (place.store.log, place.files[1])
        try place.overwrite(chunk: 1, seed: 61)
        // The header, which cannot be written then, needs no change any more.
        for cut in [3, 1] { try growing.truncate(to: 4 * LogPlace.c - cut) }
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .write && call.path == place.vault.path("b") ? EIO : 0
        }
        let length = 4 * UInt64(LogPlace.c) - 2
        try CallWatcher.watch(place.vault.path, answer) {
            #expect(throws: StoreError.system(.ioError)) { try log.checkpoint(.change(growing.fileID)) }
            // The file fills its half.
            while (try? growing.put(pattern(LogPlace.c, seed: 62), at: 0)) != nil {}
            let workspace = try Workspace(layout: growing.layout)
            try log.keepingUndoSpace(of: growing.fileID) { () throws(StoreError) in
                try growing.writing.withLock { (writer) throws(StoreError) in
                    try writer.prepare()
                    try writer.shrink(to: length, undoes: true, workspace)
                }
            }
        }
        #expect(growing.length == length)
    }

    @Test("Log-6: on a full disk, a file that cannot be put in place gets the space of removed files")
    func fullDisk() throws {
        let place = try LogPlace(TestStore())
        try place.overwrite(chunk: 1, seed: 73)
        #expect(unlink(place.vault.path("b")) == 0)
        let path = place.vault.path("c")
        let isFreed = Atomic<Bool>(false)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .write && call.path == path else { return 0 }
            return isFreed.exchange(true, ordering: .relaxed) ? 0 : ENOSPC
        }
        try CallWatcher.watch(place.vault.path, answer) { try place.store.log.checkpoint(.due) }
        #expect(isFreed.load(ordering: .relaxed) && place.store.log.usedSize == 0 && place.store.problems.isEmpty)
        #expect(try place.files[2].contents() == LogPlace.content([1: 73]))
    }

    @Test("Log-6: the changes of a file without a name are dropped when its removal is durable")
    func removedFile() throws {
        let place = try LogPlace(TestStore())
        try place.overwrite(chunk: 1, seed: 71)
        #expect(unlink(place.vault.path("b")) == 0)
        let removed = place.vault.path("b") + " (deleted)"
        let calls = Mutex<[WatchedCall]>([])
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            calls.withLock { $0.append(call) }
            return 0
        }
        try CallWatcher.watch(place.vault.path, answer) { try place.store.log.checkpoint(.due) }
        let made = calls.withLock { $0 }
        #expect(!made.contains { $0.path == removed } && made.contains { $0.kind == .synchronizeAll })
        #expect(place.store.log.usedSize == 0)
        // If a program gets at the chunk all the same, it must not find an older version.
        damage { _ = try place.files[1].get(10, at: LogPlace.c) }
        #expect(try place.files[0].contents() == LogPlace.content([1: 71]))
    }
}
