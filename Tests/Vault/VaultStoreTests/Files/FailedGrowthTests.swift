import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Growths with failures of one call or of several, or on a disk without enough space.
@Suite(.timeLimit(.minutes(20))) struct FailedGrowthTests {
    @Test(
        "Store-3: a growth that fails at any call is taken back, or a fault says that the file keeps its zeros",
        arguments: 0..<UInt64(12))
    func everyCall(seed: UInt64) throws {
        var calls = 0
        while try fails(seed, at: calls) { calls += 1 }
        #expect(calls > 0)
    }

    /// Returns false if the growth of this seed makes fewer calls.
    private func fails(_ seed: UInt64, at call: Int) throws -> Bool {
        let growth = try Growth(seed: seed)
        var random = SeededGenerator(seed: seed << 32 | UInt64(call))
        var first = call
        var isReached = true
        // The program tries again, and the store fails again.
        for attempt in 1...Int.random(in: 1...3, using: &random) {
            let kind = try #require([CallFaults.Kind.error, .full, .gone, .torn].randomElement(using: &random))
            let count = try #require([1, 2, 3, 5, 8, .max].randomElement(using: &random))
            let faults = CallFaults(kind, first: first, count: count)
            let kept = growth.length
            var written: Int?
            faults.during(in: growth.vault.path) { written = try? growth.run() }
            let context = "seed \(seed), attempt \(attempt): \(kind) at \(count) calls from \(first)"
            _ = try growth.check(written: written, kept: kept, context)
            if attempt == 1 { isReached = faults.isReached }
            if written != nil { break }
            first = Int.random(in: 0...(call + 2), using: &random)
        }
        try growth.finish(isSealed: Bool.random(using: &random), "seed \(seed), call \(call)")
        return isReached
    }

    @Test(
        "Store-3: the bytes of a failed write that cannot be cut off neither follow the next ones nor a sealed length",
        arguments: [true, false])
    func rest(isSealed: Bool) throws {
        let vault = try TestStore(in: TemporaryDirectory.memory)
        let store = try vault.open(cacheSize: 0)
        let file = try vault.create(in: store)
        try file.put(pattern(12_288), at: 0)
        let writes = Atomic<Int>(0)
        let refuse = { @Sendable [path = vault.path("file")] (call: WatchedCall) -> Int32 in
            if call.path != path || call.allocationMode != nil { return 0 }
            // The first half of the last write past the end is there.
            if call.kind == .write, writes.add(1, ordering: .relaxed).oldValue == 0 { return CallWatcher.inPart }
            return EIO
        }
        CallWatcher.watch(vault.path, refuse) {
            #expect(throws: StoreError.self) { _ = try file.write(pattern(100_000, seed: 2), at: 12_288) }
        }
        #expect(file.length == 12_288)
        #expect(try vault.bytes().count > 12_288 + 50_000)
        try appendOrSeal(file, in: vault, isSealed: isSealed)
    }

    @Test("the fault of a file whose last name was removed ends with it")
    func removed() throws {
        for call in 0..<100 {
            let growth = try Growth(seed: 1)
            CallFaults(.error, first: call, count: .max).during(in: growth.vault.path) { _ = try? growth.run() }
            guard growth.isToldOf else { continue }
            growth.forget()
            // A failed expectation shows its values, which a struct with a mutex does not survive.
            let isToldOf = growth.isToldOf
            return #expect(!isToldOf)
        }
        Issue.record("no growth was kept")
    }

    @Test("Log-16: a growth that the disk has no space for is taken back", arguments: 0..<UInt64(8), [true, false])
    func fullDisk(seed: UInt64, keepsFreed: Bool) throws {
        var isDone = false
        var free = 0
        while !isDone {
            let directory = try TemporaryDirectory(in: TemporaryDirectory.memory)
            let disk = FullDisk(free: 1 << 20, keepsFreed: keepsFreed)
            try disk.during(in: directory.path) {
                let growth = try Growth(seed: seed, in: directory.path)
                disk.set(free: free)
                let written = try? growth.run()
                disk.set(free: 1 << 20)
                isDone = written != nil
                let context = "seed \(seed), \(free) free blocks"
                let isTakenBack = try growth.check(written: written, kept: 0, context)
                #expect(isDone || isTakenBack, "\(context)")
                try growth.finish(isSealed: false, context)
            }
            free += 1 + free / 4
        }
    }
}

