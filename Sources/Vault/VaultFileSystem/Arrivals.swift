internal import LinuxSystem
internal import Synchronization

/// The objects that were made in locked inboxes during the current lock, or moved there. Any thread. A leaf lock.
final class Arrivals: Sendable {
    enum Kind {
        case file, other
        /// A file that was there before the lock, and is being written. It counts until its last close.
        case inUse
    }

    private struct State {
        var objects: [FileIdentity: Kind] = [:]
        /// Number of files, also after the lock.
        var files = 0
        var isEnded = false
    }

    private let state = Mutex(State())
    private let hasAny = Atomic<Bool>(false)

    /// Number of files that arrived during the current lock, or if it has ended, during the last one.
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

    /// Forgets a file that was there before the lock, after its last close.
    func removeInUse(_ identity: FileIdentity) {
        guard hasAny.load(ordering: .acquiring) else { return }
        state.withLock { if $0.objects[identity] == .inUse { $0.objects[identity] = nil } }
    }

    /// Forgets an object that has lost its last name.
    func remove(_ identity: FileIdentity) {
        guard hasAny.load(ordering: .acquiring) else { return }
        state.withLock { state in
            if state.objects.removeValue(forKey: identity) == .file { state.files -= 1 }
        }
    }

    /// A lock has begun. Objects that have arrived since its lock file was seen stay.
    func begin() { state.withLock { if $0.isEnded { $0 = State() } } }

    /// Called when the mount is not locked.
    func removeAll() {
        state.withLock { state in
            if state.isEnded { return }
            (state.objects, state.isEnded) = ([:], true)
            hasAny.store(false, ordering: .releasing)
        }
    }
}
