internal import CLinux
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// The changes of an open file that are in the log and not yet in place (FileFormat, Log), and its resulting times. Any
/// thread. Its lock comes before the schedule's only.
package struct FileLog: ~Copyable, Sendable {
    /// The changes, and their log.
    package struct Content: Sendable {
        package var changes = LoggedChanges()
        package var log: Descriptor?
        /// The modification time shown to programs. A checkpoint sets it together with the changes, because a sync
        /// client that compares times in the store must not find the last time before the last content.
        var modified: ModificationTime?
        /// True if the file has no name, and its changes were dropped.
        var isAbandoned = false
        /// True if a read-only store has found the changes. The file may have been written in place after them.
        var isFound = false
    }

    struct ModificationTime: Sendable {
        var time: timespec
        /// True if a program has set it, possibly to a time before the changes.
        var isSet = false
    }

    let content = Mutex(Content())
    private let hasChanges = Atomic<Bool>(false)
    /// Counts the checkpoints that have put changes in place.
    private let checkpoints = Atomic<Int>(0)
    /// Counts the checkpoints that have freed space of the backing file, for a cut or a hole. Space reserved before
    /// such a checkpoint may be gone.
    let freedSpace = Atomic<Int>(0)

    var isEmpty: Bool { !hasChanges.load(ordering: .acquiring) }

    /// True while an entry in the log gives the file's length, and the backing file's size does not.
    var hasLength: Bool { !isEmpty && content.withLock { $0.changes.exactLength != nil } }

    /// True if another hole in the log would make lookups slow.
    var hasMostHoles: Bool { !isEmpty && content.withLock { $0.changes.holes.count >= LoggedChanges.mostHoles } }

    /// Sequence number of the file's last entry. 0 without one.
    var lastSequence: UInt64 { isEmpty ? 0 : content.withLock { $0.changes.lastSequence } }

    func add(_ logged: LoggedEntry, in log: Descriptor, _ layout: ChunkLayout) {
        content.withLock { content in
            content.changes.apply(logged, layout)
            if content.log !== log { content.log = log }
            (content.isAbandoned, content.isFound) = (false, false)
            content.modified = ModificationTime(time: timespec(nanoseconds: logged.entry.time))
        }
        hasChanges.store(true, ordering: .releasing)
    }

    /// Takes over changes found by a read-only store.
    func adopt(_ changes: LoggedChanges, in log: Descriptor?) {
        let modified = changes.isEmpty ? nil : ModificationTime(time: timespec(nanoseconds: changes.time))
        content.withLock { $0 = Content(changes: changes, log: log, modified: modified, isFound: true) }
        hasChanges.store(!changes.isEmpty, ordering: .releasing)
    }

    /// Removes the changes up to `sequence`, which are durably in place.
    /// - Parameter backing: the backing file. Gets a time that was set or raised after the changes were put in place.
    /// - Throws: the error of setting that time.
    func drop(through sequence: UInt64, _ backing: Descriptor) throws(StoreError) {
        try change(backing) { $0.changes.drop(through: sequence) }
    }

    /// Takes over the changes from a new log, which has all entries that are not in place.
    /// - Parameter backing: as for `drop`.
    func relocate(_ changes: LoggedChanges, to log: Descriptor, _ backing: Descriptor) throws(StoreError) {
        try change(backing) { ($0.changes, $0.log) = (changes, log) }
    }

    private func change(_ backing: Descriptor, _ body: (inout Content) -> Void) throws(StoreError) {
        // Count before entries are removed, so that `readBeside` notices the checkpoint.
        checkpoints.add(1, ordering: .sequentiallyConsistent)
        try content.withLock { (content) throws(StoreError) in
            if !content.isAbandoned { body(&content) }
            guard content.changes.isEmpty else { return }
            defer {
                content.modified = nil
                hasChanges.store(false, ordering: .releasing)
            }
            guard let modified = content.modified else { return }
            if !modified.isSet {
                guard try backing.status().st_mtim.nanoseconds < modified.time.nanoseconds else { return }
            }
            let times = [timespec(tv_sec: 0, tv_nsec: Int(linux_UTIME_OMIT)), modified.time]
            do throws(StoreError) { try retrying { futimens(backing.fd, times) } } catch {
                guard backing.hasNoName else { throw error }
            }
        }
    }

    /// Drops the changes of a file without a name that nobody has open. If a program reaches the file all the same, by
    /// a descriptor of O_PATH, it gets errors instead of older versions.
    func abandon() {
        content.withLock { content in
            content.changes.loseRecords()
            content.isAbandoned = true
        }
    }

    /// Runs `read`, which reads records in place, then replaces those with a newer version in the log.
    /// - Parameter records: of adjacent chunks from `first` on.
    /// - Returns: the number of bytes, from `read`.
    func readBeside(
        _ first: UInt64, _ records: UnsafeMutableRawBufferPointer, _ layout: ChunkLayout,
        _ read: () throws(StoreError) -> Int
    ) throws(StoreError) -> Int {
        while true {
            let seen = checkpoints.load(ordering: .acquiring)
            let stored = try read()
            if !isEmpty {
                // Get the position and its log together, because a new log may begin. Read without the lock, because a
                // thread that appends an entry needs it.
                try LoggedChanges.replace(first, in: records, layout) { chunk in
                    content.withLock { content in content.changes.source(ofChunk: chunk).map { ($0, content.log) } }
                }
            }
            // Otherwise a checkpoint may have put a record in place after `read`, and freed its entry before the log
            // was read.
            if checkpoints.load(ordering: .acquiring) == seen { return stored }
        }
    }

    // MARK: Times

    /// The backing file's attributes with the time of the last change, which the backing file does not show yet.
    package func shownStatus(_ status: stat) -> stat {
        if isEmpty { return status }
        return content.withLock { content in
            guard let modified = content.modified else { return status }
            var result = status
            // Use the change's time even if the backing file's is later: a program may have set that before.
            if !content.isFound || content.changes.areNewest(status) { result.st_mtim = modified.time }
            if status.st_ctim.nanoseconds < content.changes.time {
                result.st_ctim = timespec(nanoseconds: content.changes.time)
            }
            return result
        }
    }

    /// Raises the time to now if the log has changes. The caller has changed the file in place, or makes it look so,
    /// and a checkpoint would restore an older time.
    func raiseTime() {
        if isEmpty { return }
        let time = timespec(nanoseconds: UInt64(clamping: nanoseconds(of: CLOCK_REALTIME)))
        content.withLock { if $0.modified != nil { $0.modified = ModificationTime(time: time) } }
    }

    /// True if the backing file still lacks a time set by a program.
    var hasSetTime: Bool { !isEmpty && content.withLock { $0.modified?.isSet ?? false } }

    /// Sets the time that programs see. Returns false without changes in the log: the caller must set it in place then.
    func setTime(_ time: timespec) -> Bool {
        content.withLock { content in
            if content.changes.isEmpty { return false }
            content.modified = ModificationTime(time: time, isSet: true)
            return true
        }
    }
}

extension timespec {
    /// Nanoseconds since 1970. An earlier time counts as 1970.
    var nanoseconds: UInt64 { UInt64(clamping: tv_sec) * 1_000_000_000 + UInt64(clamping: tv_nsec) }

    init(nanoseconds: UInt64) {
        self.init(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
    }
}

extension FileLog.Content {
    /// The changes of a file that is not open.
    package init(changes: LoggedChanges, log: Descriptor?) {
        self.init()
        (self.changes, self.log) = (changes, log)
    }
}
