internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// `vaultfs.log`: the changes of existing chunks, before they are made in place (FileFormat, Log). An entry is appended
/// with one pwrite(2). A checkpoint puts durable entries in place. Any thread.
///
/// `state` is a leaf lock but for the file's own, and is held while an entry is written: after a SIGKILL no entry that was
/// acknowledged may follow one that is incomplete.
package final class RedoLog: Sendable {
    /// A file with entries. It and its descriptor stay open until they are in place.
    struct Target {
        let file: EncryptedFile
        let writer: Descriptor
        var lastSequence: UInt64
    }

    private struct State {
        var descriptor: Descriptor?
        var header: LogHeader
        /// The next entry.
        var next: LogReader.Position
        /// Bytes from the start to `next`, with what is left free at the end of the log in between.
        var used: UInt64 = 0
        /// The log is written with zeros up to here, so that a sync need not write the store's metadata.
        var prepared: UInt64 = 0
        var targets: [UInt64: Target] = [:]
        /// The error of a sync. It is unknown which entries are on disk, so there can be no others.
        var failure: StoreError?
    }

    static let entry = Array("vaultfs.log".utf8)
    /// Bytes that are prepared at once, and if there is no space for that.
    private static let steps: [UInt64] = [1 << 20, 1 << 17, 0]
    /// More files than this are made durable by syncing the whole store.
    private static let fewFiles = 16

    private let root: Descriptor
    private let keys: ChunkKeys
    private let layout: ChunkLayout
    private let state: Mutex<State>
    // Unsafe: `state` guards it.
    nonisolated(unsafe) private let cipher: ChunkCipher
    /// Held by the thread that syncs. The others then find their entries durable.
    private let syncing = Mutex<Void>(())
    private let checkpointing = Mutex<Void>(())
    private let durable = Atomic<UInt64>(0)
    let schedule = Monitor(Schedule())
    /// Called before anything is put in place: throws if another process has the vault.
    private let admit: @Sendable () throws(StoreError) -> Void
    private let usesSyncfs: Bool
    /// Number of files with entries at which a checkpoint begins, because each keeps its descriptors. No more than twice as
    /// many have entries.
    private let mostTargets = shareOfOpenFiles(atMost: 1024)
    /// Called once, with the reason why the log does not work any more.
    let onFailure = Mutex<(@Sendable (String) -> Void)?>(nil)

    /// - Parameter size: of the file at most. A log that exists keeps its own.
    init(
        root: Descriptor, keys: ChunkKeys, layout: ChunkLayout, size: UInt64, usesSyncfs: Bool,
        admit: @escaping @Sendable () throws(StoreError) -> Void
    ) throws(StoreError) {
        self.root = root
        self.keys = keys
        self.layout = layout
        self.admit = admit
        self.usesSyncfs = usesSyncfs
        cipher = try StoreError.ofCrypto(ChunkCipher())
        let found = (try? Self.openToRead(root))?.header.logSize
        state = Mutex(
            State(
                header: LogHeader(logSize: found ?? size),
                next: LogReader.Position(sequence: 1, offset: LogHeader.areaSize)))
    }

    // MARK: Appending

    /// Appends an entry. It can be lost by a power cut until it is synced, but not by a SIGKILL.
    /// - Parameters:
    ///   - buffer: room for a head, the entry's body, room for a tag.
    ///   - note: called with the entry, its body's offset and the log, before any other entry is appended.
    /// - Throws: `ENOSPC` with nothing changed.
    func append(
        _ entry: LogEntry, in buffer: UnsafeMutableRawBufferPointer, of file: EncryptedFile, _ writer: Descriptor,
        _ note: (LogEntry, UInt64, Descriptor) -> Void
    ) throws(StoreError) {
        while true {
            let isFull: Bool
            do throws(StoreError) {
                isFull = try state.withLock { (state) throws(StoreError) -> Bool in
                    if let failure = state.failure { throw failure }
                    return try !append(entry, in: buffer, of: file, writer, &state, note)
                }
            } catch {
                // A checkpoint frees the space that the log has already.
                guard error.isNoSpace && usedSize > 0 else { throw error }
                isFull = true
            }
            guard isFull else { return }
            try checkpoint()
        }
    }

    /// Returns false if the log is full.
    private func append(
        _ given: LogEntry, in buffer: UnsafeMutableRawBufferPointer, of file: EncryptedFile, _ writer: Descriptor,
        _ state: inout State, _ note: (LogEntry, UInt64, Descriptor) -> Void
    ) throws(StoreError) -> Bool {
        let descriptor = try open(&state)
        var entry = given
        let size = UInt64(entry.size)
        var offset = state.next.offset
        var skipped: UInt64 = 0
        if offset + size > state.header.logSize {
            skipped = state.header.logSize - offset
            offset = LogHeader.areaSize
        }
        guard state.used + skipped + size <= state.header.logSize - LogHeader.areaSize,
            state.targets.count < 2 * mostTargets || state.targets[entry.fileID] != nil
        else { return false }
        try prepare(descriptor, upTo: offset + size, &state)
        entry.sequence = state.next.sequence
        entry.time = Self.now()
        entry.store(into: buffer.slice(..<LogEntry.headSize))
        let end = entry.size - LogEntry.tagSize
        let (salt, sequence) = (state.header.salt, entry.sequence)
        try StoreError.ofCrypto { () throws(CryptoError) in
            try cipher.authenticate(
                UnsafeRawBufferPointer(buffer.slice(..<end)), nonce: (sequence, salt), keys: keys,
                into: buffer.slice(end..<entry.size))
        }
        // A part of an entry ends the log. The next one is written over it.
        try descriptor.write(UnsafeRawBufferPointer(buffer.slice(..<entry.size)), at: offset)
        state.next = LogReader.Position(sequence: sequence + 1, offset: offset + size)
        state.used += skipped + size
        state.targets[entry.fileID] = Target(file: file, writer: writer, lastSequence: sequence)
        note(entry, offset + UInt64(LogEntry.headSize), descriptor)
        noteWork(isHalfFull: state.used > state.header.logSize / 2 || state.targets.count >= mostTargets)
        return true
    }

    /// The coarse clock may be older than the time that the kernel gave the file last.
    private static func now() -> UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return UInt64(clamping: time.tv_sec) * 1_000_000_000 + UInt64(clamping: time.tv_nsec)
    }

    /// The log's file, made if there is none, with a new salt in its header.
    private func open(_ state: inout State) throws(StoreError) -> Descriptor {
        if let descriptor = state.descriptor { return descriptor }
        let (descriptor, header) = try Self.openToWrite(root, size: state.header.logSize)
        state.header = LogHeader(logSize: max(header.logSize, LogHeader.smallestSize(layout)))
        do { state.header.salt = try SecureRandom.integer() } catch { throw StoreError(error) }
        try descriptor.write(state.header.bytes, at: 0)
        state.descriptor = descriptor
        return descriptor
    }

    /// Writes zeros to the log up to `end` and somewhat further. Nothing that it writes over is an entry.
    private func prepare(_ descriptor: Descriptor, upTo end: UInt64, _ state: inout State) throws(StoreError) {
        guard end > state.prepared else { return }
        let start = max(state.prepared, LogHeader.areaSize)
        var failure = StoreError.system(.noSpace)
        for step in Self.steps {
            let target = min(state.header.logSize, max(end, start + min(step, state.header.logSize / 64)))
            do throws(StoreError) {
                try descriptor.write([UInt8](repeating: 0, count: Int(target - start)), at: start)
                state.prepared = target
                return
            } catch {
                guard error.isNoSpace else { throw error }
                failure = error
                // The rest of the space is for files.
                try descriptor.truncate(to: start)
            }
        }
        throw failure
    }

    // MARK: Syncing

    /// Makes the entries up to `sequence` durable, with one fdatasync(2) for all threads that wait.
    func synchronize(through sequence: UInt64) throws(StoreError) {
        if durable.load(ordering: .acquiring) >= sequence { return }
        try syncing.withLock { (_) throws(StoreError) in
            if durable.load(ordering: .acquiring) >= sequence { return }
            let (written, descriptor, failure) = state.withLock { state in
                (state.next.sequence - 1, state.descriptor, state.failure)
            }
            if let failure { throw failure }
            guard let descriptor else { return }
            do throws(StoreError) { try descriptor.synchronize(dataOnly: true) } catch {
                fail(error)
                throw error
            }
            durable.store(written, ordering: .releasing)
        }
    }

    /// The last entry that is durable.
    var durableSequence: UInt64 { durable.load(ordering: .acquiring) }

    /// Makes all entries durable.
    package func synchronize() throws(StoreError) {
        try synchronize(through: state.withLock { $0.next.sequence - 1 })
    }

    private func fail(_ error: StoreError) {
        let isFirst = state.withLock { state in
            defer { state.failure = state.failure ?? error }
            return state.failure == nil
        }
        if isFirst { onFailure.withLock { $0 }?(problemText(error)) }
    }

    private func problemText(_ error: StoreError) -> String {
        "vaultfs.log could not be made durable (\(error.reason)), so nothing can be overwritten; mount the vault again"
    }

    /// The reason why the log does not work, as text for the user. Nil if it does.
    var problem: String? { state.withLock { $0.failure }.map(problemText) }

    /// Number of files with entries that are not in place.
    var files: Int { state.withLock { $0.targets.count } }

    /// Bytes of entries that are not in place.
    package var usedSize: UInt64 { state.withLock { $0.used } }

    /// Current values.
    package var statistics: LogStatistics {
        let (size, used, files) = state.withLock { state in
            (state.header.logSize, state.used, state.targets.values.map(\.file))
        }
        let memory = files.reduce(0) { sum, file in sum + file.logged.withLock { $0.changes.memory } }
        return LogStatistics(size: size, used: used, indexMemory: memory)
    }

    // MARK: Checkpoints

    /// Puts every entry in place, durably, and frees its space. Needs no key of a file, because records are copied as they
    /// are. Takes no lock that the caller may hold for a file.
    package func checkpoint() throws(StoreError) {
        try checkpointing.withLock { (_) throws(StoreError) in
            let (start, end, used, targets, descriptor) = state.withLock { state in
                (state.header, state.next, state.used, state.targets, state.descriptor)
            }
            guard used > 0, let descriptor else { return }
            try admit()
            try synchronize(through: end.sequence - 1)
            var reader = try LogReader(descriptor, start, keys: keys, layout)
            let files = try reader.changes(before: end.sequence)
            guard reader.position.sequence == end.sequence else {
                throw .damaged("vaultfs.log: an entry that was just written cannot be read")
            }
            try putInPlace(files, targets, descriptor)
            var header = start
            header.startSequence = end.sequence
            header.startOffset = end.offset
            try descriptor.write(header.bytes, at: 0)
            try descriptor.synchronize(dataOnly: true)
            for target in targets.values { target.file.dropLogged(through: end.sequence - 1) }
            state.withLock { state in
                state.header = header
                state.used -= used
                for (id, target) in state.targets where target.lastSequence < end.sequence {
                    state.targets.removeValue(forKey: id)
                }
                // Begin anew where the store's space is in use already. A reader looks there too.
                if state.used == 0 { state.next.offset = LogHeader.areaSize }
            }
        }
    }

    private func putInPlace(
        _ files: [UInt64: LoggedChanges], _ targets: [UInt64: Target], _ log: Descriptor
    ) throws(StoreError) {
        var synced: [Descriptor] = []
        for (fileID, changes) in files {
            guard let target = targets[fileID] else { continue }
            try target.file.putInPlace(changes, target.writer, from: log)
            // Also a file whose last name was removed: a power cut can bring the name back.
            synced.append(target.writer)
        }
        try Self.synchronize(synced, root: root, usesSyncfs: usesSyncfs)
    }

    /// Makes files durable.
    static func synchronize(_ files: [Descriptor], root: Descriptor, usesSyncfs: Bool) throws(StoreError) {
        if usesSyncfs && files.count > fewFiles, linux_syncfs(root.fd) == 0 { return }
        for file in files { try file.synchronize(dataOnly: true) }
    }

    /// The file with entries that has this id. A second object of it would not know of them.
    func file(_ fileID: UInt64) -> EncryptedFile? { state.withLock { $0.targets[fileID]?.file } }

    /// Puts everything in place and empties the file of the log. Called when nothing else uses the store.
    package func clear() throws(StoreError) {
        try checkpoint()
        try state.withLock { (state) throws(StoreError) in
            guard let descriptor = state.descriptor, state.used == 0 else { return }
            try descriptor.truncate(to: LogHeader.areaSize)
            state.prepared = 0
            state.descriptor = nil
            state.next = LogReader.Position(sequence: 1, offset: LogHeader.areaSize)
            durable.store(0, ordering: .releasing)
            try descriptor.synchronize(dataOnly: false)
        }
    }
}
