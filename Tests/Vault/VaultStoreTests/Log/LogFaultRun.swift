import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Operations on the files of a store with the smallest log. Some of its calls fail. Each file's content is known after
/// each operation, because a failed one leaves each chunk old or new.
final class LogFaultRun {
    private struct File {
        let name: String
        let file: EncryptedFile
        let model: FileModel
        var isRemoved = false
    }

    private enum Change {
        case write([UInt8], at: Int)
        case truncate(to: Int)
        case punch(Range<Int>)
    }

    let vault: TestStore
    let store: Store
    let faults: CallFaults
    private let c: Int
    private let workspace: Workspace
    private let context: String
    private var files: [String: File] = [:]
    private var seed: UInt64 = 1
    /// Chunks reported as lost, by file id.
    private let lost = Monitor<[UInt64: Set<UInt64>]>([:])
    private(set) var failures = 0
    /// Files that have kept zeros of a failed extension, and were not cut since.
    private var longer: Set<String> = []
    /// Called once, when a checkpoint syncs the file b.
    private let duringCheckpoint = Monitor<[@Sendable () -> Void]>([])
    private var hasLosses: Bool { lost.access { !$0.isEmpty } }

    init(chunkSize: Int, _ faults: CallFaults, _ context: String) throws {
        (c, self.faults, self.context) = (chunkSize, faults, context)
        vault = try TestStore(chunkSize: chunkSize, in: TemporaryDirectory.memory)
        let size = LogHeader.smallestSize(vault.layout)
        try vault.write(LogHeader(logSize: size).bytes, to: "vaultfs.log")
        workspace = try Workspace(layout: vault.layout)
        let lengths = ["a": 6 * c + 500, "b": 2 * c + 700, "removed": 2 * c, "open": 2 * c]
        for (name, length) in lengths { try vault.make(pattern(length), entry: name) }
        let lock = try WriterLock.acquire(root: vault.root, .exclusive, wait: .seconds(60), isRemote: false)
        store = try Store(
            root: FileDescriptor(rawValue: vault.root.fd), keyRing: vault.keyRing, cacheSize: 0, isReadOnly: false,
            writerLock: lock)
        store.reportProblems(
            to: { _ in },
            lose: { [lost] loss in lost.access { $0[loss.file.fileID, default: []].formUnion(loss.chunks) } })
        for (name, length) in lengths {
            files[name] = File(
                name: name, file: try vault.reopen(name, in: store),
                model: FileModel(pattern(length), chunkSize: chunkSize))
        }
        files["open"]?.file.parts.openHandles.add(1, ordering: .relaxed)
    }

    /// Runs the operations with the faults, and a clean end if `ends`.
    func run(ends: Bool) {
        let onCall = { @Sendable [duringCheckpoint, vault] (call: WatchedCall) -> Void in
            guard call.kind == .synchronize, call.path == vault.path("b") else { return }
            let actions = duringCheckpoint.access { actions in
                defer { actions = [] }
                return actions
            }
            for action in actions { action() }
        }
        faults.during(in: vault.path, onCall: onCall) {
            operate()
            if ends { end() }
        }
    }

    // MARK: Operations

