import FileSystem
import Glibc
import LinuxSystem
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Late sealing, and sealing of many files at once (FileFormat: Sealed and unsealed files).
@Suite struct HeaderSealerTests {
    @Test(
        "Store-8: one round seals all waiting files, one by one or together, and keeps the times",
        arguments: [1, 16, 40])
    func round(count: Int) throws {
        let fixture = try TestStore()
        let store = try fixture.open()
        var times: [timespec] = []
        for number in 0..<count {
            let file = try fixture.create("file\(number)", in: store)
            try file.put(pattern(5000), at: 0)
            let past = [timespec(tv_sec: 1000 + number, tv_nsec: 5), timespec(tv_sec: 2000 + number, tv_nsec: 7)]
            #expect(futimens(file.reader.fd, past) == 0)
            times += past
            store.durability.sealer.add(file)
        }
        store.durability.sealer.sealWaiting()
        for number in 0..<count {
            var status = stat()
            #expect(stat(fixture.path("file\(number)"), &status) == 0)
            #expect(status.st_atim.tv_sec == times[2 * number].tv_sec)
            #expect(status.st_mtim.tv_sec == times[2 * number + 1].tv_sec)
            #expect(status.st_mtim.tv_nsec == 7)
            let header = try fixture.header("file\(number)")
            #expect(header.isSealed)
            #expect(header.length == 5000)
        }
        #expect(store.counters.filesSealed.total == UInt64(count))
        store.durability.sealer.sealWaiting()
        #expect(store.counters.filesSealed.total == UInt64(count), "what is sealed does not wait")
    }

