import FileSystem
import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import VaultStore

/// The redo log's limits, and its costs in calls, descriptors, memory and space.
@Suite struct RedoLogCostTests {
    private static let c = 4096

    /// Returns the calls of `body` in a vault, each as `kind name`.
    private func calls(in vault: TestStore, _ body: () throws -> Void) throws -> [String] {
        let calls = Mutex<[String]>([])
        let note = { @Sendable (call: WatchedCall) -> Int32 in
            calls.withLock { $0.append("\(call.kind) \(call.path.split(separator: "/").last ?? "")") }
            return 0
        }
        try CallWatcher.watch(vault.path, note, during: body)
        return calls.withLock { $0 }
    }

    @Test("the log has at most 256 holes of a file")
    func manyHoles() throws {
        let vault = try TestStore()
        let chunks = 1200
        try vault.make(pattern(chunks * Self.c))
        let file = try vault.reopen(in: try vault.open())
        let workspace = try Workspace(layout: vault.layout)
        var expected = pattern(chunks * Self.c)
        for chunk in stride(from: 0, to: chunks, by: 2) {
            let range = (chunk * Self.c)..<((chunk + 1) * Self.c)
            try file.punchHole(UInt64(range.lowerBound)..<UInt64(range.upperBound), workspace: workspace)
            expected.replaceSubrange(range, with: [UInt8](repeating: 0, count: Self.c))
            #expect(file.parts.log.content.withLock { $0.changes.holes.count } <= 256)
        }
        #expect(try file.contents() == expected)
        #expect(try vault.reopen(in: try vault.open()).contents() == expected)
    }

