internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// `vaultfs.rekey` in the root of a vault that is open for writing: steps of a rekey that a kill must not cut in two. One
/// thread's.
struct RekeyIntentFile {
    static let entry = Array("vaultfs.rekey".utf8)
    /// Blocks for the file itself, the record, and what a directory grows by.
    private static let leastSpace = 1 << 18

    let notes: RekeyNotes
    let cipher: SivCipher
    let before: RekeyHook
    private var root: Descriptor { notes.root }
    private var keyRing: KeyRing { notes.keyRing }

    /// Nil where no rekey is unfinished: then there is no such file.
    init?(notes: RekeyNotes, before: @escaping RekeyHook = { _ in }) {
        guard let cipher = notes.keyRing.intentCipher else { return nil }
        self.notes = notes
        self.cipher = cipher
        self.before = before
    }

    /// Whether a step is half done.
    static func isThere(in root: Descriptor) throws(StoreError) -> Bool {
        do throws(StoreError) {
            _ = try root.status(of: entry)
            return true
        } catch .system(.noSuchFileOrDirectory) {
            return false
        }
    }

    /// Ends what a killed rekey has left half done in a vault that is opened for writing.
    /// - Throws: as `rollForward`.
    static func settle(root: Descriptor, keyRing: KeyRing, hold: WriterLock?) throws(StoreError) {
        let notes = try RekeyNotes(root: root, keyRing: keyRing) { () throws(StoreError) in try hold?.verify() }
        guard let notes else { return }
        try RekeyIntentFile(notes: notes, before: { (_) throws(StoreError) in try hold?.verify() })?.rollForward()
    }

    /// Does the step that was begun and not ended, where there is one; where that cannot be done, undoes it. Puts back what
    /// a kill has left changed of modes and times.
    /// - Throws: `.damaged` for a file that does not authenticate, which is never followed, and where it can be neither done
    ///   nor undone: then it is there still.
    private func rollForward() throws(StoreError) {
        let noted = try notes.open()
        // The next rekey tries again what was undone, and says of what it is.
        if let intent = try read() { _ = try settle(intent) }
        notes.restoreRoot()
        try notes.restore(noted)
    }

    /// Writes down what is to be done, does it, and forgets it.
    /// - Parameter space: bytes that it may take: where there are not so many, nothing is begun.
    /// - Throws: `ENOSPC` before anything is changed. Whatever else: all was undone, unless the file is there.
    func carryOut(_ intent: RekeyIntent, space: Int = 0) throws(StoreError) {
        let reserve = try reserve(space + Self.leastSpace)
        defer { _ = withCString(reserve) { unlinkat(root.fd, $0, 0) } }
        try write(intent)
        if let failure = try settle(intent) { throw failure }
    }

    /// Does the step, or undoes it, and forgets it. The file stays until one of them is done wholly: a kill leaves what
    /// either can go on with.
    /// - Returns: why it was undone.
    private func settle(_ intent: RekeyIntent) throws(StoreError) -> StoreError? {
        var failure: StoreError?
        do throws(StoreError) {
            try perform(intent)
        } catch {
            // Going back would meet the same, no memory; but it may need no space.
            let isFull = [.system(.noSpace), .system(.diskQuotaExceeded)].contains(error)
            if error.endsRekey && !isFull { throw error }
            failure = error
            do throws(StoreError) { try undo(intent) } catch let second {
                if isFull { throw error }
                throw .damaged(
                    "vaultfs.rekey: a step in \(intent.shownPlace) can neither be done (\(error.reason)) nor undone "
                        + "(\(second.reason))")
            }
        }
        try end(intent)
        return failure
    }

    /// Makes a file that takes the space, so that a step which is under way does not run out of it.
    private func reserve(_ space: Int) throws(StoreError) -> [UInt8] {
        let temporary = Array(try VaultDirectory.temporaryEntry().utf8)
        let file = try Descriptor(at: root.fd, temporary, flags: O_CREAT | O_EXCL | O_WRONLY, mode: 0o600)
        if linux_fallocate(file.fd, 0, 0, Int64(space)) != 0 {
            let error = currentErrno()
            // A store without fallocate(2) promises nothing.
            if error == .noSpace || error == .diskQuotaExceeded {
                _ = withCString(temporary) { unlinkat(root.fd, $0, 0) }
                throw .system(error)
            }
        }
        return temporary
    }

    private func perform(_ intent: RekeyIntent) throws(StoreError) {
        do throws(StoreError) {
            try attempt(intent)
        } catch {
            guard [.system(.noSpace), .system(.diskQuotaExceeded)].contains(error) else { throw error }
            try freeReserve(except: intent)
            try attempt(intent)
        }
    }

