internal import LinuxSystem
internal import Synchronization

/// The objects that were made in locked inboxes during the current lock, or moved there. Any thread. A leaf lock.
final class Arrivals: Sendable {
    private struct State {
        /// True for files.
        var objects: [FileIdentity: Bool] = [:]
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
    func insert(_ identity: FileIdentity, isFile: Bool, if isLocked: () -> Bool) {
        state.withLock { state in
            guard isLocked() else { return }
            if state.isEnded { state = State() }
            if state.objects.updateValue(isFile, forKey: identity) == nil && isFile { state.files += 1 }
            hasAny.store(true, ordering: .releasing)
        }
    }

    /// Forgets an object that has lost its last name.
    func remove(_ identity: FileIdentity) {
        guard hasAny.load(ordering: .acquiring) else { return }
        state.withLock { state in
            if state.objects.removeValue(forKey: identity) == true { state.files -= 1 }
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
