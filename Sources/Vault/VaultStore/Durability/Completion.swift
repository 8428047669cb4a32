internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultFormat

/// The completion of files without a header and of directories without a record, as empty ones, after an unclean end of
/// the last writer (FileFormat: Store-38). Any thread.
///
/// A power cut leaves such objects: the name of a new file reached the disk, but its first bytes did not. A mount
/// completes each one when it is opened, and all of them by a walk in the background. Until the walk is done, the
/// vault's end still counts as unclean.
package final class Completion: Sendable {
    private struct State {
        var isStopping = false
        var isRunning = false
        /// True once the walk has checked everything. Afterwards a file without a header is damage.
        var isOver = false
        /// Number of completed renames that may have misled a walk, and of those in progress.
        var moves = 0
        var moving = 0
        /// The files whose end was checked, and later new ones.
        var proven: Set<FileIdentity> = []
        /// The objects that a thread is checking or completing.
        var objects: Set<FileIdentity> = []
    }

    /// Interval, in milliseconds, between checks for the end of a lock.
    private static let pause = 1000
    /// Maximum number of objects that are reported, one line for each. The last line announces that there may be more.
    private static let mostLines: UInt64 = 20

    private let writerLock: WriterLock
    private let counters: Counters
    private let state = Monitor(State())
    /// Called with a line about each completed object, without a plaintext name.
    package let onCompleted = Observer<String>()

    init(_ writerLock: WriterLock, counters: Counters) {
        self.writerLock = writerLock
        self.counters = counters
    }

    /// False once the walk has checked everything.
    package var isActive: Bool { state.access { !$0.isOver } }

    /// Runs `body` while no other thread works on the same object here, because two would write different headers or
    /// records.
    private func withExclusiveAccess<Result>(
        to identity: FileIdentity, _ body: () throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        state.wait { state in state.objects.insert(identity).inserted ? () : nil }
        defer { state.update { _ = $0.objects.remove(identity) } }
        return try body()
    }

    /// Runs `body`, which opens a file and cuts off its torn tail, or makes the file. Keeps other threads from the
    /// file's end meanwhile. Once checked, a file's tail counts as intact.
    /// - Parameter body: called with true if it must check the tail.
    func openProven<Result>(
        _ descriptor: Descriptor, _ body: (_ mustCheck: Bool) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        let identity = FileIdentity(try descriptor.status())
        return try withExclusiveAccess(to: identity) { () throws(StoreError) -> Result in
            let result = try body(!state.access { $0.proven.contains(identity) })
            state.access { _ = $0.proven.insert(identity) }
            return result
        }
    }

    /// Cuts off the torn tail of a file closed by all programs, and seals it, durably. Does nothing if the header rules
    /// out a torn tail. Returns true if the file is shorter now.
    /// - Throws: `.locked` without the keys; `.damaged`; `.system` with errno.
    package func proveTail(_ entry: Component, in parent: Descriptor, in store: Store) throws(StoreError) -> Bool {
        let reader = try Descriptor(at: parent, entry, flags: O_RDONLY | O_NONBLOCK)
        guard try StoredHeader.mayHaveTornTail(reader, store.layout) else { return false }
        return try openProven(reader) { (mustCheck) throws(StoreError) -> Bool in
            guard mustCheck else { return false }
            let file = try FileOpening(reader, in: store).open(cutsTornTail: true)
            try file.prepareForWriting(evenIfClosed: true)
            _ = try file.seal(ifStill: file.lengthMark, isDurable: false)
            try file.synchronize(dataOnly: true)
            return file.parts.isCutBack.load(ordering: .acquiring)
        }
    }

    // MARK: One object

    /// Completes a file or directory if it lacks its header or record.
    /// - Parameters:
    ///   - pin: the object. For a file, any descriptor.
    ///   - parentClass: the protection class of the parent directory.
    ///   - shownPath: the object's path in the vault's directory, for the daemon's log.
    /// - Returns: false if there is nothing to complete.
    /// - Throws: `.locked` if the key of the class is forgotten, `EROFS` or `ENOSPC`.
    @discardableResult
    package func complete(
        _ pin: Descriptor, class parentClass: ProtectionClass, shownPath: @autoclosure () -> [UInt8], in store: Store
    ) throws(StoreError) -> Bool {
        guard isActive, try Self.isIncomplete(pin) else { return false }
        let status = try pin.status()
        let isDirectory = status.st_mode & S_IFMT == S_IFDIR
        let isDone = try withExclusiveAccess(to: FileIdentity(status)) { () throws(StoreError) -> Bool in
            // Another thread may have completed it already.
            guard try Self.isIncomplete(pin) else { return false }
            if isDirectory {
                try OpenDirectory.makeRecord(of: pin, class: parentClass, in: store)
            } else {
                try StoredHeader.make(of: pin, class: parentClass, in: store)
            }
            return true
        }
        if isDone { reportCompleted(isDirectory, shownPath()) }
        return isDone
    }

    private func reportCompleted(_ isDirectory: Bool, _ path: [UInt8]) {
        let number = counters.completedObjects.add(1, ordering: .relaxed).newValue
        guard number <= Self.mostLines else { return }
        let what = isDirectory ? "a directory without a record" : "a file without a header"
        let shown = FilePath(String(decoding: path, as: UTF8.self)).shown
        onCompleted.notify("\(what) was completed as an empty one after an unclean end: \(shown)")
        if number == Self.mostLines { onCompleted.notify("there may be more of these: 'vaultfs status' counts them") }
    }

    /// Completes the object of an entry, if the entry's name authenticates in the directory.
    /// - Parameters:
    ///   - parent: the directory, open for reading or O_PATH.
    ///   - shownPath: the entry's path, for the daemon's log.
    /// - Returns: false if there is nothing to complete.
    /// - Throws: `.locked` if the key of the class is forgotten; `.system` with errno.
    @discardableResult
    package func complete(
        _ entry: Component, in parent: Descriptor, shownPath: @autoclosure () -> [UInt8], in store: Store
    ) throws(StoreError) -> Bool {
        let pin = try Descriptor(at: parent, entry, flags: linux_O_PATH)
        guard try Self.isIncomplete(pin),
            let parentClass = try Self.protectionClass(of: parent, naming: entry, store.keyRing)
        else { return false }
        return try complete(pin, class: parentClass, shownPath: shownPath(), in: store)
    }

    /// Returns the class of a directory in which an entry authenticates as a name, or nil if it does not.
    /// - Throws: `.locked` if the key of the class is forgotten.
    package static func protectionClass(
        of directory: Descriptor, naming entry: Component, _ keyRing: KeyRing
    ) throws(StoreError) -> ProtectionClass? {
        let record: DirectoryRecord
        let keys: DirectoryKeys
        do throws(StoreError) {
            (record, keys) = try OpenDirectory.openRecord(of: directory, keyRing)
        } catch .damaged {
            return nil
        }
        // Without its sidecar, a long name does not decode.
        let blob = EntryName.kind(of: entry.bytes) == .longName ? try directory.readSidecar(of: entry) : nil
        return EntryName.decode(entry.bytes, sidecarBlob: blob, keys: keys) == nil ? nil : record.protectionClass
    }

    /// Returns true if an object lacks its header or record in the way that a power cut leaves it: a regular file under
    /// 128 bytes, or a directory with at most the beginning of a record and the remains of interrupted operations.
    /// - Throws: `.system` with errno.
    package static func isIncomplete(_ pin: Descriptor) throws(StoreError) -> Bool {
        let status = try pin.status()
        switch status.st_mode & S_IFMT {
        case S_IFREG:
            if status.st_size < off_t(FileHeader.size) { return true }
            // Check for zeros, because the size can reach the disk before the header.
            return try pin.reopened(flags: O_RDONLY | O_NONBLOCK).read(at: 0, count: FileHeader.size).allSatisfy {
                $0 == 0
            }
        case S_IFDIR:
            if let record = try pin.statusIfPresent(of: OpenDirectory.recordEntry),
                record.st_mode & S_IFMT != S_IFREG || record.st_size >= off_t(DirectoryRecord.size)
            {
                return false
            }
            var reader = DirectoryReader(try pin.openedForReading())
            while let found = try reader.next() {
                if found != OpenDirectory.recordEntry && EntryName.kind(of: found.bytes) != .temporary {
                    return false
                }
            }
            return true
        default: return false
        }
    }

    // MARK: The walk

    /// Begins the walk. Returns false if it is unnecessary, already running, or if the mount is stopping.
    package func begin() -> Bool {
        state.update { state in
            guard !state.isStopping && !state.isOver && !state.isRunning else { return false }
            state.isRunning = true
            return true
        }
    }

    /// Ends the walk, after its completion or `stop`.
    package func end() { state.update { $0.isRunning = false } }

    /// Stops the walk, and waits for its end.
    package func stop() {
        state.update { $0.isStopping = true }
        state.wait { $0.isRunning ? nil : () }
    }

    package var isStopping: Bool { state.access { $0.isStopping } }

    /// Waits while `isLocked` returns true. Returns false if `stop` was called.
    package func wait(while isLocked: () -> Bool) -> Bool {
        while isLocked() {
            let deadline = ContinuousClock.now + .milliseconds(Self.pause)
            if state.wait(until: deadline, for: { $0.isStopping ? () : nil }) != nil { return false }
        }
        return !isStopping
    }

    /// Runs `body`, a rename of something that a running walk may miss in both directories.
    /// - Throws: the error of `body`.
    package func countMove<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        state.access { $0.moving += 1 }
        defer {
            state.access { state in
                state.moving -= 1
                state.moves += 1
            }
        }
        return try body()
    }

    /// Number of renames so far, for `finish`.
    package var moves: Int { state.access { $0.moves } }

    /// Registers that everything has been checked and completed, durably, so that the vault's end will be a clean one.
    /// - Parameter moves: the renames before the walk. If there were others since, returns false.
    package func finish(ifStill moves: Int) -> Bool {
        let isOver = state.update { state in
            if state.moves == moves && state.moving == 0 { state.isOver = true }
            return state.isOver
        }
        if isOver { writerLock.clearUncleanEnd() }
        return isOver
    }
}