/// A file, and a growth of it at its end or over a gap.
private struct Growth {
    private enum Call { case truncate, write, allocate }

    let vault: TestStore
    private let store: Store
    private let file: EncryptedFile
    private let before: [UInt8]
    private let call: Call
    private let start: Int
    private let bytes: [UInt8]

    init(seed: UInt64, in parent: String = TemporaryDirectory.memory) throws {
        var random = SeededGenerator(seed: seed)
        func one<Value>(of values: [Value]) throws -> Value { try #require(values.randomElement(using: &random)) }
        vault = try TestStore(in: parent)
        store = try vault.open(cacheSize: 0)
        file = try vault.create(in: store)
        try file.put(pattern(try one(of: [1, 4096, 5000, 12_288, 15_000])), at: 0)
        // A file with a hole, and one whose length is in the log.
        if try one(of: [true, false]) { try file.truncate(to: try one(of: [1_100_000, 1_101_824])) }
        if try one(of: [true, false]) { #expect(try file.sealInPlace()) }
        if try one(of: [true, false]) { try file.truncate(to: Int(file.length) - 1) }
        before = try file.contents()
        call = try one(of: [.truncate, .write, .write, .allocate])
        let gap = try one(of: [0, 1, 5000, 300_000, 1 << 20, (1 << 20) + 5000, 2 << 20])
        start = before.count + (call == .write ? gap : max(1, gap))
        bytes = call == .write ? pattern(try one(of: [1, 4096, 9000, 200_000]), seed: 2) : []
    }

    var length: Int { Int(file.length) }

    func forget() { store.durability.sealer.forget(file) }

    /// Returns the number of bytes written after the gap.
    func run() throws -> Int {
        switch call {
        case .truncate: try file.truncate(to: start)
        case .write: return try file.write(bytes, at: start)
        case .allocate:
            let range = UInt64(before.count)..<UInt64(start)
            try file.allocate(range, keepsSize: false, workspace: try Workspace(layout: file.layout))
        }
        return 0
    }

    var isToldOf: Bool { store.problems.contains { $0.hasPrefix("a file keeps zeros of a failed extension") } }

    /// Returns true if the file has its former length. The store works again.
    /// - Parameters:
    ///   - written: as returned by `run`. Nil if it has failed.
    ///   - kept: the file's length before. With zeros up to `start`, the call does not extend it any more.
    func check(written: Int?, kept: Int, _ context: String) throws -> Bool {
        let after = try file.contents()
        #expect(after.starts(with: before), "\(context)")
        if let written {
            let zeros = [UInt8](repeating: 0, count: start - before.count)
            #expect(after.dropFirst(before.count) == zeros + bytes.prefix(written), "\(context)")
            #expect(!isToldOf || kept == start, "\(context)")
        } else {
            #expect(after.dropFirst(before.count).allSatisfy { $0 == 0 }, "\(context)")
            #expect(isToldOf == (after.count > before.count), "\(context)")
        }
        // A SIGKILL may leave the bytes of a failed write as well.
        let copy = try TestStore(copying: vault)
        let found = try copy.reopen(in: try copy.open()).contents()
        #expect(found.starts(with: after), "\(context)")
        try store.log.renewIfNeeded()
        try store.log.checkpoint(.due)
        #expect(try file.contents() == after, "\(context)")
        return after.count == before.count
    }

    func finish(isSealed: Bool, _ context: String) throws {
        try appendOrSeal(file, in: vault, isSealed: isSealed, context)
        try file.truncate(to: before.count)
        #expect(try file.contents() == before && !isToldOf, "\(context)")
    }
}

/// Seals the file, or appends some bytes and syncs them. A SIGKILL then leaves the same file.
private func appendOrSeal(
    _ file: EncryptedFile, in vault: TestStore, isSealed: Bool, _ context: String = ""
) throws {
    var content = try file.contents()
    if isSealed {
        #expect(try file.sealInPlace(), "\(context)")
        let size = file.layout.backingSize(ofPlaintextLength: file.length)
        #expect(try UInt64(vault.bytes().count) == size, "\(context)")
    } else {
        content += pattern(100, seed: 3)
        try file.put(pattern(100, seed: 3), at: Int(file.length))
        try file.synchronize(dataOnly: true)
    }
    let copy = try TestStore(copying: vault)
    #expect(try copy.reopen(in: try copy.open()).contents() == content, "\(context)")
}
