internal import FileSystem
internal import LinuxSystem

extension KeyStore {
    /// One load that everybody who asks for the name meanwhile waits for. Under the monitor's lock.
    final class Load {
        var outcome: Result<KeyMaterial, ViewError>?
    }

    struct Request {
        let name: KeyName
        let completion: Completion
    }

    struct State {
        /// Why there are no keys now.
        var refusal: ViewError?
        var isStopped = false
        var shared: KeyMaterial?
        var cache: KeyCache
        var loads: [KeyName: Load] = [:]
        /// Threads inside `KeySources.load`, also those whose outcome nobody waits for any more.
        var loadingThreads = 0
        var queue: [Request] = []
        /// The first of `queue` that nobody has taken.
        var queueStart = 0
        var threads: [BackgroundThread] = []
    }
}

extension KeyStore.State {
    mutating func find(_ name: KeyName) -> KeyMaterial? {
        name == .shared ? shared : cache.find(name)
    }

    /// What to fetch next: `.some(nil)` means that the thread is to end, nil that it is to wait.
    mutating func nextRequest() -> KeyStore.Request?? {
        if isStopped { return .some(nil) }
        guard queueStart < queue.count else { return nil }
        defer {
            queueStart += 1
            if queueStart == queue.count { (queue, queueStart) = ([], 0) }
        }
        return queue[queueStart]
    }
}
