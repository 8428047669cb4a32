internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// `vaultfs.modes` in the root of a vault that is being rekeyed: what directories and files were that were opened to their
/// owner for a moment, or in which entries are replaced, for whoever opens the vault after a kill. Not durable: a power cut
/// may leave the mode or the times of what was worked on changed. Any thread.
final class RekeyNotes: Sendable {
    static let entry = Array("vaultfs.modes".utf8)
    /// More than is written: it is cut back whenever nothing is being worked on.
    private static let maximumSize = 1 << 28

    private struct State {
        var file: Descriptor?
        /// Where the next one goes, and where those begin that are cut off when none of them is needed.
        var end: UInt64 = 0
        var base: UInt64 = 0
        var users = 0
    }

    let root: Descriptor
    let keyRing: KeyRing
    private let cipher: SivCipher
    private let rootStatus: stat
    private let admit: @Sendable () throws(StoreError) -> Void
    private let state = Mutex(State())
    /// Held while something is opened to its owner: by another of its names a second thread may come to the same file, and
    /// would take the mode of that moment for its own, or find it closed again.
    private let opening = Mutex<Void>(())

    /// Nil where no rekey is unfinished.
    /// - Parameter admit: asked before anything is changed.
    init?(
        root: Descriptor, keyRing: KeyRing, admit: @escaping @Sendable () throws(StoreError) -> Void
    ) throws(StoreError) {
        guard let cipher = keyRing.intentCipher else { return nil }
        self.root = root
        self.keyRing = keyRing
        self.cipher = cipher
        self.admit = admit
        rootStatus = try root.status()
    }

    /// Notes what something is, before that is changed; in front of the first, what the root is. `release` follows when it is
    /// put back.
    func note(_ path: [[UInt8]], _ status: stat) throws(StoreError) {
        try admit()
        let record = try serialized(path, status)
        try state.withLock { (state) throws(StoreError) in
            let file: Descriptor
            if let opened = state.file { file = opened } else { file = try make(&state) }
            // What a failure leaves of it does not authenticate.
            try record.withBytes { (bytes) throws(StoreError) in try file.write(bytes, at: state.end) }
            state.end += UInt64(record.count)
            state.users += 1
        }
    }

    func release() {
        state.withLock { state in
            state.users -= 1
            guard state.users == 0, let file = state.file, (try? admit()) != nil,
                (try? file.truncate(to: state.base)) != nil
            else { return }
            state.end = state.base
        }
    }

    /// As `Descriptor.reopenedForReading`, noted where the mode has to be changed for it.
    func reopenForReading(_ pin: Descriptor, at path: [[UInt8]]) throws(StoreError) -> Descriptor {
        try noting(pin, at: path) { () throws(StoreError) in try pin.reopenedForReading() }
    }

    /// As `Descriptor.whileReadable`, noted where the mode has to be changed for it.
    func whileReadable<Result: Sendable>(
        _ file: Descriptor, at path: [[UInt8]], _ body: () throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        try noting(file, at: path) { () throws(StoreError) in try file.whileReadable(body) }
    }

    private func noting<Result: Sendable>(
        _ file: Descriptor, at path: [[UInt8]], _ body: () throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        // To root nothing is closed.
        if geteuid() == 0 { return try body() }
        return try opening.withLock { (_) throws(StoreError) -> Result in
            let status = try file.status()
            guard status.denies(0o400) else { return try body() }
            try note(path, status)
            defer { release() }
            return try body()
        }
    }

    /// The root's times, which what is made and removed in it has moved. Best effort.
    func restoreRoot() { futimens(root.fd, [rootStatus.st_atim, rootStatus.st_mtim]) }

    /// When all is put back: they are needed no more.
    func end(removing: Bool) throws(StoreError) {
        try admit()
        if removing { _ = withCString(Self.entry) { unlinkat(root.fd, $0, 0) } }
        restoreRoot()
        try state.withLock { (state) throws(StoreError) in
            guard let file = state.file else { return }
            // Durable: it is not to come back when modes were changed since.
            try file.truncate(to: 0)
            try file.synchronize(dataOnly: false)
            (state.file, state.end, state.base) = (nil, 0, 0)
        }
    }

    // MARK: After a kill