    private func operate() {
        overwrite("a", chunk: 1)
        change("b", .write(next(100), at: length("b")))
        synchronize("a", "b")
        change("b", .write(next(c + 300), at: length("b")))
        synchronize("b")
        let large = max(34 * 4096, 2 * c)
        change("a", .write(next(large), at: length("a")))
        change("a", .write(next(c / 2), at: length("a") - c))
        read("a", (length("a") - 2 * c)..<length("a"))
        change("b", .truncate(to: 2 * c + 100))
        change("b", .write(next(200), at: 2 * c + 50))
        checkpoint()
        change("a", .punch((2 * c - 100)..<(4 * c + 100)))
        synchronize("a")
        for name in ["removed", "open"] {
            overwrite(name, chunk: 0)
            synchronize(name)
            remove(name)
        }
        // These writes fill the log.
        for _ in 0..<10 { change("a", .write(next(max(c, 128 << 10)), at: 0)) }
        change("b", .truncate(to: length("b") + (1 << 20) + c + 5000))
        change("b", .write(next(c / 2), at: length("b") - c / 2 - 100))
        synchronize("a", "b")
        // A further entry is made during a checkpoint, so the next ones follow it up to the log's end.
        change("b", .write(next(100), at: 0))
        checkpoint { [self] in
            // If the log is full or needs a new salt, a write would wait for the checkpoint.
            let log = store.log.writing.access { ($0.area.used, $0.phase.needsSalt) }
            guard log.0 < LogHeader.smallestSize(vault.layout) / 2, !log.1 else { return }
            faults.paused { overwrite("a", chunk: 0) }
        }
        for _ in 0..<9 { change("a", .write(next(max(c, 112 << 10)), at: 0)) }
        synchronize("a")
        read("a", 0..<(3 * c))
        change("b", .truncate(to: 0))
        change("b", .write(next(c + 10), at: 0))
        change("a", .truncate(to: 4 * c))
        change("a", .truncate(to: 4 * c + 300))
        checkpoint()
        overwrite("a", chunk: 3)
        synchronize("a", "b")
        overwrite("b", chunk: 0)
    }

    private func next(_ count: Int) -> [UInt8] {
        seed += 1
        return pattern(count, seed: seed)
    }

    private func length(_ name: String) -> Int { files[name]?.model.length ?? 0 }

    private func overwrite(_ name: String, chunk: Int) { change(name, .write(next(c), at: chunk * c)) }

    private func change(_ name: String, _ change: Change) {
        guard let file = files[name] else { return }
        let (model, old) = (file.model, file.model.bytes)
        do {
            switch change {
            case .write(let bytes, let offset):
                model.write(bytes, at: offset)
                try file.file.put(bytes, at: offset, workspace)
            case .truncate(let length):
                model.setLength(length)
                try file.file.truncate(to: length, workspace)
                if length < old.count { longer.remove(name) }
            case .punch(let range):
                model.clear(range)
                try file.file.punchHole(UInt64(range.lowerBound)..<UInt64(range.upperBound), workspace: workspace)
            }
        } catch {
            failures += 1
            if case .truncate = change, file.file.length > old.count { longer.insert(name) }
            model.settle(faults.paused { settled(file, old, model.bytes) })
        }
        model.forget()
    }

    private func synchronize(_ names: String...) {
        for name in names { attempt { try files[name]?.file.synchronize(dataOnly: true) } }
    }

    /// - Parameter during: called before the checkpoint syncs the file b.
    private func checkpoint(during action: (() -> Void)? = nil) {
        if let action {
            nonisolated(unsafe) let action = action
            duringCheckpoint.access { $0 = [{ action() }] }
        }
        attempt { try store.log.checkpoint(.due) }
        duringCheckpoint.access { $0 = [] }
    }

    private func remove(_ name: String) {
        guard unlink(vault.path(name)) == 0 else { return }
        files[name]?.isRemoved = true
    }

    private func read(_ name: String, _ range: Range<Int>) {
        guard let file = files[name], range.upperBound <= file.model.length else { return }
        attempt {
            let found = try file.file.get(range.count, at: range.lowerBound, workspace)
            #expect(found == Array(file.model.bytes[range]), "\(context): a read of \(name)")
        }
    }

    private func attempt(_ body: () throws -> Void) { do { try body() } catch { failures += 1 } }

    private func end() {
        for file in files.values where !file.isRemoved {
            try? file.file.synchronize(dataOnly: true)
            store.durability.sealer.add(file.file)
        }
        store.durability.sealer.sealAll()
        try? store.log.checkpoint(.end)
        store.durability.synchronizeNames()
        store.releaseWriterLock()
    }

    // MARK: Checks

