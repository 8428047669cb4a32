import CLinux
import Foundation
import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing
import VaultFormat

@testable import FileSystem
@testable import VaultStore

/// Large requests served by a helper beside the worker. Results and changes must be the same as without a helper, also
/// after a failure.
@Suite(.timeLimit(.minutes(60))) struct LargeRequestTests {
    private static let size = 1 << 20

    struct Write: Sendable, CustomTestStringConvertible {
        let testDescription: String
        /// The file's size before the write.
        let before: Int
        let offset: Int
        var count = size
        /// True if the two threads share the write.
        var isShared = true
    }

    static let writes = [
        Write(testDescription: "a new file", before: 0, offset: 0),
        Write(testDescription: "after the last chunk", before: 10 * 4096, offset: 10 * 4096),
        Write(testDescription: "an overwrite", before: 2 * size, offset: 4096),
        Write(testDescription: "an overwrite with growth", before: size / 2, offset: 4096),
        Write(testDescription: "after a partial chunk", before: 5000, offset: 5000),
        Write(testDescription: "past the end", before: 4096, offset: 3 * size),
        Write(testDescription: "a partial last chunk", before: 3 * 4096, offset: 3 * 4096, count: 700_001),
        Write(testDescription: "few bytes", before: 0, offset: 0, count: 400_000, isShared: false),
    ]

    struct Outcome: Equatable {
        var result = ""
        /// The store's changes in order.
        var calls: [String] = []
        /// Nil after an error.
        var content: [UInt8]?
    }

    /// Returns an idle core, whatever else this machine does, or none.
    private static func cores(_ isIdle: Bool) -> IdleCores { IdleCores(of: isIdle ? .max : 0) }

    /// Holds the worker in its first call until the helper has begun.
    private static func hold(_ worker: pthread_t, until helper: RequestHelper) {
        guard pthread_equal(pthread_self(), worker) != 0 else { return }
        let deadline = ContinuousClock.now + .seconds(20)
        while helper.phase.load(ordering: .acquiring) == .offered, .now < deadline { usleep(100) }
    }

    /// Makes a file, and writes to it.
    /// - Parameter fault: number of the store's call from which on all fail for lack of space.
    private func write(_ write: Write, isHelped: Bool, fault: Int = .max) throws -> Outcome {
        let vault = try TestStore()
        let store = try vault.open()
        let file = try vault.create(in: store)
        if write.before > 0 { try file.put(pattern(write.before), at: 0) }
        let (workspace, layout) = (try Workspace(layout: store.layout), store.layout)
        let calls = Mutex<[String]>([])
        var outcome = Outcome()
        try withRequestHelper(cores: Self.cores(isHelped)) { () throws(StoreError) in
            try Workspace(layout: layout)
        } _: { helper in
            let helper = try #require(helper)
            workspace.helper = helper
            let worker = pthread_self()
            let note = { @Sendable (call: WatchedCall) in
                Self.hold(worker, until: helper)
                calls.withLock {
                    $0.append("\(call.kind) \(call.path.hasSuffix("vaultfs.log")) \(call.range) \(call.size)")
                }
            }
            CallFaults(.full, first: fault, count: .max).during(in: vault.path, onCall: note) {
                outcome.result = pattern(write.count, seed: 3).withUnsafeBytes { data in
                    do throws(StoreError) {
                        return "\(try file.write(data, at: UInt64(write.offset), workspace: workspace))"
                    } catch { return "\(error)" }
                }
            }
            if fault == .max { #expect(helper.helped.total == (isHelped && write.isShared ? 1 : 0)) }
        }
        outcome.calls = calls.withLock { $0 }
        outcome.content = try file.contents()
        // Another mount must find the same content.
        try store.log.checkpoint(.end)
        #expect(try vault.reopen(in: vault.open()).contents() == outcome.content)
        return outcome
    }

    @Test("a write makes the same calls in the same order as when the helper is not asked", arguments: writes)
    func calls(of write: Write) throws {
        let alone = try self.write(write, isHelped: false)
        #expect(alone.result == "\(write.count)")
        #expect(try self.write(write, isHelped: true) == alone)
    }

    @Test("a write that fails at any call returns and leaves the same", arguments: writes)
    func failing(_ write: Write) throws {
        for fault in 0..<(try self.write(write, isHelped: false).calls.count) {
            let alone = try self.write(write, isHelped: false, fault: fault)
            #expect(try self.write(write, isHelped: true, fault: fault) == alone, "call \(fault)")
        }
    }

    /// Reads everything, with or without a helper. The result ends with the number of damaged reads.
    private func read(_ vault: TestStore, isHelped: Bool) throws -> String {
        let store = try vault.open()
        let file = try vault.reopen(in: store)
        let (workspace, layout) = (try Workspace(layout: store.layout), store.layout)
        return try withRequestHelper(cores: Self.cores(isHelped)) { () throws(StoreError) in
            try Workspace(layout: layout)
        } _: { helper in
            let helper = try #require(helper)
            workspace.helper = helper
            let worker = pthread_self()
            let hold = { @Sendable (_: ReadFault.Kind, _: String) -> Int32 in
                Self.hold(worker, until: helper)
                return 0
            }
            let result = ReadFault.during(in: vault.path, hold) {
                do { return "\(try file.get(Self.size, at: 0, workspace) == pattern(Self.size))" } catch {
                    return "\(error)"
                }
            }
            #expect(helper.helped.total == (isHelped ? 1 : 0))
            return "\(result), \(store.counters.damagedReads.total) damaged"
        }
    }

    @Test("a read returns the same, also of a damaged chunk, which counts once", arguments: [nil, 0, 31, 32, 100, 255])
    func reading(damaged: Int?) throws {
        let vault = try TestStore()
        try vault.make(pattern(Self.size))
        if let damaged { try vault.change { $0[128 + damaged * 4128 + 50] ^= 1 } }
        let alone = try read(vault, isHelped: false)
        if let damaged {
            #expect(alone.contains("chunk \(damaged):") && alone.hasSuffix(", 1 damaged"))
        } else {
            #expect(alone == "true, 0 damaged")
        }
        #expect(try read(vault, isHelped: true) == alone)
    }

    /// Returns the cores that a thread may use (Cpus_allowed_list in proc_pid_status(5), such as 0-3,6).
    private static func cores(of thread: Int32) throws -> Set<Int32> {
        let status = try String(contentsOfFile: "/proc/self/task/\(thread)/status", encoding: .utf8)
        let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("Cpus_allowed_list:") })
        let ranges = line.dropFirst("Cpus_allowed_list:".count).split(separator: ",").map {
            $0.split(separator: "-").compactMap { Int32($0.filter(\.isNumber)) }
        }
        return Set(try ranges.flatMap { Array(try #require($0.first)...(try #require($0.last))) })
    }

    /// Shares a request of two pieces, with this thread on a core.
    /// - Parameter workers: the number of threads to do the pieces. They wait for each other, so each of two does one.
    /// - Returns: these threads.
    private static func share(_ helper: RequestHelper, onCore core: Int32, workers: Int) throws -> Set<Int32> {
        #expect(linux_stay_on_core(core) == 0)
        defer { linux_use_all_cores(0) }
        let threads = Monitor<Set<Int32>>([])
        let workspace = try Workspace(layout: ChunkLayout(chunkSize: 4096))
        _ = helper.share(2, workspace) { (_, _) throws(StoreError) in
            threads.update { _ = $0.insert(linux_thread()) }
            _ = threads.wait(until: .now + .seconds(20)) { $0.count == workers ? true : nil }
        }
        return threads.access { $0 }
    }

    @Test(
        "the helper is asked while a core is idle, and may not use the worker's until it turns to other work",
        arguments: [true, false])
    func placement(isIdle: Bool) throws {
        let wake = LinuxSystem.Semaphore()
        let helper = RequestHelper(wake: wake, cores: Self.cores(isIdle))
        // Safe because only the helper's thread uses it.
        nonisolated(unsafe) let workspace = try Workspace(layout: ChunkLayout(chunkSize: 4096))
        let (thread, isRunning) = (Monitor<Int32?>(nil), Monitor(true))
        let serving = try BackgroundThread {
            helper.attach()
            thread.update { $0 = linux_thread() }
            while isRunning.access({ $0 }) {
                if wake.wait() { helper.serve(workspace) }
            }
            helper.detach()
        }
        let id = try #require(thread.wait(until: .now + .seconds(20)) { $0 })
        let all = try Self.cores(of: id)
        for core in [try #require(all.min()), try #require(all.max())] {
            let threads = try Self.share(helper, onCore: core, workers: isIdle ? 2 : 1)
            #expect(threads == (isIdle ? [id, linux_thread()] : [linux_thread()]))
            let others = all.subtracting([core])
            #expect(try Self.cores(of: id) == (isIdle && !others.isEmpty ? others : all))
        }
        helper.useAllCores()
        #expect(try Self.cores(of: id) == all)
        isRunning.update { $0 = false }
        wake.post()
        serving.join()
    }

    @Test("a worker does all of a request by itself if the helper never comes, and soon asks no more")
    func late() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let file = try vault.create(in: store)
        let workspace = try Workspace(layout: store.layout)
        let wake = LinuxSystem.Semaphore()
        let helper = RequestHelper(wake: wake, cores: Self.cores(true))
        workspace.helper = helper
        for round in 0..<10 { try file.put(pattern(Self.size, seed: UInt64(round)), at: 0, workspace) }
        #expect(try file.contents(workspace) == pattern(Self.size, seed: 9))
        #expect(helper.helped.total == 0)
        var asked = 0
        while wake.wait(nanoseconds: 1000) { asked += 1 }
        #expect(asked == 3)
    }
}