    /// Opens what a killed rekey has left, so that what is noted now comes after it: of two notes of a path the first counts.
    /// - Returns: the notes, of each path the first; empty where there is nothing to put back.
    func open() throws(StoreError) -> [RekeyNote] {
        let file: Descriptor
        do throws(StoreError) {
            guard try root.status(of: Self.entry).st_size > 0 else { return [] }
            file = try Descriptor(at: root.fd, Self.entry, flags: O_RDWR | O_NONBLOCK)
        } catch .system(let errno) where [.noSuchFileOrDirectory, .tooManySymbolicLinkLevels].contains(errno) {
            return []
        }
        guard try file.status().st_mode & S_IFMT == S_IFREG, let bytes = try file.readToEnd(limit: Self.maximumSize)
        else { return [] }
        let (notes, count) = RekeyNote.parse(bytes, epoch: keyRing.epochs.current, cipher: cipher)
        if notes.isEmpty { return [] }
        state.withLock { $0 = State(file: file, end: UInt64(count), base: UInt64(count)) }
        var paths: Set<[[UInt8]]> = []
        return notes.filter { paths.insert($0.path).inserted }
    }

    /// Puts back what is noted, and sweeps what a kill has left in the directories: a mount would, and move their times. The
    /// caller has ended the step that was half done.
    func restore(_ notes: [RekeyNote]) throws(StoreError) {
        // The innermost first: those around it may be closed.
        for note in notes.sorted(by: { $0.path.count > $1.path.count }) {
            do throws(StoreError) { try restore(note) } catch {
                // Best effort: it may be gone, or be another's by now.
                if error.endsRekey { throw error }
            }
        }
        try state.withLock { (state) throws(StoreError) in
            try state.file?.truncate(to: 0)
            try state.file?.synchronize(dataOnly: false)
        }
    }

    private func restore(_ note: RekeyNote) throws(StoreError) {
        let pin: Descriptor
        if let entry = note.path.last {
            let parent = try RekeyPlace.at(note.path.dropLast(), self)
            pin = try withExtendedLifetime(parent) { () throws(StoreError) in
                try Descriptor(at: parent.descriptor.fd, entry, flags: linux_O_PATH)
            }
        } else {
            pin = try Descriptor(at: root.fd, [UInt8(ascii: ".")], flags: linux_O_PATH)
        }
        let status = try pin.status()
        guard [S_IFDIR, S_IFREG].contains(status.st_mode & S_IFMT) else { return }
        if status.st_mode & S_IFMT == S_IFDIR { try? RekeyPlace.at(note.path, self).sweep() }
        if status.st_mode & 0o7777 != note.mode { try pin.changePinnedMode(to: note.mode) }
        // As for the mode.
        try retrying { utimensat(AT_FDCWD, "/proc/self/fd/\(pin.fd)", note.times.timespecs, 0) }
    }

    // MARK: The file

    /// Whole from the start: who comes after a kill must be able to read it.
    private func make(_ state: inout State) throws(StoreError) -> Descriptor {
        let record = try serialized([], rootStatus)
        let temporary = Array(try VaultDirectory.temporaryEntry().utf8)
        do throws(StoreError) {
            try root.makeFile(
                temporary, of: record, like: try root.status(of: Array(VaultDirectory.configurationEntry.utf8)))
            try OpenDirectory.rename(temporary, from: root.fd, to: root.fd, as: Self.entry, flags: 0)
        } catch {
            _ = withCString(temporary) { unlinkat(root.fd, $0, 0) }
            throw error
        }
        let file = try Descriptor(at: root.fd, Self.entry, flags: O_RDWR | O_NONBLOCK)
        (state.file, state.end, state.base) = (file, UInt64(record.count), UInt64(record.count))
        return file
    }

    private func serialized(_ path: [[UInt8]], _ status: stat) throws(StoreError) -> [UInt8] {
        do throws(FormatError) {
            return try RekeyNote(path: path, mode: status.st_mode & 0o7777, times: status.rekeyTimes).serialized(
                epoch: keyRing.epochs.current, cipher: cipher)
        } catch {
            throw StoreError(error)
        }
    }
}

extension stat {
    /// atime and mtime, in seconds and nanoseconds.
    var rekeyTimes: [UInt64] {
        [st_atim, st_mtim].flatMap {
            [UInt64(bitPattern: Int64($0.tv_sec)), UInt64(bitPattern: Int64($0.tv_nsec))]
        }
    }
}

extension [UInt64] {
    /// The same for futimens(2).
    var timespecs: [timespec] {
        stride(from: 0, to: count - 1, by: 2).map {
            timespec(tv_sec: Int(truncatingIfNeeded: self[$0]), tv_nsec: Int(clamping: self[$0 + 1]))
        }
    }
}
