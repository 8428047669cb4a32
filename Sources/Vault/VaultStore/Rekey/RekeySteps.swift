internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
package import VaultFormat

/// Steps of a rekey that take several renames, but survive a kill: in the root of a vault open for writing,
/// `vaultfs.rekey` describes a step until it is done or undone.
package struct RekeySteps: Sendable {
    private static let entry: Component = "vaultfs.rekey"
    /// Bytes for the file itself, the record, and the growth of a directory.
    private static let leastSpace = 1 << 18

    let root: Descriptor
    let keyRing: KeyRing
    package let before: RekeyHook
    private let cipher: SivCipher

    /// Nil unless a rekey is unfinished, because only then the vault can have this file.
    package init?(root: Descriptor, keyRing: KeyRing, before: @escaping RekeyHook = { _ in }) {
        guard let cipher = keyRing.intentCipher else { return nil }
        (self.root, self.keyRing, self.before, self.cipher) = (root, keyRing, before, cipher)
    }

    /// Returns true if a step is incomplete.
    /// - Throws: errno of fstatat(2), except `ENOENT`.
    package static func isIncomplete(in root: Descriptor) throws(StoreError) -> Bool {
        try root.statusIfPresent(of: entry) != nil
    }

    /// Throws if a step is incomplete, because the vault is unreadable then. The error names the directory of the step.
    static func checkComplete(in root: Descriptor, keyRing: KeyRing) throws(StoreError) {
        guard try isIncomplete(in: root), let steps = RekeySteps(root: root, keyRing: keyRing) else { return }
        let directory = (try? steps.read()).flatMap { $0 }.map { " in \($0.shownDirectory)" } ?? ""
        throw .damaged(
            "vaultfs.rekey: a step of a rekey\(directory) is incomplete: mount the vault for writing, which completes it"
        )
    }

    /// Completes or undoes a step left by a killed rekey, when the vault is opened for writing.
    /// - Throws: `.damaged` for a file that does not authenticate, and if the step can be neither done nor undone. Then
    ///   the file stays.
    static func finishOrUndo(in root: Descriptor, keyRing: KeyRing, writerLock: WriterLock?) throws(StoreError) {
        let steps = RekeySteps(root: root, keyRing: keyRing) { (_) throws(StoreError) in try writerLock?.verify() }
        guard let steps, let intent = try steps.read() else { return }
        let before = try root.status()
        // Ignore the reason if it was undone, because the next rekey tries it again and reports the reason.
        _ = try steps.finishOrUndo(intent)
        futimens(root.fd, [before.st_atim, before.st_mtim])
    }

    /// Carries out a step: writes the intent, does the step, and removes the intent.
    /// - Parameter space: bytes that the step may need. It begins only if they are free.
    /// - Throws: `ENOSPC` before any change. After any other error the step is undone, unless `vaultfs.rekey` still
    ///   exists.
    package func carryOut(_ intent: RekeyIntent, space: Int = 0) throws(StoreError) {
        let reserve = try reserve(space + Self.leastSpace)
        defer { root.removeQuietly(reserve) }
        try write(intent)
        if let failure = try finishOrUndo(intent) { throw failure }
    }

    /// Does the step or undoes it, and removes the intent. The intent stays until either is complete. Both can continue
    /// after a kill.
    /// - Returns: the error because of which the step was undone.
    private func finishOrUndo(_ intent: RekeyIntent) throws(StoreError) -> StoreError? {
        var failure: StoreError?
        do throws(StoreError) {
            try performInReserve(intent)
        } catch {
            // Without memory undoing would fail as well. Without space it may succeed.
            if error.endsRekey && !error.isNoSpace { throw error }
            failure = error
            do throws(StoreError) { try perform(intent, isUndoing: true) } catch let second {
                if error.isNoSpace { throw error }
                throw .damaged(
                    "vaultfs.rekey: a step in \(intent.shownDirectory) can neither be done (\(error.reason)) nor undone "
                        + "(\(second.reason))")
            }
        }
        try before(.removeIntent)
        try root.remove(Self.entry)
        // Sync before the objects named in the intent are renamed or removed.
        try root.synchronize(dataOnly: false)
        if case .links(let step) = intent { root.removeQuietly(step.temporary) }
        return failure
    }

    /// Makes a temporary file of the size needed by a step. Removing it makes room if the step runs out of space.
    private func reserve(_ space: Int) throws(StoreError) -> Component {
        let temporary = try VaultDirectory.temporaryEntry()
        let file = try Descriptor(at: root, temporary, flags: O_CREAT | O_EXCL | O_WRONLY, mode: 0o600)
        try root.withTemporary(temporary) { () throws(StoreError) in
            do throws(StoreError) { try retrying { linux_fallocate(file.fd, 0, 0, Int64(space)) } } catch {
                // Ignore other errors: a store without fallocate(2) cannot reserve space.
                if error.isNoSpace { throw error }
            }
        }
        return temporary
    }

    private func performInReserve(_ intent: RekeyIntent) throws(StoreError) {
        do throws(StoreError) {
            try perform(intent, isUndoing: false)
        } catch {
            guard error.isNoSpace else { throw error }
            // Remove the temporary files in the root that the step does not need, among them the reserve.
            for entry in try root.allEntries() where OpenDirectory.isLeftover(entry) {
                if case .links(let step) = intent, step.temporary == entry { continue }
                root.removeQuietly(entry)
            }
            try perform(intent, isUndoing: false)
        }
    }

    private func perform(_ intent: RekeyIntent, isUndoing: Bool) throws(StoreError) {
        switch intent {
        case .directory(let step): try RekeyDirectoryStep(step, in: self, isUndoing: isUndoing).perform()
        case .links(let step):
            let step = RekeyLinksStep(step: step, steps: self)
            if isUndoing { try step.undo() } else { try step.perform() }
        }
    }

    /// Opens the directory at a path of backing entries from the vault's root. Follows no link.
    /// - Throws: `.damaged`; `.locked`; `.system` with errno.
    package func directory(at path: some Sequence<Component>) throws(StoreError) -> RekeyDirectory {
        var directory = try RekeyDirectory(root.openedForReading(), keyRing)
        for entry in path { directory = try directory.inner(entry) }
        return directory
    }

    private func read() throws(StoreError) -> RekeyIntent? {
        let bytes: [UInt8]
        do throws(StoreError) {
            bytes = try root.readFile(Self.entry, limit: RekeyIntent.maximumSize)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        } catch .damaged(let reason) {
            throw .damaged("vaultfs.rekey: \(reason)")
        }
        return try StoreError.ofFormat(RekeyIntent.parse(bytes, epoch: keyRing.epochs.current, cipher: cipher))
    }

    private func write(_ intent: RekeyIntent) throws(StoreError) {
        let bytes = try StoreError.ofFormat(intent.serialized(epoch: keyRing.epochs.current, cipher: cipher))
        guard bytes.count <= RekeyIntent.maximumSize else { throw .system(.fileTooLarge) }
        try install(
            bytes, as: Self.entry, in: root, like: try root.status(of: VaultDirectory.configurationEntry),
            writing: .writeIntent, renaming: .renameIntent)
        do throws(StoreError) { try root.synchronize(dataOnly: false) } catch {
            // The step has not begun.
            root.removeQuietly(Self.entry)
            throw error
        }
    }
}

