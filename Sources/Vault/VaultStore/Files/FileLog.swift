internal import CLinux
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// The changes of one open file that the log has and that are not in place (FileFormat, Log), and the times that they give it. Any
/// thread. A leaf lock.
package struct FileLog: ~Copyable, Sendable {
    /// The changes, and the log that has them.
    package struct Content: Sendable {
        package var changes = LoggedChanges()
        package var log: Descriptor?
        /// The modification time that programs see. The backing file gets it together with the changes, so that a program that
        /// looks for changed times in the store (a sync client) never finds the last time before the last content.
        var modified: ModificationTime?
        /// True if the file has no name, and its changes were dropped.
        var isAbandoned = false
        /// True if a read-only store has found the changes: the file may have been written in place since.
        var isFound = false
    }

    struct ModificationTime: Sendable {
        var time: timespec
        /// True if a program has set it. It may be earlier than the changes then.
        var isSet = false
    }

    let content = Mutex(Content())
    private let hasChanges = Atomic<Bool>(false)
    /// Counts the checkpoints that have put changes in place.
    private let checkpoints = Atomic<Int>(0)
    /// Counts the checkpoints that have freed space of the backing file, for a cut or a hole. Space that was reserved before may
    /// be gone.
    let spaceReleases = Atomic<Int>(0)

    var isEmpty: Bool { !hasChanges.load(ordering: .acquiring) }

    /// True while the file's length is that of an entry in the log, and not that of the backing file.
    var hasLength: Bool { !isEmpty && content.withLock { $0.changes.exactLength != nil } }

    /// True if another hole in the log would make lookups slow.
    var hasMostHoles: Bool { !isEmpty && content.withLock { $0.changes.holes.count >= LoggedChanges.mostHoles } }

    /// The last entry of the file. 0 without one.
    var lastSequence: UInt64 { isEmpty ? 0 : content.withLock { $0.changes.lastSequence } }

    /// Adds an entry that was appended.
    func add(_ logged: LoggedEntry, in log: Descriptor, _ layout: ChunkLayout) {
        content.withLock { content in
            content.changes.apply(logged, layout)
            if content.log !== log { content.log = log }
            (content.isAbandoned, content.isFound) = (false, false)
            content.modified = ModificationTime(time: timespec(nanoseconds: logged.entry.time))
        }
        hasChanges.store(true, ordering: .releasing)
    }

    /// Takes over the changes that a read-only store has found.
    func adopt(_ changes: LoggedChanges, in log: Descriptor?) {
        let modified = changes.isEmpty ? nil : ModificationTime(time: timespec(nanoseconds: changes.time))
        content.withLock { $0 = Content(changes: changes, log: log, modified: modified, isFound: true) }
        hasChanges.store(!changes.isEmpty, ordering: .releasing)
    }

    /// Removes the changes up to `sequence`, which are in place, durably.
    /// - Parameter backing: the backing file. Gets the time that was set or raised since they were put in place.
    /// - Throws: the error of setting that time.
    func drop(through sequence: UInt64, _ backing: Descriptor) throws(StoreError) {
        try change(backing) { $0.changes.drop(through: sequence) }
    }

    /// Takes over the changes in a new log, which has all that are not in place.
    /// - Parameter backing: as for `drop`.
    func relocate(_ changes: LoggedChanges, to log: Descriptor, _ backing: Descriptor) throws(StoreError) {
        try change(backing) { ($0.changes, $0.log) = (changes, log) }
    }

    private func change(_ backing: Descriptor, _ body: (inout Content) -> Void) throws(StoreError) {
        // Before an entry is missing, for `readBeside`.
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
        if isEmpty { return status }
        return content.withLock { content in
            guard let modified = content.modified else { return status }
            var result = status
            // A program may have set a later time before the changes.
            if !content.isFound || content.changes.areNewest(status) { result.st_mtim = modified.time }
            if status.st_ctim.nanoseconds < content.changes.time {
                result.st_ctim = timespec(nanoseconds: content.changes.time)
            }
            return result
        }
    }

    /// Raises the time to now, if the log has changes: the file was changed in place, or is as if it were. A checkpoint would
    /// restore an older time.
    func raiseTime() {
        if isEmpty { return }
        let time = timespec(nanoseconds: UInt64(clamping: nanoseconds(of: CLOCK_REALTIME)))
        content.withLock { if $0.modified != nil { $0.modified = ModificationTime(time: time) } }
    }

    /// True if a program has set a time that the backing file does not have.
    var hasSetTime: Bool { !isEmpty && content.withLock { $0.modified?.isSet ?? false } }

    /// Sets the time that programs see. Returns false if there are no changes: it must be put in place at once then.
    func setTime(_ time: timespec) -> Bool {
        content.withLock { content in
            if content.changes.isEmpty { return false }
            content.modified = ModificationTime(time: time, isSet: true)
            return true
        }
    }
}

extension timespec {
    /// Since 1970. A time before is 1970.
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
