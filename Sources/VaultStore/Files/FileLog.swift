internal import CLinux
package import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// The changes of one open file that the log has and that are not in place (FileFormat, Log), and the times that they give it. Any
/// thread. A leaf lock.
package struct FileLog: ~Copyable, Sendable {
    /// The changes, and the log that has them.
    struct Content: Sendable {
        var changes = LoggedChanges()
        var log: Descriptor?
        /// True if the file has no name, and its changes were dropped.
        var isAbandoned = false
    }

    let content = Mutex(Content())
    private let hasChanges = Atomic<Bool>(false)
    /// Counts the checkpoints that have put changes in place.
    private let checkpoints = Atomic<Int>(0)
    /// Time of the last change, in nanoseconds since 1970, if the backing file's times may be older. Else 0.
    private let time = Atomic<UInt64>(0)

    var isEmpty: Bool { !hasChanges.load(ordering: .acquiring) }

    /// True while the file's length is that of an entry in the log, and not that of the backing file.
    var hasLength: Bool { !isEmpty && content.withLock { $0.changes.exactLength != nil } }

    /// True if another hole in the log would make lookups slow.
    var hasMostHoles: Bool { !isEmpty && content.withLock { $0.changes.holes.count >= LoggedChanges.mostHoles } }

    /// The last entry of the file. 0 without one.
    var lastSequence: UInt64 { isEmpty ? 0 : content.withLock { $0.changes.lastSequence } }

    /// Adds an entry that was appended.
    /// - Parameter position: offset of its body in the log.
    func add(_ entry: LogEntry, at position: UInt64, in log: Descriptor, _ layout: ChunkLayout) {
        content.withLock { content in
            content.changes.apply(entry, at: position, layout)
            (content.log, content.isAbandoned) = (log, false)
        }
        hasChanges.store(true, ordering: .releasing)
        time.store(entry.time, ordering: .releasing)
    }

    /// Takes over the changes that a read-only store has found.
    func adopt(_ changes: LoggedChanges, in log: Descriptor?) {
        content.withLock { $0 = Content(changes: changes, log: log) }
        hasChanges.store(!changes.isEmpty, ordering: .releasing)
        time.store(changes.time, ordering: .releasing)
    }

    /// Removes the changes up to `sequence`, which are in place, durably.
    func drop(through sequence: UInt64) { change { $0.changes.drop(through: sequence) } }

    /// Takes over the changes in a new log, which has all that are not in place.
    func relocate(_ changes: LoggedChanges, to log: Descriptor) { change { ($0.changes, $0.log) = (changes, log) } }

    private func change(_ body: (inout Content) -> Void) {
        // Before an entry is missing, for `readBeside`.
        checkpoints.add(1, ordering: .sequentiallyConsistent)
        content.withLock { content in
            if !content.isAbandoned { body(&content) }
            hasChanges.store(!content.changes.isEmpty, ordering: .releasing)
        }
        if isEmpty { time.store(0, ordering: .releasing) }
    }

    /// Drops the changes of a file that has no name and that nobody has open: if a program gets at it all the same, by a descriptor
    /// of O_PATH, it finds errors instead of older versions.
    func abandon() {
        content.withLock { content in
            content.changes.loseRecords()
            content.isAbandoned = true
        }
    }

    /// Runs `read`, which reads records in place, and replaces those that the log has.
    /// - Parameter records: of adjacent chunks from `first` on.
    /// - Returns: the bytes that `read` has returned.
    func readBeside(
        _ first: UInt64, _ records: UnsafeMutableRawBufferPointer, _ layout: ChunkLayout,
        _ read: () throws(StoreError) -> Int
    ) throws(StoreError) -> Int {
        while true {
            let seen = checkpoints.load(ordering: .acquiring)
            let stored = try read()
            if !isEmpty {
                // The position and its log together: a new log may begin. Not under the lock: whoever appends an entry
                // takes it.
                try LoggedChanges.replace(first, in: records, layout) { chunk in
                    content.withLock { content in content.changes.source(ofChunk: chunk).map { ($0, content.log) } }
                }
            }
            // A checkpoint may have put a record in place after it was read here, and freed its entry before it was read
            // there.
            if checkpoints.load(ordering: .acquiring) == seen { return stored }
        }
    }

    // MARK: Times

    /// The backing file's attributes with the time of the last change, which the backing file does not show yet.
    package func shownStatus(_ status: stat) -> stat {
        let nanoseconds = time.load(ordering: .acquiring)
        if nanoseconds == 0 { return status }
        let time = timespec(nanoseconds: nanoseconds)
        var result = status
        if status.st_mtim.nanoseconds < nanoseconds { result.st_mtim = time }
        if status.st_ctim.nanoseconds < nanoseconds { result.st_ctim = time }
        return result
    }

    /// Raises the time to that of a write to the backing file, if the log has changes. A checkpoint that is running
    /// would restore an older one.
    func raiseTime(from writer: Descriptor) {
        guard !isEmpty, let status = try? writer.status() else { return }
        time.max(status.st_mtim.nanoseconds, ordering: .acquiringAndReleasing)
    }

    /// Gives the backing file the time of the last change, before a program changes its attributes.
    func placeTime(_ descriptor: Descriptor) throws(StoreError) {
        let nanoseconds = time.exchange(0, ordering: .acquiringAndReleasing)
        guard nanoseconds != 0, try descriptor.status().st_mtim.nanoseconds < nanoseconds else { return }
        let times = [timespec(tv_sec: 0, tv_nsec: Int(linux_UTIME_OMIT)), timespec(nanoseconds: nanoseconds)]
        try retrying { futimens(descriptor.fd, times) }
    }
}

extension timespec {
    /// Since 1970. A time before is 1970.
    var nanoseconds: UInt64 { UInt64(clamping: tv_sec) * 1_000_000_000 + UInt64(clamping: tv_nsec) }

    init(nanoseconds: UInt64) {
        self.init(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
    }
}
