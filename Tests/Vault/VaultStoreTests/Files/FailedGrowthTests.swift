import TestSupport
import Testing

@testable import VaultStore

/// Growths over a gap, with failures of one call or of several, or on a disk without enough space.
@Suite(.timeLimit(.minutes(20))) struct FailedGrowthTests {
    @Test(
        "Store-3: a growth that fails at any call is taken back, or a fault says that the file keeps its zeros",
        arguments: 0..<UInt64(16))
    func everyCall(seed: UInt64) throws {
        var calls = 0
        while try fails(seed, at: calls) { calls += 1 }
        #expect(calls > 0)
    }

    /// Returns false if the growth of this seed makes fewer calls.
    private func fails(_ seed: UInt64, at call: Int) throws -> Bool {
        let growth = try Growth(seed: seed)
        var random = SeededGenerator(seed: seed << 32 | UInt64(call))
        let kind = try #require([CallFaults.Kind.error, .full, .gone, .torn].randomElement(using: &random))
        let count = try #require([1, 2, 3, 5, 8, .max].randomElement(using: &random))
        let context = "seed \(seed): \(kind) at \(count) calls from \(call)"
        let faults = CallFaults(kind, first: call, count: count)
        var written: Int?
        faults.during(in: growth.vault.path) { written = try? growth.run() }
        _ = try growth.check(written: written, context)
        return faults.isReached
    }

    @Test("Log-16: a growth that the disk has no space for is taken back", arguments: 0..<UInt64(12), [true, false])
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
                let isTakenBack = try growth.check(written: written, context)
                #expect(isDone || isTakenBack, "\(context)")
            }
            free += 1 + free / 4
        }
    }
}

/// A file, and a growth of it over a gap.
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
        call = try one(of: [.truncate, .write, .allocate])
        start = before.count + (try one(of: [1, 5000, 300_000, 1 << 20, (1 << 20) + 5000, 2 << 20]))
        bytes = call == .write ? pattern(try one(of: [1, 4096, 9000]), seed: 2) : []
    }

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

    private var isToldOf: Bool { store.problems.contains { $0.hasPrefix("a file keeps zeros of a failed extension") } }

    /// Returns true if the file has its former length.
    /// - Parameter written: as returned by `run`. Nil if it has failed.
    func check(written: Int?, _ context: String) throws -> Bool {
        let after = try file.contents()
        #expect(after.starts(with: before), "\(context)")
        if let written {
            let zeros = [UInt8](repeating: 0, count: start - before.count)
            #expect(after.dropFirst(before.count) == zeros + bytes.prefix(written), "\(context)")
            #expect(!isToldOf, "\(context)")
        } else {
            #expect(after.dropFirst(before.count).allSatisfy { $0 == 0 }, "\(context)")
            #expect(isToldOf == (after.count > before.count), "\(context)")
        }
        // The same content after a SIGKILL, and in place.
        let copy = try TestStore(copying: vault)
        #expect(try copy.reopen(in: try copy.open()).contents() == after, "\(context)")
        try store.log.renewIfNeeded()
        try store.log.checkpoint(.due)
        #expect(try file.contents() == after, "\(context)")
        try file.truncate(to: before.count)
        #expect(try file.contents() == before && !isToldOf, "\(context)")
        return after.count == before.count
    }
}
