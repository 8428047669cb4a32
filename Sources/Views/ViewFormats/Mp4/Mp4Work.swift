internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Limits for the MP4 files of a mount together: in memory, and in time after the beginning of a lock. Any thread.
final class Mp4Work: Sendable {
    /// In bytes. A film of a day takes some 10 MiB, one of two hours in fragments 1 KiB for each fragment in use.
    static let memoryLimit = 96 << 20

    let interruption: Interruption
    private let limit: Int
    private let used = Atomic<Int>(0)
    /// The number of fragments loaded so far, used as the time of their uses.
    private let clock = Atomic<UInt64>(0)
    private let indexes = Mutex<[ObjectIdentifier: Weak]>([:])

    private struct Weak: Sendable {
        weak let index: Mp4Index?
    }

    init(_ interruption: Interruption = Interruption(), limit: Int = memoryLimit) {
        (self.interruption, self.limit) = (interruption, limit)
    }

    /// Bytes in use.
    var memory: Int { used.load(ordering: .relaxed) }

    var now: UInt64 { clock.load(ordering: .relaxed) }

    func tick() { clock.add(1, ordering: .relaxed) }

    func add(_ index: Mp4Index) { indexes.withLock { $0[ObjectIdentifier(index)] = Weak(index: index) } }

    func remove(_ index: Mp4Index) { indexes.withLock { _ = $0.removeValue(forKey: ObjectIdentifier(index)) } }

    /// Reserves memory. If necessary, drops fragments that were not used for long.
    /// - Throws: `.store` with `ENOMEM`.
    func reserve(_ bytes: Int) throws(ViewError) {
        while used.add(bytes, ordering: .relaxed).newValue > limit {
            used.subtract(bytes, ordering: .relaxed)
            guard evict() else {
                throw .store(
                    .unavailable(
                        .noMemory,
                        "the boxes of the open MP4 files need more than \(limit >> 20) MiB: close some of them"))
            }
        }
    }

    func release(_ bytes: Int) { used.subtract(bytes, ordering: .relaxed) }

    /// Drops the fragments not used in the last three quarters of the time since the oldest use. Returns false if no
    /// fragment is loaded.
    private func evict() -> Bool {
        let all = indexes.withLock { $0.values.compactMap(\.index) }
        guard let oldest = all.compactMap(\.oldestUse).min() else { return false }
        let end = oldest + (max(now, oldest) - oldest) / 4
        for index in all { index.drop(usedUntil: end) }
        return true
    }
}

/// The memory of an object, released with it.
final class Mp4Reservation: Sendable {
    private let work: Mp4Work
    private let bytes: Int

    /// - Parameter bytes: already reserved.
    init(_ bytes: Int, of work: Mp4Work) { (self.bytes, self.work) = (bytes, work) }

    deinit { work.release(bytes) }
}
