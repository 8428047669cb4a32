internal import LinuxSystem
internal import Synchronization

/// The objects made in locked inboxes, or moved there, during the current lock. Any thread. A leaf lock.
final class Arrivals: Sendable {
    enum Kind {
        case file, other
        /// A file from before the lock that is still being written. It counts until its last close.
        case inUse
    }

    private struct State {
        var objects: [FileIdentity: Kind] = [:]
        /// Number of files. Stays after the lock.
        var files = 0
        var isEnded = false
    }

    private let state = Mutex(State())
    private let hasAny = Atomic<Bool>(false)

    /// Number of files that arrived during the current lock or, after its end, during the last one.
    var files: Int { state.withLock { $0.files } }

    func contains(_ identity: FileIdentity) -> Bool {
        hasAny.load(ordering: .acquiring) && state.withLock { $0.objects[identity] != nil }
    }

    /// - Parameter isLocked: checked under the mutex, so that nothing is added after the unlock has removed everything.
    func insert(_ identity: FileIdentity, _ kind: Kind, if isLocked: () -> Bool) {
        state.withLock { state in
            guard isLocked() else { return }
            if state.isEnded { state = State() }
            let known = state.objects[identity]
            if kind == .inUse && known != nil { return }
            state.objects[identity] = kind
            if kind == .file && known != .file { state.files += 1 }
            hasAny.store(true, ordering: .releasing)
        }
    }

    /// Forgets a file from before the lock, after its last close.
    func removeInUse(_ identity: FileIdentity) {
        guard hasAny.load(ordering: .acquiring) else { return }
        state.withLock { if $0.objects[identity] == .inUse { $0.objects[identity] = nil } }
    }

    /// Forgets an object whose last name was removed.
    func remove(_ identity: FileIdentity) {
        guard hasAny.load(ordering: .acquiring) else { return }
        state.withLock { state in
            if state.objects.removeValue(forKey: identity) == .file { state.files -= 1 }
        }
    }

    /// Begins a lock. Objects stay if they arrived after its lock file was seen.
    func begin() { state.withLock { if $0.isEnded { $0 = State() } } }

    func removeAll() {
        state.withLock { state in
            if state.isEnded { return }
            (state.objects, state.isEnded) = ([:], true)
            hasAny.store(false, ordering: .releasing)
        }
    }
}