    @Test("an append to a partial chunk reads nothing, also after a write that ended in the chunk's middle")
    func appends() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let file = try vault.create(in: store)
        let workspace = try Workspace(layout: vault.layout)
        var content: [UInt8] = []
        // SQLite's write-ahead log writes like this: a frame's header, then its page, in two requests.
        for size in [32, 24, 4096 - 56, 56, 24, 4096 - 80, 80] {
            let piece = pattern(size)
            try file.put(piece, at: content.count, workspace)
            content += piece
        }
        #expect(store.counters.cacheMisses.total == 0)
        #expect(try file.contents() == content)
    }

    @Test("an overwrite of a whole chunk is one call, and fsync syncs only the log, once")
    func calls() throws {
        let vault = try TestStore()
        try vault.make(pattern(20 * Self.c))
        let file = try vault.reopen(in: try vault.open())
        let workspace = try Workspace(layout: vault.layout)
        try file.put(pattern(Self.c), at: 0, workspace)
        try file.synchronize(dataOnly: true)
        let calls = try calls(in: vault) {
            for chunk in [5, 2, 11] { try file.put(pattern(Self.c), at: chunk * Self.c, workspace) }
            for _ in 0..<2 { try file.synchronize(dataOnly: true) }
        }
        #expect(calls == Array(repeating: "write vaultfs.log", count: 3) + ["synchronize vaultfs.log"])
    }

    @Test("a file that grows by small writes between syncs needs only those of the log, one each")
    func growth() throws {
        let vault = try TestStore()
        try vault.make(pattern(100))
        let file = try vault.reopen(in: try vault.open())
        let workspace = try Workspace(layout: vault.layout)
        var expected = pattern(100)
        func append(_ count: Int) throws {
            let bytes = pattern(count, seed: UInt64(expected.count))
            try file.put(bytes, at: expected.count, workspace)
            expected += bytes
        }
        try append(10)
        try file.synchronize(dataOnly: true)
        let calls = try calls(in: vault) {
            for _ in 0..<50 {
                // SQLite appends to its write-ahead log like this.
                try append(24)
                try append(Self.c)
                try file.synchronize(dataOnly: true)
            }
        }
        let syncs = calls.filter { $0.hasPrefix("synchronize") }
        #expect(syncs == Array(repeating: "synchronize vaultfs.log", count: 50))
        #expect(try file.contents() == expected)
        // Without syncs, growth eventually goes in place again.
        let used = file.store.log.usedSize
        for _ in 0..<500 { try append(5000) }
        #expect(file.store.log.usedSize - used < 1_500_000 + 500 * 4300)
        #expect(try vault.bytes().count > 2_000_000)
        #expect(try file.contents() == expected)
        #expect(try vault.reopen(in: try vault.open(isReadOnly: true)).contents() == expected)
        #expect(try file.sealInPlace())
        var status = stat()
        #expect(stat(vault.path("file"), &status) == 0)
        #expect(status.st_blocks * 512 < status.st_size + (64 << 10))
        #expect(try vault.reopen(in: try vault.open()).contents() == expected)
    }

    @Test("space that a program has allocated after the end stays when the file is sealed")
    func allocatedAhead() throws {
        let vault = try TestStore()
        try vault.make(pattern(100))
        let file = try vault.reopen(in: try vault.open())
        let workspace = try Workspace(layout: vault.layout)
        try file.allocate(0..<(1 << 20), keepsSize: true, workspace: workspace)
        try file.put(pattern(10), at: 100, workspace)
        try file.synchronize(dataOnly: true)
        try file.put(pattern(5000), at: 110, workspace)
        #expect(try file.sealInPlace())
        #expect(try file.reader.status().st_blocks * 512 > 1 << 20)
        #expect(try vault.bytes().count == 128 + 5110 + 2 * 32)
    }

    @Test(
        "data logged during a checkpoint keeps its space when a truncation frees the file's",
        .enabled(if: geteuid() == 0))
    func spaceDuringCheckpoint() throws {
        let disk = try SmallDisk(size: 3 << 20)
        let vault = try TestStore(in: disk.path)
        let store = try vault.open()
        let file = try vault.create(in: store)
        try file.put(pattern(100 * Self.c), at: 0)
        try file.truncate(to: 5 * Self.c)
        let state = Monitor((hasBegun: false, isHeld: true))
        let hold = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .synchronize, call.path.hasSuffix("/vaultfs.log") else { return 0 }
            state.update { $0.hasBegun = true }
            state.wait { $0.isHeld ? nil : () }
            return 0
        }
        let directory = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(vault.root.fd)")
        try CallWatcher.watch(directory, hold) {
            let checkpoint = try BackgroundThread { try? store.log.checkpoint(.due) }
            let begun: Void? = state.wait(until: .now + .seconds(60)) { $0.hasBegun ? () : nil }
            #expect(begun != nil)
            // The write waits until the truncation is in place.
            let writer = try BackgroundThread { try? file.put(pattern(60 * Self.c, seed: 2), at: 5 * Self.c) }
            state.update { $0.isHeld = false }
            checkpoint.join()
            writer.join()
        }
        try disk.fill(leaving: 0).extend()
        try store.log.checkpoint(.due)
        #expect(try file.contents() == pattern(100 * Self.c)[..<(5 * Self.c)] + pattern(60 * Self.c, seed: 2))
    }

    @Test("no more files have changes in the log than the limit of open files allows")
    func manyFiles() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let most = 2 * shareOfOpenFiles(atMost: 1024)
        for number in 0..<(most + 50) {
            let file = try vault.create("f\(number)", in: store)
            try file.put([1, 2, 3], at: 0)
            try file.put([4], at: 0)
            #expect(store.log.writing.access { $0.backlog.targets.count } <= most)
        }
        for number in [0, most / 2, most + 49] {
            #expect(try vault.reopen("f\(number)", in: store).contents() == [4, 2, 3])
        }
    }

    @Test("Store-9: an fsync of logged changes syncs the log alone, unless the file's attributes have changed since")
    func fsyncOfLogged() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let file = try vault.create(in: store)
        let workspace = try Workspace(layout: vault.layout)
        try file.put(pattern(3 * Self.c), at: 0, workspace)
        try file.synchronize(dataOnly: false)
        func synchronized(_ change: () throws -> Void) throws -> [String] {
            // A change within some ticks of the kernel's clock may give the same ctime, so it is not omitted.
            usleep(UInt32(2 * fileTimeDelay / 1000))
            try change()
            return try calls(in: vault) { try file.synchronize(dataOnly: false) }.filter { $0.hasPrefix("synchronize") }
        }
        let overwrite = { try file.put(pattern(Self.c, seed: 2), at: Self.c, workspace) }
        // A time of whole seconds, or of another file system in the store, says nothing.
        var status = try file.reader.status()
        status.st_ctim.tv_nsec = 1
        #expect(store.keepsChangeTimes(status))
        status.st_ctim.tv_nsec = 0
        #expect(!store.keepsChangeTimes(status))
        (status.st_ctim.tv_nsec, status.st_dev) = (1, status.st_dev + 1)
        #expect(!store.keepsChangeTimes(status))
        // The first one remembers the time.
        _ = try synchronized(overwrite)
        #expect(try synchronized(overwrite) == ["synchronize vaultfs.log"])
        let changes: [() throws -> Void] = [
            { #expect(chmod(vault.path("file"), 0o640) == 0) },
            { #expect(utimes(vault.path("file"), nil) == 0) },
            { #expect(link(vault.path("file"), vault.path("other")) == 0) },
            { #expect(unlink(vault.path("other")) == 0) },
            { try store.log.checkpoint(.due) },
        ]
        for change in changes {
            #expect(try synchronized(change).contains { $0 != "synchronize vaultfs.log" })
            _ = try synchronized(overwrite)
            #expect(try synchronized(overwrite) == ["synchronize vaultfs.log"])
        }
    }

    @Test("an fsync returns only when data is durable that another fsync is just writing")
    func twoSyncs() throws {
        let vault = try TestStore()
        let file = try vault.create(in: try vault.open())
        try file.put(pattern(3 * Self.c), at: 0)
        let state = Monitor((began: false, goesOn: false, ended: 0))
        let hold = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .synchronize, call.path == vault.path("file") else { return 0 }
            state.update { $0.began = true }
            state.wait { $0.goesOn ? () : nil }
            return 0
        }
        try CallWatcher.watch(vault.path, hold) {
            let first = try BackgroundThread { try? file.synchronize(dataOnly: true) }
            let began: Void? = state.wait(until: .now + .seconds(60)) { $0.began ? () : nil }
            #expect(began != nil)
            let second = try BackgroundThread {
                try? file.synchronize(dataOnly: true)
                state.update { $0.ended += 1 }
            }
            let ended: Void? = state.wait(until: .now + .milliseconds(200)) { $0.ended > 0 ? () : nil }
            #expect(ended == nil)
            state.update { $0.goesOn = true }
            first.join()
            second.join()
        }
    }

    @Test("a disk that is full now and then loses nothing that was acknowledged", .enabled(if: geteuid() == 0))
    func fullDisk() throws {
        let disk = try SmallDisk(size: 1 << 20)
        let vault = try TestStore(in: disk.path)
        let file = try vault.create(in: try vault.open())
        var expected = pattern(20 * Self.c)
        try file.put(expected, at: 0)
        let filler = try disk.fill(leaving: 60 << 10)
        var generator = SeededGenerator(seed: 3)
        var refused = 0
        for round in 0..<2000 {
            switch Int.random(in: 0..<40, using: &generator) {
            case 0: try filler.extend()
            case 1: try filler.descriptor.truncate(to: UInt64(Int.random(in: 0..<(600 << 10), using: &generator)))
            case 2: try file.synchronize(dataOnly: true)
            case 3:
                try file.store.log.checkpoint(.due)
            default:
                let start = Int.random(in: 0..<expected.count, using: &generator)
                let bytes = pattern(Int.random(in: 1...9000, using: &generator), seed: UInt64(round))
                do {
                    let count = try file.write(bytes, at: start)
                    expected.replaceSubrange(start..<min(start + count, expected.count), with: bytes[..<count])
                } catch StoreError.system(.noSpace) {
                    refused += 1
                }
            }
        }
        #expect(refused > 0)
        #expect(try file.contents() == expected)
        #expect(try vault.reopen(in: try vault.open()).contents() == expected)
    }
}
