internal import CLinux
internal import CallWatch
import Glibc
internal import Synchronization

/// An ordered record of this process's calls, by any thread, that change a directory or make changes durable.
package final class DiskRecord: Sendable {
    private struct State {
        var numbers: [DiskIdentity: Int]
        var events: [DiskEvent] = []
    }

    /// The records by the objects in their directories.
    private static let records = Mutex<[DiskIdentity: DiskRecord]>([:])
    private static let running = Atomic<Int>(0)

    /// The directory at the beginning of the record.
    package let initial: DiskState
    private let directory: String
    private let state: Mutex<State>

    /// Begins to record.
    /// - Parameter directory: its objects keep their inode numbers (tmpfs).
    package init(of directory: String) throws {
        self.directory = directory
        var numbers: [DiskIdentity: Int] = [:]
        initial = try DiskState(reading: directory, &numbers)
        state = Mutex(State(numbers: numbers))
        Self.records.withLock { records in
            for identity in numbers.keys { records[identity] = self }
        }
        Self.running.add(1, ordering: .relaxed)
        call_recorder_set { call in
            if let call { DiskRecord.note(call.pointee) }
        }
    }

    /// Ends the recording. The caller calls it once.
    package func stop() {
        Self.running.subtract(1, ordering: .relaxed)
        let numbers = state.withLock { $0.numbers }
        Self.records.withLock { records in
            for identity in numbers.keys { records[identity] = nil }
        }
    }

    /// Number of calls so far.
    package var count: Int { state.withLock { $0.events.count } }

    package var events: [DiskEvent] { state.withLock { $0.events } }

    /// Returns the files that now differ from the record, because of an unrecorded call.
    package func unrecorded() throws -> [String] {
        var disk = SimulatedDisk(initial)
        for event in events { disk.apply(event) }
        var numbers: [DiskIdentity: Int] = [:]
        let found = try DiskState(reading: directory, &numbers).contents
        let expected = disk.killed(during: nil, seed: 0).contents
        return Set(found.keys).union(expected.keys).filter { path in
            guard let one = found[path], let other = expected[path] else { return true }
            return !one.hasSameContent(as: other)
        }.sorted()
    }

    private static func note(_ call: made_call) {
        guard running.load(ordering: .relaxed) > 0, let identity = DiskIdentity(call.fd),
            let record = records.withLock({ $0[identity] })
        else { return }
        record.state.withLock { state in record.add(call, identity, &state) }
    }

    private func add(_ call: made_call, _ identity: DiskIdentity, _ state: inout State) {
        guard let object = state.numbers[identity] else { return }
        switch call.kind {
        case MADE_WRITE:
            let bytes = Array(UnsafeRawBufferPointer(start: call.bytes, count: Int(call.size)))
            state.events.append(.write(object, at: Int(call.offset), bytes))
            if call.flags != 0 { state.events.append(.synchronize(object)) }
        case MADE_SIZE: state.events.append(.resize(object, to: Int(call.size)))
        case MADE_ALLOCATION: allocate(call, object, &state)
        case MADE_SYNC: state.events.append(.synchronize(object))
        case MADE_SYNC_ALL: state.events.append(.synchronizeAll)
        default: addName(call, object, &state)
        }
    }

    private func allocate(_ call: made_call, _ object: Int, _ state: inout State) {
        if call.flags & (linux_FALLOC_FL_PUNCH_HOLE | linux_FALLOC_FL_ZERO_RANGE) != 0 {
            state.events.append(.punch(object, Int(call.offset)..<Int(call.offset + call.size)))
        }
        var status = stat()
        if call.flags & linux_FALLOC_FL_KEEP_SIZE == 0, fstat(call.fd, &status) == 0 {
            state.events.append(.resize(object, to: Int(status.st_size)))
        }
    }

    private func addName(_ call: made_call, _ directory: Int, _ state: inout State) {
        guard let entry = call.name else { return }
        let name = Array(UnsafeRawBufferPointer(start: entry, count: strlen(entry)))
        // Skip the probe of the store's abilities. It leaves no trace, so its directory's objects are unknown here too.
        if name.starts(with: Array("vaultfs.tmp.probe-".utf8)) { return }
        switch call.kind {
        case MADE_FILE:
            guard let identity = DiskIdentity(call.source_fd) else { return }
            if let known = state.numbers[identity] {
                if call.flags & O_TRUNC != 0 { state.events.append(.resize(known, to: 0)) }
            } else {
                let object = addObject(identity, &state)
                if call.flags & linux_O_TMPFILE == linux_O_TMPFILE { return }
                state.events.append(.name(object, .file, in: directory, name))
            }
        case MADE_REMOVAL: state.events.append(.remove(name, in: directory))
        case MADE_RENAME:
            guard let source = call.source_name, let from = DiskIdentity(call.source_fd).flatMap({ state.numbers[$0] })
            else { return }
            let old = Array(UnsafeRawBufferPointer(start: source, count: strlen(source)))
            let isExchange = UInt32(call.flags) & linux_RENAME_EXCHANGE != 0
            state.events.append(.rename(old, from: from, name, to: directory, isExchange: isExchange))
        default:
            guard let identity = DiskIdentity(call.fd, entry) else { return }
            let object = state.numbers[identity] ?? addObject(identity, &state)
            let kind: DiskObject =
                switch call.kind {
                case MADE_DIRECTORY: .directory
                case MADE_LINK: .link(target: linkTarget(call.fd, entry))
                default: .file
                }
            state.events.append(.name(object, kind, in: directory, name))
        }
    }

    private func addObject(_ identity: DiskIdentity, _ state: inout State) -> Int {
        let object = state.numbers.count
        state.numbers[identity] = object
        Self.records.withLock { $0[identity] = self }
        return object
    }
}