    /// Removes the temporary files in the root that the step does not need: what it was to run out of is in one.
    private func freeReserve(except intent: RekeyIntent) throws(StoreError) {
        for entry in try root.allEntries() where EntryName.kind(of: entry) == .temporary {
            if case .links(let step) = intent, step.temporary == entry { continue }
            _ = withCString(entry) { unlinkat(root.fd, $0, 0) }
        }
    }

    /// What a reader is told, which must not read the vault: what is half done, and where.
    func refusal() -> StoreError {
        let place = (try? read()).flatMap { $0 }.map { " in \($0.shownPlace)" } ?? ""
        return .damaged("vaultfs.rekey: a step of a rekey\(place) is half done: it is ended by an opening for writing")
    }

    private func read() throws(StoreError) -> RekeyIntent? {
        let file: Descriptor
        do throws(StoreError) {
            file = try Descriptor(at: root.fd, Self.entry, flags: O_RDONLY | O_NONBLOCK)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        } catch .system(.tooManySymbolicLinkLevels) {
            throw .damaged("vaultfs.rekey: not a regular file")
        }
        guard try file.status().st_mode & S_IFMT == S_IFREG,
            let bytes = try file.readToEnd(limit: RekeyIntent.maximumSize)
        else { throw .damaged("vaultfs.rekey: not a regular file of a size that is written") }
        do throws(FormatError) {
            return try RekeyIntent.parse(bytes, epoch: keyRing.epochs.current, cipher: cipher)
        } catch {
            throw StoreError(error)
        }
    }

    private func write(_ intent: RekeyIntent) throws(StoreError) {
        let bytes: [UInt8]
        do throws(FormatError) {
            bytes = try intent.serialized(epoch: keyRing.epochs.current, cipher: cipher)
        } catch {
            throw StoreError(error)
        }
        guard bytes.count <= RekeyIntent.maximumSize else { throw .system(.fileTooLarge) }
        let temporary = Array(try VaultDirectory.temporaryEntry().utf8)
        try before(.writeIntent)
        do throws(StoreError) {
            try root.makeFile(
                temporary, of: bytes, like: try root.status(of: Array(VaultDirectory.configurationEntry.utf8)))
            try before(.placeIntent)
            try OpenDirectory.rename(temporary, from: root.fd, to: root.fd, as: Self.entry, flags: 0)
        } catch {
            _ = withCString(temporary) { unlinkat(root.fd, $0, 0) }
            throw error
        }
        do throws(StoreError) { try root.synchronize(dataOnly: false) } catch {
            // Nothing was begun. Only what was placed here: where the vault was lost, the file is another's.
            _ = withCString(Self.entry) { unlinkat(root.fd, $0, 0) }
            throw error
        }
    }

    private func attempt(_ intent: RekeyIntent) throws(StoreError) {
        switch intent {
        case .directory(let step): try RekeyDirectoryStep(step: step, notes: notes, before: before).perform()
        case .links(let step): try RekeyLinksStep(step: step, notes: notes, before: before).perform()
        }
    }

    private func undo(_ intent: RekeyIntent) throws(StoreError) {
        switch intent {
        case .directory(let step): try RekeyDirectoryStep(step: step, notes: notes, before: before).undo()
        case .links(let step): try RekeyLinksStep(step: step, notes: notes, before: before).undo()
        }
    }

    private func end(_ intent: RekeyIntent) throws(StoreError) {
        try before(.removeIntent)
        try withCString(Self.entry) { (name) throws(StoreError) in
            _ = try retrying { unlinkat(root.fd, name, 0) }
        }
        // Durable before anything that it speaks of gets another name, or goes.
        try root.synchronize(dataOnly: false)
        if case .links(let step) = intent { _ = withCString(step.temporary) { unlinkat(root.fd, $0, 0) } }
    }
}

extension RekeyIntent {
    /// The backing directory, or one of them, that is being changed, for messages.
    fileprivate var shownPlace: String {
        let path: [[UInt8]] =
            switch self {
            case .directory(let step): step.path
            case .links(let step): step.paths.first?.dropLast() ?? []
            }
        return path.isEmpty ? "the vault's root" : path.map(RekeyNames.shown).joined(separator: "/")
    }
}

extension Descriptor {
    /// All entries of this directory but `.` and `..`, before any is changed: reading one that changes may leave some out.
    func allEntries() throws(StoreError) -> [[UInt8]] {
        var reader = DirectoryReader(try Descriptor(at: fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY))
        var entries: [[UInt8]] = []
        while let entry = try reader.next() { entries.append(entry.name) }
        return entries
    }
}