extension RekeySteps {
    /// Makes a durable file of these bytes, and renames it to `entry`. Does not synchronize the directory.
    /// - Parameters:
    ///   - status: the file's owner and mode.
    ///   - isReplacing: as for `Descriptor.install`.
    ///   - writing, renaming: passed to `before` ahead of the file's creation and of its rename.
    func install(
        _ bytes: [UInt8], as entry: Component, in directory: Descriptor, like status: stat, isReplacing: Bool = false,
        writing: RekeyPoint, renaming: RekeyPoint? = nil
    ) throws(StoreError) {
        let temporary = try VaultDirectory.temporaryEntry()
        try before(writing)
        try directory.install(
            bytes, as: entry, by: temporary, owner: Owner(status), mode: status.st_mode & 0o7777,
            isReplacing: isReplacing
        ) { () throws(StoreError) in
            if let renaming { try before(renaming) }
        }
    }
}

extension RekeyIntent {
    /// The changed backing directory, or one of them, for messages.
    fileprivate var shownDirectory: String {
        let path: [Component] =
            switch self {
            case .directory(let step): step.path
            case .links(let step): step.paths.first?.dropLast() ?? []
            }
        return path.isEmpty ? "the vault's root" : path.map(RekeyDirectory.shown).joined(separator: "/")
    }
}

extension StoreError {
    /// True if the error would recur for every further object.
    package var endsRekey: Bool {
        switch self {
        case .system(let errno), .refused(let errno), .unavailable(let errno, _):
            errno.isNoSpace || [.readOnlyFileSystem, .noMemory, .tooManyOpenFiles, .canceled].contains(errno)
        case .damaged: false
        case .crypto: true
        }
    }
}

/// Steps of a rekey at which a test can inspect the vault or inject a failure.
package enum RekeyPoint: CaseIterable, Sendable {
    case makeObject, fillObject, replaceEntry
    case writeIntent, renameIntent, removeIntent
    case linkName, renameLink
    case writeSidecar, renameName, removeSidecar
    case removeAttribute, setAttribute
    case writeRecord, renameRecord
    case finish
}

/// Called before each step that changes the vault. If it throws, the step fails with its error. Any thread.
package typealias RekeyHook = @Sendable (RekeyPoint) throws(StoreError) -> Void