    /// Returns the content after a failed operation.
    private func settled(_ file: File, _ old: [UInt8], _ new: [UInt8]) -> [UInt8] {
        let length = Int(file.file.length)
        let lengths = min(old.count, new.count)...max(old.count, new.count)
        #expect(lengths.contains(length), "\(context): \(file.name) has \(length) bytes, not \(lengths)")
        var content: [UInt8] = []
        for start in stride(from: 0, to: length, by: c) {
            let range = start..<min(start + c, length)
            let versions = [old, new].map { Self.part($0, range) }
            let found = try? file.file.get(range.count, at: start, workspace)
            if let found {
                #expect(
                    versions.contains { same($0, found) },
                    "\(context): chunk \(start / c) of \(file.name) after a failure")
            } else {
                expectLost(start / c, file.file, file.name)
            }
            content += found ?? versions[0]
        }
        return content
    }

    /// Returns the bytes of a range, with zeros past the end.
    private static func part(_ content: [UInt8], _ range: Range<Int>) -> [UInt8] {
        let part = Array(content[range.clamped(to: 0..<content.count)])
        return part + [UInt8](repeating: 0, count: range.count - part.count)
    }

    private func expectLost(_ chunk: Int, _ file: EncryptedFile, _ name: String) {
        let isLost = lost.access { $0[file.fileID]?.contains(UInt64(chunk)) ?? false }
        #expect(isLost, "\(context): chunk \(chunk) of \(name) cannot be read, and nobody was told")
    }

    private func check(_ file: EncryptedFile, _ name: String, _ content: [UInt8], _ when: String) {
        #expect(
            Int(file.length) == content.count,
            "\(context), \(when): \(name) has \(file.length) bytes of \(content.count)")
        for start in stride(from: 0, to: content.count, by: c) {
            let range = start..<min(start + c, content.count)
            do {
                let found = try file.get(range.count, at: start, workspace)
                #expect(same(found, content[range]), "\(context), \(when): chunk \(start / c) of \(name)")
            } catch { expectLost(start / c, file, "\(name) (\(when): \(error))") }
        }
    }

    /// Checks the files as found by the next mount.
    private func checkNext(_ vault: TestStore, _ when: String) throws {
        let next = try vault.open(cacheSize: 0)
        if !hasLosses { #expect(next.problems.isEmpty, "\(context), \(when): \(next.problems)") }
        for file in files.values where !file.isRemoved {
            check(try vault.reopen(file.name, in: next), file.name, file.model.bytes, when)
        }
    }

    /// Checks the files after a kill. The next mount meets no fault.
    func checkKilled() throws { try checkNext(TestStore(copying: vault), "killed") }

    /// Checks the files once the store answers again.
    func checkLiving() throws {
        let left = files.values.filter { !$0.isRemoved || $0.name == "open" }
        for file in left { try? file.file.synchronize(dataOnly: true) }
        try store.log.checkpoint(.due)
        for file in left { try file.file.synchronize(dataOnly: true) }
        try store.log.checkpoint(.due)
        let problems = store.problems
        let known = (hasLosses ? 1 : 0) + (longer.isEmpty ? 0 : 1)
        #expect(problems.count == known, "\(context), living: \(problems)")
        #expect(store.faults.isDataMissing == (known > 0) && store.log.usedSize == 0)
        for file in left { check(file.file, file.name, file.model.bytes, "living") }
        try checkNext(TestStore(copying: vault), "killed later")
    }

    /// Checks the files after the end of the mount.
    func checkEnded() throws {
        guard try vault.bytes("vaultfs.lock") == [10] else { return try checkNext(vault, "ended") }
        #expect(!hasLosses, "\(context): a clean end with losses")
        #expect(
            try LogContents.read(vault.root, vault.keyRing)?.isEmpty != false, "\(context): a clean end with entries")
        _ = unlink(vault.path + "/vaultfs.log")
        try checkNext(vault, "ended cleanly")
    }

    /// True if everything succeeded and the end was a clean one.
    var isUnnoticed: Bool { (try? vault.bytes("vaultfs.lock")) == [10] && failures == 0 && store.problems.isEmpty }
}
