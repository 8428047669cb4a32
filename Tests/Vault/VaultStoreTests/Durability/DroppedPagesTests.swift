import Foundation
import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing

@testable import VaultStore

/// Failed syncs, after which the kernel has dropped the unwritten pages: the next sync succeeds, but proves nothing
/// (FileFormat: Store-9, Log-14).
@Suite(.timeLimit(.minutes(60))) struct DroppedPagesTests {
    private static let c = 4096

    /// A directory's files as of their last sync. A failed sync puts those bytes back, in the current size.
    private final class Disk: Sendable {
        private struct State {
            var number = 0
            var durable: [String: [UInt8]] = [:]
        }

        private let path: String
        private let failing: Range<Int>
        private let state = Mutex(State())

        init(_ path: String, failing: Range<Int>) { (self.path, self.failing) = (path, failing) }

        var isReached: Bool { state.withLock { $0.number > failing.lowerBound } }

        func answer(_ call: WatchedCall) -> Int32 {
            // A synced file keeps its durable bytes under its new name.
            if call.kind == .rename, let source = call.source {
                state.withLock { $0.durable[call.path] = $0.durable.removeValue(forKey: source) }
            }
            let isOfAll = call.kind == .synchronizeAll
            guard isOfAll || call.kind == .synchronize && call.path != path else { return 0 }
            return state.withLock { state in
                defer { state.number += 1 }
                let fails = failing.contains(state.number)
                for file in isOfAll ? files() : [call.path] {
                    let now = Self.bytes(file)
                    if fails {
                        let old = (state.durable[file] ?? []).prefix(now.count)
                        Self.write(old + [UInt8](repeating: 0, count: now.count - old.count), to: file)
                    } else {
                        state.durable[file] = now
                    }
                }
                return fails ? EIO : 0
            }
        }

        func keepAll() { state.withLock { state in for file in files() { state.durable[file] = Self.bytes(file) } } }

        private func files() -> [String] {
            ((try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []).map { path + "/" + $0 }
        }

        private static func bytes(_ file: String) -> [UInt8] {
            (try? Data(contentsOf: URL(fileURLWithPath: file))).map { Array($0) } ?? []
        }

        /// Writes with write(2), unseen by the watcher.
        private static func write(_ bytes: [UInt8], to file: String) {
            let descriptor = open(file, O_WRONLY | O_CLOEXEC)
            defer { close(descriptor) }
            var done = 0
            while done < bytes.count {
                let count = bytes.withUnsafeBytes {
                    Glibc.write(descriptor, $0.baseAddress.map { $0 + done }, bytes.count - done)
                }
                guard count > 0 else { return }
                done += count
            }
        }

        /// Returns a copy of the directory as after a power cut.
        func cut(_ vault: TestStore) throws -> TestStore {
            let copy = try TestStore(copying: vault)
            for (file, bytes) in state.withLock({ $0.durable }) where FileManager.default.fileExists(atPath: file) {
                try copy.write(bytes, to: String(file.dropFirst(path.count + 1)))
            }
            return copy
        }
    }

    /// A file, and the content required after a successful sync.
    private final class Model {
        let name: String
        let file: EncryptedFile
        private let expected: FileModel
        var content: [UInt8] { expected.bytes }
        /// The content at the last successful sync.
        var synced: [UInt8]

        init(_ name: String, _ file: EncryptedFile, _ content: [UInt8]) {
            (self.name, self.file, synced) = (name, file, content)
            expected = FileModel(content, chunkSize: DroppedPagesTests.c)
        }

        /// Writes as a program does, which learns how much was written before an error.
        func put(_ bytes: [UInt8], at offset: Int) throws {
            let workspace = try Workspace(layout: file.layout)
            var done = 0
            while done < bytes.count {
                let count = try bytes[done...].withUnsafeBytes {
                    try file.write($0, at: UInt64(offset + done), workspace: workspace)
                }
                expected.write(Array(bytes[done..<(done + count)]), at: offset + done)
                done += count
            }
        }

        func truncate(to length: Int) throws {
            try file.truncate(to: length)
            expected.setLength(length)
        }
    }

    @Test("a sync that succeeds after one that has failed acknowledges nothing that is not there", arguments: [1, 2])
    func everySync(_ count: Int) throws {
        var first = 0
        while try fail(first..<(first + count)) { first += 1 }
        #expect(first > 12)
    }

    private func fail(_ numbers: Range<Int>) throws -> Bool {
        let context = "syncs \(numbers)"
        let vault = try TestStore(in: TemporaryDirectory.memory)
        for name in ["a", "b"] { try vault.make(pattern(3 * Self.c + 100), entry: name) }
        let store = try vault.open(cacheSize: 0)
        let disk = Disk(vault.path, failing: numbers)
        disk.keepAll()
        let lost = Mutex<Set<UInt64>>([])
        store.reportProblems(to: { _ in }, lose: { loss in lost.withLock { _ = $0.insert(loss.file.fileID) } })
        var models = try ["a", "b"].map { Model($0, try vault.reopen($0, in: store), pattern(3 * Self.c + 100)) }
        func isReported(_ model: Model) -> Bool { lost.withLock { $0.contains(model.file.fileID) } }
        func synchronize(_ model: Model) {
            do { try model.file.synchronize(dataOnly: true) } catch { return }
            model.synced = model.content
            if isReported(model) { return }
            #expect(
                (try? model.file.contents()) == model.content, "\(context): \(model.name) after a sync that succeeded")
        }
        let answer = { @Sendable (call: WatchedCall) -> Int32 in disk.answer(call) }
        CallWatcher.watch(vault.path, answer) {
            // The model changes only after a success, because a failed change must leave the file as it was.
            func attempt(_ body: () throws -> Void) { try? body() }
            attempt { models.append(Model("new", try vault.create("new", in: store), [])) }
            for (round, model) in (models + models).enumerated() {
                let seed = UInt64(10 * round)
                attempt { try model.put(pattern(20 * Self.c, seed: seed + 1), at: model.content.count) }
                attempt { try model.put(pattern(Self.c, seed: seed + 2), at: 0) }
                attempt { try store.log.checkpoint(.due) }
                synchronize(model)
                attempt { try model.put(pattern(20 * Self.c, seed: seed + 3), at: model.content.count) }
                synchronize(model)
                attempt { try model.put(pattern(Self.c, seed: seed + 4), at: Self.c) }
                attempt { try model.truncate(to: model.content.count - Self.c - 50) }
                synchronize(model)
                attempt { try store.log.checkpoint(.due) }
                attempt { try model.truncate(to: model.content.count + 5000) }
                attempt { try model.put(pattern(20 * Self.c, seed: seed + 5), at: model.content.count) }
                synchronize(model)
                attempt { try store.log.checkpoint(.due) }
            }
            for model in models { synchronize(model) }
            try? store.log.renewIfNeeded()
            for model in models { synchronize(model) }
        }
        // Simulates a power cut at this moment.
        let cut = try disk.cut(vault)
        let next = try cut.open(cacheSize: 0)
        for model in models where !isReported(model) {
            let found = try? cut.reopen(model.name, in: next).contents()
            #expect(
                found == model.synced,
                "\(context): \(model.name) after a power cut, \(found?.count ?? -1) of \(model.synced.count) bytes")
        }
        return disk.isReached
    }
}