    @Test("A file that is removed during a round does not keep its space until the end of it", arguments: [3, 40])
    func removedDuringRound(count: Int) throws {
        let fixture = try TestStore()
        let store = try fixture.open()
        let files = try (0..<count).map { number in
            let file = try fixture.create("\(number)", in: store)
            try file.put(pattern(5000), at: 0)
            store.durability.sealer.add(file)
            return WeakReference(file)
        }
        let left = Monitor<Int?>(nil)
        // The other files are forgotten while the first is being sealed.
        let beforeSeal = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .write, left.access({ $0 == nil }) else { return 0 }
            for (number, file) in files.enumerated() where !call.path.hasSuffix("/\(number)") {
                if let file = file.file { store.durability.sealer.forget(file) }
            }
            left.access { $0 = files.count { $0.file != nil } }
            return 0
        }
        CallWatcher.watch(fixture.path, beforeSeal) { store.durability.sealer.sealWaiting() }
        #expect(left.access { $0 } == 1)
        #expect(store.counters.filesSealed.total == 1)
    }

    @Test("Store-8: a file found unsealed is sealed once it has been open for writing, with its times kept")
    func foundUnsealed() throws {
        let fixture = try TestStore()
        try fixture.make(pattern(5000), isSealed: false)
        let file = try fixture.reopen(in: try fixture.open())
        #expect(!file.needsSeal)
        try file.prepareForWriting()
        #expect(file.needsSeal)
        let past = [timespec(tv_sec: 1000, tv_nsec: 5), timespec(tv_sec: 2000, tv_nsec: 7)]
        #expect(futimens(file.reader.fd, past) == 0)
        #expect(try file.sealInPlace())
        #expect(try file.reader.status().st_atim.tv_sec == 1000)
        #expect(!file.needsSeal)
    }

    @Test("Store-2: a file that grew after its bytes were synced is not sealed")
    func grownMeanwhile() throws {
        let fixture = try TestStore()
        let file = try fixture.create(in: try fixture.open())
        try file.put(pattern(100), at: 0)
        let mark = file.lengthMark
        try file.put([1], at: 100)
        #expect(try !file.seal(ifStill: mark, isDurable: true))
        #expect(try !fixture.header().isSealed)
        // A file cut and grown to the same length again counts as changed, too.
        let second = file.lengthMark
        try file.truncate(to: 50)
        try file.put(pattern(51), at: 50)
        #expect(try !file.seal(ifStill: second, isDurable: true))
        #expect(try file.sealInPlace())
        #expect(try fixture.header().isSealed)
    }

    @Test("Header-4, Store-2, Store-5: each change of length unseals first, and every header has a new counter")
    func unsealing() throws {
        let fixture = try TestStore()
        let store = try fixture.open()
        let file = try fixture.create(in: store)
        let changes: [(String, () throws -> Void)] = [
            ("growth", { try file.put(pattern(9000), at: 0) }), ("append", { try file.put([1], at: 9000) }),
            ("shrinking", { try file.truncate(to: 4000) }), ("to the grid", { try file.truncate(to: 4096) }),
            ("a gap", { try file.put([1], at: 5000) }), ("a hole", { try file.truncate(to: 3 << 20) }),
            ("emptying", { try file.truncate(to: 0) }),
        ]
        var counter = try fixture.header().sealCounter
        #expect(counter == 0)
        for (name, change) in changes {
            store.durability.sealer.add(file)
            store.durability.sealer.sealAll()
            #expect(try fixture.header().isSealed, "\(name)")
            let sealed = file.length
            #expect(try fixture.header().length == sealed)
            try change()
            let header = try fixture.header()
            #expect(!header.isSealed, "\(name)")
            #expect(header.length == min(sealed, file.length))
            #expect(header.sealCounter > counter)
            counter = header.sealCounter
        }
        store.durability.sealer.add(file)
        store.durability.sealer.sealAll()
        try file.put([], at: 0)
        #expect(try fixture.header().isSealed)
    }

    @Test("Store-10: a file whose length or last chunk is only in the log is not sealed")
    func loggedEnd() throws {
        let fixture = try TestStore()
        let store = try fixture.open()
        for change in [{ try $0.truncate(to: 5000) }, { try $0.put([1], at: 9000) }] as [(EncryptedFile) throws -> Void]
        {
            let file = try fixture.create("file \(store.makeToken())", in: store)
            try file.put(pattern(9000), at: 0)
            try change(file)
            #expect(try !file.seal(ifStill: file.lengthMark, isDurable: false))
            #expect(try file.sealInPlace())
        }
    }

    @Test("An overwrite that keeps the length keeps the seal")
    func overwrite() throws {
        let fixture = try TestStore()
        try fixture.make(pattern(9000))
        let header = try fixture.bytes()[..<128]
        let file = try fixture.reopen(in: try fixture.open())
        try file.put(pattern(500, seed: 2), at: 4000)
        try file.put(pattern(100, seed: 3), at: 8900)
        #expect(try fixture.bytes()[..<128] == header)
        #expect(try fixture.reopen(in: try fixture.open()).contents() == file.contents())
    }

    @Test("Store-1: the sparse flag is set with a hole", arguments: [true, false])
    func sparseFlag(punches: Bool) throws {
        let fixture = try TestStore()
        let store = try fixture.open()
        let file = try fixture.create(in: store)
        let workspace = try Workspace(layout: store.layout)
        try file.truncate(to: (1 << 20) - 1)
        #expect(try !fixture.header().isSparse, "a gap under 1 MiB is written")
        if punches {
            try file.punchHole(10..<4000, workspace: workspace)
            #expect(try !fixture.header().isSparse, "part of a chunk is written")
            try file.punchHole(4000..<9000, workspace: workspace)
        } else {
            try file.truncate(to: (2 << 20) - 1)
        }
        #expect(try fixture.header().isSparse)
        #expect(try file.contents().allSatisfy { $0 == 0 })
        #expect(try fixture.reopen(in: try fixture.open()).contents().allSatisfy { $0 == 0 })
    }

    @Test("The thread ends on request, and leaves the waiting files to the last round", .timeLimit(.minutes(60)))
    func stopping() throws {
        let fixture = try TestStore()
        let store = try fixture.open()
        let thread = try BackgroundThread { store.durability.run() }
        let file = try fixture.create(in: store)
        try file.put([1], at: 0)
        store.durability.sealer.add(file)
        store.durability.stop()
        thread.join()
        store.durability.sealer.sealWaiting()
        #expect(try fixture.header().isSealed)
    }

    @Test("A sealed file with changes in the log waits for them: a new node would show the times of before")
    func sealedWithChanges() throws {
        let fixture = try TestStore()
        try fixture.make(pattern(9000))
        let store = try fixture.open()
        let file = try fixture.reopen(in: store)
        try file.put(pattern(500, seed: 2), at: 4000)
        try #require(file.isLogged && file.isSealed)
        let isReleased = Monitor(false)
        store.durability.sealer.add(file) { isReleased.update { $0 = true } }
        store.durability.sealer.sealWaiting()
        #expect(isReleased.access { !$0 })
        store.durability.sealer.sealAll()
        #expect(isReleased.access { $0 })
    }

    @Test("A file without a name is released unsealed")
    func unlinked() throws {
        let fixture = try TestStore()
        let store = try fixture.open()
        let file = try fixture.create(in: store)
        try file.put([1], at: 0)
        unlink(fixture.path("file"))
        store.durability.sealer.add(file)
        store.durability.sealer.sealWaiting()
        #expect(store.counters.filesSealed.total == 0)
        store.durability.sealer.forget(file)
    }
}

private final class WeakReference: @unchecked Sendable {
    // @unchecked: any thread reads the weak reference, and only the initializer sets it.
    private(set) weak var file: EncryptedFile?
    init(_ file: EncryptedFile) { self.file = file }
}
