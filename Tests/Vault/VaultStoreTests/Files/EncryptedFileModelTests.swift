import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Random operations against an array of bytes (FileFormat: Sizes, Holes, Sealed and unsealed files).
@Suite struct EncryptedFileModelTests {
    @Test(
        "Sizes-1, Holes-1, Store-1, Store-2, Store-8: a file behaves as an array of bytes under all operations",
        .timeLimit(.minutes(60)), arguments: [4096, 16384], [UInt64(1), 2])
    func randomOperations(chunkSize: Int, seed: UInt64) throws {
        var model = try Model(chunkSize: chunkSize, seed: seed)
        for step in 0..<1500 {
            let operation = model.nextOperation()
            try model.apply(operation)
            if step % 5 == 0 {
                try model.check()
                if let problem = model.problem {
                    Issue.record("step \(step), \(operation): \(problem)")
                    return
                }
            }
        }
    }
}

private enum Operation {
    case write(Int, Int)
    case read(Int, Int)
    case truncate(Int)
    case punch(Range<Int>)
    case zero(Range<Int>, Bool)
    case allocate(Range<Int>, Bool)
    case reopen
    case remount
    case seal
}

private struct Model {
    private let fixture: TestStore
    private var store: Store
    private var file: EncryptedFile
    private var workspace: Workspace
    private let expected: FileModel
    private var generator: SeededGenerator
    /// The header's expected state, by the rules of the format.
    private var isSealed = false
    private(set) var problem: String?

    init(chunkSize: Int, seed: UInt64) throws {
        fixture = try TestStore(chunkSize: chunkSize)
        store = try fixture.open(cacheSize: 6 * chunkSize)
        file = try fixture.create(in: store)
        workspace = try Workspace(layout: store.layout)
        expected = FileModel(chunkSize: chunkSize)
        generator = SeededGenerator(seed: seed)
    }

    /// Returns a position on or near the chunk grid, or anywhere.
    private mutating func place() -> Int {
        let c = fixture.layout.chunkSize
        let grid = [
            0, 1, c - 1, c, c + 1, 2 * c, 2 * c + 500, 3 * c, 5 * c - 1, expected.length, max(0, expected.length - 1),
        ]
        return Bool.random(using: &generator)
            ? grid.randomElement(using: &generator) ?? 0 : Int.random(in: 0..<(7 * c), using: &generator)
    }

    private mutating func size() -> Int {
        let c = fixture.layout.chunkSize
        let sizes = [1, 15, 16, 17, c - 1, c, c + 1, 2 * c, 2 * c + 500, 40]
        return Int.random(in: 0..<200, using: &generator) == 0
            ? 40 * c + 3 : sizes.randomElement(using: &generator) ?? 1
    }

    private mutating func range() -> Range<Int> {
        let start = place()
        return start..<(start + size())
    }

    mutating func nextOperation() -> Operation {
        switch Int.random(in: 0..<100, using: &generator) {
        case 0..<40: return .write(place(), size())
        case 40..<60: return .read(place(), size())
        case 60..<72: return .truncate(place())
        case 72..<78: return .punch(range())
        case 78..<82: return .zero(range(), Bool.random(using: &generator))
        case 82..<86: return .allocate(range(), Bool.random(using: &generator))
        case 86..<90: return .reopen
        case 90..<92: return .remount
        case 92..<94: return .truncate(expected.length + (1 << 20) + place())
        default: return .seal
        }
    }

    mutating func apply(_ operation: Operation) throws {
        let former = expected.length
        switch operation {
        case .write(let offset, let count):
            let data = generator.bytes(count)
            try file.put(data, at: offset, workspace)
            expected.write(data, at: offset)
        case .read(let offset, let count):
            let range = (offset..<(offset + count)).clamped(to: 0..<former)
            let found = try file.get(count, at: offset, workspace)
            if found != Array(expected.bytes[range]) { problem = "read differs at \(offset)" }
        case .truncate(let length):
            try file.truncate(to: length, workspace)
            if length != former || length == 0 { isSealed = false }
            expected.setLength(length)
        case .punch(let range):
            try file.punchHole(unsigned(range), workspace: workspace)
            expected.clear(range)
        case .zero(let range, let keepsSize):
            try file.zeroRange(unsigned(range), keepsSize: keepsSize, workspace: workspace)
            expected.clear(range)
            if !keepsSize { expected.setLength(max(former, range.upperBound)) }
        case .allocate(let range, let keepsSize):
            try file.allocate(unsigned(range), keepsSize: keepsSize, workspace: workspace)
            if !keepsSize { expected.setLength(max(former, range.upperBound)) }
        case .reopen: try reopen()
        case .remount:
            store = try fixture.open(cacheSize: 6 * fixture.layout.chunkSize)
            try reopen()
        case .seal:
            store.durability.sealer.add(file)
            store.durability.sealer.sealAll()
            // Without a write since its open, the file has no descriptor to seal with.
            if file.writing.withLock({ $0.isOpen }) { isSealed = true }
        }
        if expected.length > former { isSealed = false }
        expected.forget()
        if expected.length > 3 << 20 { try apply(.truncate(0)) }
    }

    private mutating func reopen() throws {
        file = try fixture.reopen(in: store)
    }

    private func unsigned(_ range: Range<Int>) -> Range<UInt64> { UInt64(range.lowerBound)..<UInt64(range.upperBound) }

    /// Checks everything observable of the file.
    mutating func check() throws {
        let length = UInt64(expected.length)
        if file.length != length { problem = "length \(file.length) is to be \(length)" }
        if try file.contents(workspace) != expected.bytes { problem = "contents differ" }
        // Check with the changes still in the log, and again after the checkpoint.
        try checkFresh()
        try store.log.checkpoint(.due)
        try checkFresh()
        let backing = try file.reader.status().st_size
        if UInt64(backing) != store.layout.backingSize(ofPlaintextLength: length) {
            problem = "backing size \(backing) for \(length)"
        }
        let header = try fixture.header()
        if header.isSealed != isSealed { problem = "sealed: \(header.isSealed)" }
        if header.isSparse != expected.latest.hasHoles { problem = "sparse: \(header.isSparse)" }
        if isSealed ? header.length != length : header.length > length {
            problem = "header's length \(header.length)"
        }
    }

    private mutating func checkFresh() throws {
        let fresh = try fixture.reopen(in: try fixture.open(cacheSize: 0, isReadOnly: true))
        if try fresh.contents() != expected.bytes { problem = "a fresh opening reads something else" }
    }
}
