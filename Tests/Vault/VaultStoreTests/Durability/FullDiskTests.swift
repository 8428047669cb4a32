import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// The space for acknowledged changes on a full disk (FileFormat: Log-16).
@Suite(.timeLimit(.minutes(60))) struct FullDiskTests {
    /// The steps of `full-append`: appends and overwrites until the disk is full.
    @Test(
        "Log-16: growth that was logged can be put in place on a disk that drops reservations",
        arguments: [12, 14, 16, 20])
    func appended(logarithm: Int) throws {
        let chunkSize = 1 << logarithm
        let disk = FullDisk(free: 1600 + 3 * chunkSize / 4096, keepsFreed: true)
        let vault = try TestStore(chunkSize: chunkSize, in: TemporaryDirectory.memory)
        let size = LogHeader.smallestSize(vault.layout)
        try disk.during(in: vault.path) {
            try vault.write(LogHeader(logSize: size).bytes, to: "vaultfs.log")
            let store = try vault.open()
            var files: [(file: EncryptedFile, content: [UInt8])] = []
            for name in ["a", "b", "c"] {
                let file = try vault.create(name, in: store)
                try file.put(pattern(chunkSize + 1000), at: 0)
                try file.synchronize(dataOnly: false)
                files.append((file, pattern(chunkSize + 1000)))
            }
            if size > 2 << 20 { disk.set(free: 3000) }
            var refused = 0
            for round in 0..<2000 where refused < 30 {
                let index = round % 3
                let (file, length) = (files[index].file, files[index].content.count)
                let growth = (pattern(30_000, seed: UInt64(round)), length)
                for (bytes, offset) in [growth, (pattern(700, seed: 7), round % 40 * 700)] {
                    guard offset <= files[index].content.count else { continue }
                    do throws(StoreError) {
                        let workspace = try Workspace(layout: vault.layout)
                        let count = try bytes.withBytes { (bytes) throws(StoreError) in
                            try file.write(bytes, at: UInt64(offset), workspace: workspace)
                        }
                        let end = min(files[index].content.count, offset + count)
                        files[index].content.replaceSubrange(offset..<end, with: bytes[..<count])
                        #expect(file.length == UInt64(files[index].content.count))
                    } catch {
                        guard error.isNoSpace else { throw error }
                        refused += 1
                    }
                }
            }
            #expect(refused >= 30)
            try finish(files, vault, store, disk)
        }
    }

    private func finish(
        _ files: [(file: EncryptedFile, content: [UInt8])], _ vault: TestStore, _ store: Store, _ disk: FullDisk
    ) throws {
        // From now on the disk has no space for the vault, whether its daemon is killed or lives on.
        disk.takeAll()
        let killed = try TestStore(copying: vault)
        for (name, file) in zip(["a", "b", "c"], files) {
            let readOnly = try killed.open(isReadOnly: true)
            #expect(try killed.reopen(name, in: readOnly).contents() == file.content)
        }
        try store.log.checkpoint(.due)
        #expect(store.problems.isEmpty && store.log.usedSize == 0)
        for (name, file) in zip(["a", "b", "c"], files) {
            #expect(try vault.reopen(name, in: try vault.open()).contents() == file.content)
        }
    }

    @Test(
        "Log-16: whatever was acknowledged before the disk is full is put in place, beside running checkpoints",
        arguments: [(12, 1), (12, 2), (12, 3), (16, 4), (16, 5), (20, 6)] as [(Int, UInt64)])
    func random(logarithm: Int, seed: UInt64) throws {
        let chunkSize = 1 << logarithm
        for round in 0..<UInt64(logarithm == 20 ? 4 : 25) {
            let run = try RandomRun(chunkSize: chunkSize, seed: seed << 32 | round)
            try run.make()
        }
    }
}

/// Random operations on a file while another thread makes checkpoints, until the disk is full. Even then every
/// acknowledged change must get in place.
private final class RandomRun: @unchecked Sendable {
    private let vault: TestStore
    private let disk = FullDisk(free: 1 << 20)
    private let store: Store
    private let file: EncryptedFile
    private let workspace: Workspace
    private let context: String
    private var random: SeededGenerator
    private var content: [UInt8] = []
    private let isOver = Atomic<Bool>(false)
    private var c: Int { vault.layout.chunkSize }

    init(chunkSize: Int, seed: UInt64) throws {
        context = "chunks of \(chunkSize), seed \(seed)"
        random = SeededGenerator(seed: seed)
        vault = try TestStore(chunkSize: chunkSize, in: TemporaryDirectory.memory)
        store = try vault.open(cacheSize: 0)
        file = try vault.create(in: store)
        workspace = try Workspace(layout: vault.layout)
    }

    private func below(_ limit: Int) -> Int { Int.random(in: 0..<max(1, limit), using: &random) }

    func make() throws {
        try disk.during(in: vault.path) {
            try file.put(pattern(3 * c + 100), at: 0)
            content = pattern(3 * c + 100)
            try store.log.checkpoint(.due)
            try concurrently([
                { [self] in while !isOver.load(ordering: .acquiring) { try store.log.checkpoint(.due) } },
                { [self] in
                    defer { isOver.store(true, ordering: .releasing) }
                    for _ in 0..<(10 + below(20)) { try step() }
                },
            ])
            for _ in 0..<below(12) { try step() }
            disk.takeAll()
            // Some operations still find space and are acknowledged.
            for _ in 0..<below(12) { try step() }
            try store.log.checkpoint(.due)
        }
        #expect(store.problems.isEmpty && store.log.usedSize == 0, "\(context)")
        #expect(try file.contents() == content, "\(context)")
        #expect(try vault.reopen(in: vault.open(cacheSize: 0)).contents() == content, "\(context)")
    }

    /// Makes a random change, unless there is no space for it.
    private func step() throws {
        do throws(StoreError) { try change() } catch {
            guard error.isNoSpace else { throw error }
            // A failed hole may have left zeros in part of the file.
            let after = try file.contents()
            #expect(after.count == content.count, "\(context)")
            content = after
        }
    }

    private func change() throws(StoreError) {
        let place = below(content.count + 1)
        switch below(10) {
        case 0..<3: try write(at: content.count, below(2 * c) + 1)
        case 3..<6: try write(at: place, min(below(2 * c) + 1, max(1, content.count - place)))
        case 6:
            try file.setLength(UInt64(place), workspace: workspace)
            content.removeLast(content.count - place)
        case 7:
            let end = place + below(3 * c) + 1
            try file.punchHole(UInt64(place)..<UInt64(end), workspace: workspace)
            for index in place..<max(place, min(end, content.count)) { content[index] = 0 }
        case 8:
            // Extends the file by a hole.
            let end = content.count + (1 << 20) + below(c)
            if end > 6 << 20 + 8 * c { return }
            try file.setLength(UInt64(end), workspace: workspace)
            content += [UInt8](repeating: 0, count: end - content.count)
        default: try file.synchronize(dataOnly: true)
        }
    }

    private func write(at offset: Int, _ count: Int) throws(StoreError) {
        let bytes = pattern(count, seed: random.next())
        let written = try bytes.withBytes { (bytes) throws(StoreError) in
            try file.write(bytes, at: UInt64(offset), workspace: workspace)
        }
        content.replaceSubrange(offset..<min(content.count, offset + written), with: bytes[..<written])
    }
}
