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

    /// Number of files that arrived during the current lock, or if it has ended, during the last one.
    func files(isLocked: Bool) -> Int { state.withLock { isLocked && $0.isEnded ? 0 : $0.files } }

    func contains(_ identity: FileIdentity) -> Bool { state.withLock { $0.objects[identity] != nil } }

    func insert(_ identity: FileIdentity, isFile: Bool) {
        state.withLock { state in
            if state.isEnded { state = State() }
            if state.objects.updateValue(isFile, forKey: identity) == nil && isFile { state.files += 1 }
        }
    }

    /// Forgets an object that has lost its last name.
    func remove(_ identity: FileIdentity) {
        state.withLock { state in
            if state.objects.removeValue(forKey: identity) == true { state.files -= 1 }
        }
    }

    /// Called at the unlock.
    func removeAll() {
        state.withLock { state in
            if state.isEnded { state.files = 0 }
            (state.objects, state.isEnded) = ([:], true)
        }
    }
}
