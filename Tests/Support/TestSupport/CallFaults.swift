internal import Glibc
internal import Synchronization

/// Faults of calls below a directory, by any thread: changes, syncs, reads and opens. The calls are numbered in order.
package final class CallFaults: Sendable {
    package enum Kind: Sendable, CaseIterable {
        /// EIO.
        case error
        /// ENOSPC, for calls that may need space.
        case full
        /// EFBIG, for calls that may make a file larger.
        case tooLarge
        /// ENODEV: the disk is gone.
        case gone
        /// EINTR.
        case interrupted
        /// Writes or reads only the first half.
        case short
        /// Writes the first half, and then fails with EIO.
        case torn
    }

    private enum Call {
        case watched(WatchedCall)
        case read(isOfBytes: Bool)
    }

    private struct State {
        var number = 0
        var isReached = false
        var isPaused = false
    }

    private let kind: Kind
    private let numbers: Range<Int>
    private let state = Mutex(State())

    /// - Parameters:
    ///   - first: number of the first failing call.
    ///   - count: number of failing calls.
    package init(_ kind: Kind, first: Int, count: Int) {
        self.kind = kind
        numbers = first..<(count > Int.max - first ? .max : first + count)
    }

    /// True if a call has failed.
    package var isReached: Bool { state.withLock { $0.isReached } }

    /// Number of calls that could have failed.
    package var calls: Int { state.withLock { $0.number } }

    /// - Parameters:
    ///   - directory: an absolute path without links.
    ///   - onCall: called before each change or sync.
    package func during(
        in directory: String, onCall: @escaping @Sendable (WatchedCall) -> Void = { _ in }, _ body: () throws -> Void
    ) rethrows {
        let watched = { @Sendable [self] (call: WatchedCall) -> Int32 in
            onCall(call)
            return answer(.watched(call))
        }
        let read = { @Sendable [self] (kind: ReadFault.Kind, path: String) -> Int32 in
            CallWatcher.isOfProbe(path) ? 0 : answer(.read(isOfBytes: kind.isBytes))
        }
        try CallWatcher.watch(directory, includesAttributes: true, watched) {
            try ReadFault.during(in: directory, read, body)
        }
    }

    /// Runs `body` without a fault. Its calls have no numbers.
    package func paused<Result>(_ body: () throws -> Result) rethrows -> Result {
        state.withLock { $0.isPaused = true }
        defer { state.withLock { $0.isPaused = false } }
        return try body()
    }

    private func answer(_ call: Call) -> Int32 {
        state.withLock { state in
            guard !state.isPaused, concerns(call) else { return 0 }
            defer { state.number += 1 }
            guard numbers.contains(state.number) else { return 0 }
            state.isReached = true
            switch kind {
            case .error: return EIO
            case .full: return ENOSPC
            case .tooLarge: return EFBIG
            case .gone: return ENODEV
            case .interrupted: return EINTR
            case .short: return CallWatcher.inPart
            case .torn: return state.number == numbers.lowerBound ? CallWatcher.inPart : EIO
            }
        }
    }

    private func concerns(_ call: Call) -> Bool {
        switch (kind, call) {
        case (.error, _), (.interrupted, _), (.gone, _): true
        case (.tooLarge, .watched(let call)): call.kind == .write || call.kind == .truncate
        case (.full, .watched(let call)): call.needsSpace
        case (.short, .watched(let call)), (.torn, .watched(let call)): call.kind == .write
        case (.short, .read(let isOfBytes)): isOfBytes
        case (.full, .read), (.torn, .read), (.tooLarge, .read): false
        }
    }
}

extension ReadFault.Kind {
    fileprivate var isBytes: Bool { if case .bytes = self { true } else { false } }
}
