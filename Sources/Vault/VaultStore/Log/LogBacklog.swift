internal import LinuxSystem
internal import VaultFormat

/// An entry, and its offset in the log.
struct LoggedEntry {
    let entry: LogEntry
    let offset: UInt64
}

extension [LoggedEntry] {
    /// Offset after the last entry of a log.
    var end: UInt64 { last.map { $0.offset + $0.entry.space } ?? LogHeader.areaSize }
}

/// The entries not yet in place, and their files. Guarded by `RedoLog.writing`.
struct LogBacklog {
    /// A file with entries. It stays open, with its descriptor, until they are in place.
    struct Target {
        let file: any LoggedFile
        let writer: Descriptor
        fileprivate(set) var lastSequence: UInt64
    }

    /// Number of entries at which a checkpoint begins, because each takes memory. At most twice as many can exist.
    private static let mostEntries = 1 << 13

    /// Number of files with entries at which a checkpoint begins, because each keeps its descriptors. At most twice as
    /// many can have entries.
    private let mostTargets = shareOfOpenFiles(atMost: 1024)
    /// In the order of their numbers.
    private(set) var entries: [LoggedEntry] = []
    /// By the file's id. A removed file's target can go before its entries, and come back, so `entries` alone tell how
    /// many a file has.
    private(set) var targets: [UInt64: Target] = [:]
    /// The files whose space a checkpoint is about to free. An entry appended meanwhile could lose its reserved space.
    private var closed: Set<UInt64> = []
    /// The files that the last checkpoint could not put in place. They may use half of the log, so that others can be
    /// written.
    private var unplaced: Set<UInt64> = []

    /// True if a checkpoint should begin.
    var isLarge: Bool { targets.count >= mostTargets || entries.count >= Self.mostEntries }

    func isClosed(_ fileID: UInt64) -> Bool { !closed.isEmpty && closed.contains(fileID) }

    /// Returns the number of parts of the log, of which the file may use one.
    func divisor(for fileID: UInt64) -> UInt64 { !unplaced.isEmpty && unplaced.contains(fileID) ? 2 : 1 }

    /// False if a checkpoint must come first, because of too many entries or files, or entries of another file with
    /// this id.
    func hasRoom(for fileID: UInt64, of file: any LoggedFile, dividedBy divisor: UInt64) -> Bool {
        guard entries.count < 2 * Self.mostEntries / Int(divisor) else { return false }
        // Find its position, because retaining an object that other threads retain costs 0.1 µs each time.
        guard let target = targets.index(forKey: fileID) else { return targets.count < 2 * mostTargets }
        return targets.values[target].file === file
    }

    /// Adds an entry that was written to the log.
    mutating func append(_ logged: LoggedEntry, of file: any LoggedFile, _ writer: Descriptor) {
        entries.append(logged)
        let (fileID, sequence) = (logged.entry.fileID, logged.entry.sequence)
        // Change it in place, for the same reason.
        if let target = targets.index(forKey: fileID), targets.values[target].writer === writer {
            targets.values[target].lastSequence = sequence
        } else {
            targets[fileID] = Target(file: file, writer: writer, lastSequence: sequence)
        }
    }

    /// Takes over the entries of a new log. Files without any are dropped.
    mutating func replace(by entries: [LoggedEntry]) {
        self.entries = entries
        let fileIDs = Set(entries.map(\.entry.fileID))
        targets = targets.filter { fileIDs.contains($0.key) }
        for entry in entries.map(\.entry) { targets[entry.fileID]?.lastSequence = entry.sequence }
    }

    // MARK: Checkpoints

    /// Stops further entries of the files whose space a checkpoint is about to free.
    mutating func close() { closed = Set(entries.lazy.map(\.entry).filter(\.mayFreeSpace).map(\.fileID)) }

    mutating func reopen(_ fileIDs: some Sequence<UInt64>) { closed.subtract(fileIDs) }

    /// Records the files that a checkpoint could not put in place.
    mutating func leave(_ unplaced: Set<UInt64>) { self.unplaced = unplaced }

    /// Drops all entries of a former backlog, which a checkpoint has put in place.
    mutating func drop(_ former: borrowing LogBacklog, before sequence: UInt64) {
        unplaced = []
        // A new array, so that the memory of many entries is freed.
        entries = Array(entries.dropFirst(former.entries.count))
        for (fileID, target) in targets where target.lastSequence < sequence { targets.removeValue(forKey: fileID) }
    }

    /// Drops removed files, and so closes them, unless they have got an entry since a former backlog.
    mutating func dropRemoved(_ fileIDs: [UInt64], since former: borrowing LogBacklog) {
        for fileID in fileIDs where targets[fileID]?.lastSequence == former.targets[fileID]?.lastSequence {
            targets.removeValue(forKey: fileID)
        }
    }
}
