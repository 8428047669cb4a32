internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto
internal import VaultFormat
package import VaultStore

/// A check of everything in a vault that a key can prove, without changes: `vaultfs.json`, directory records, names,
/// headers, lengths, chunks, the log, links and attributes.
///
/// While a daemon has the vault, its changes may look like damage for a moment. So a finding then counts only if two
/// checks in a row make it, and notes about the daemon's work are omitted. The walk uses directory descriptors, one for
/// each level, and follows no link. Findings are passed on at once, so a wide tree needs no more memory. Used by one
/// thread. `run` is called once.
package final class Verifier {
    /// Maximum number of remembered files with several names. Each of them is read once.
    private static let rememberedFiles = 1 << 16
    /// Maximum number of checks of a constantly changing object.
    private static let maximumChecks = 5
    /// Time between two checks, long enough for a request of the daemon to complete.
    private static let pause: Duration = .milliseconds(200)

    let keyRing: KeyRing
    let layout: ChunkLayout
    let workspace: Workspace
    var totals = VerifierTotals()
    package internal(set) var keys = VerifierKeys()
    /// The directories from the root to the one being checked.
    var stack: [VerifierFrame] = []
    /// The identities of the directories in the stack.
    private var secretsAbove: Set<[UInt8]> = []
    private var changes: FoundChanges?
    /// True if the log has entries of files that were sealed later.
    var hasOutdatedEntries = false
    /// True if the log has changes of a file that cannot be opened.
    var hasLostChanges = false
    /// True if a daemon may be writing.
    package let isInUse: Bool
    /// True if files and directories left incomplete by a power cut will be completed, by the next mount or by the
    /// current one (`Completion`).
    let isCompleted: Bool
    /// Checks a large file together with the thread of the walk.
    private(set) var helper: RequestHelper?
    /// The check whose findings await confirmation. Nil while findings are handed out at once.
    private var current: Check?
    private let directory: VaultDirectory
    private var filesSeen: Set<FileIdentity> = []
    private var onFinding: (VerifierFinding) -> Void = { _ in }
    private var onProgress: (VerifierTotals) -> Void = { _ in }

    /// Verifies the MAC of `vaultfs.json`.
    /// - Parameters:
    ///   - directory: locked by the caller, so that no daemon writes, unless `isInUse`.
    ///   - isInUse: true if a daemon has the vault and may write.
    ///   - isCompleting: true if the daemon is completing the remains of an unclean end.
    /// - Throws: `damaged` if the MAC does not verify; `system`, `format` if memory or libcrypto fails.
    package init(
        directory: VaultDirectory, masterKey: SecretBytes, isInUse: Bool = false, isCompleting: Bool = false
    ) throws(VaultError) {
        try directory.authenticate(masterKey: masterKey)
        try directory.checkNoRekeyStep()
        self.directory = directory
        self.isInUse = isInUse
        isCompleted = isInUse ? isCompleting : directory.followsUncleanEnd
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        self.keyRing = keyRing
        layout = keyRing.layout
        workspace = try VaultError.wrapping("cannot verify", directory.path) { () throws(StoreError) in
            try Workspace(layout: keyRing.layout)
        }
    }

    /// Checks the whole vault.
    /// - Parameters:
    ///   - onFinding: called at once with each confirmed finding.
    ///   - onProgress: called with the totals so far, after every object and every batch of chunks.
    /// - Throws: `system` if the root cannot be read.
    package func run(
        onFinding: @escaping (VerifierFinding) -> Void, onProgress: @escaping (VerifierTotals) -> Void = { _ in }
    ) throws(VaultError) -> VerifierTotals {
        self.onFinding = onFinding
        self.onProgress = onProgress
        try VaultError.wrapping("cannot verify", directory.path) { () throws(StoreError) in
            let root = try directory.descriptor.openedForReading()
            let changes = FoundChanges(root, keyRing, isFollowing: isInUse)
            if let fault = changes.current.fault {
                report(.damaged, VerifierObject(entry: RedoLog.fileName), fault, remedy: .clearLog)
            }
            self.changes = changes
            let layout = self.layout
            try withRequestHelper { () throws(StoreError) in
                try Workspace(layout: layout)
            } _: { (helper) throws(StoreError) in
                self.helper = helper
                defer { self.helper = nil }
                walk(root)
            }
            if hasLostChanges {
                report(
                    .damaged, VerifierObject(entry: RedoLog.fileName), "has changes of a file whose header is damaged",
                    remedy: .clearLog)
            }
            // If the vault is in use, its writer may have sealed a file meanwhile.
            if hasOutdatedEntries && !isInUse {
                report(.damaged, VerifierObject(entry: RedoLog.fileName), LogRecovery.outdated, remedy: .clearLog)
            }
        }
        return totals
    }

    /// Returns a file's changes in the log. In use, they may be a second old, but a repeated check gets the newest.
    func logged(_ fileID: UInt64) -> FileLog.Content? {
        guard let found = changes?.refreshed(isRetry: current?.isRepeated == true), let changes = found.files[fileID]
        else {
            return nil
        }
        return FileLog.Content(changes: changes, log: found.log)
    }

    /// Returns true for a conflict copy, and for everything in the conflict copy of a directory.
    func isInConflictCopy(_ object: VerifierObject?) -> Bool {
        object?.isConflictCopy == true || stack.last?.isInConflictCopy == true
    }

    func progress() { onProgress(totals) }

    /// Returns false if the file was checked already, under another name.
    func isFirstVisit(_ status: stat) -> Bool {
        guard status.st_nlink > 1 else { return true }
        let identity = FileIdentity(status)
        if current?.file == identity { return true }
        if filesSeen.contains(identity) { return false }
        current?.file = identity
        if filesSeen.count < Self.rememberedFiles { filesSeen.insert(identity) }
        return true
    }

    /// Counts a finding and passes it on, after its confirmation.
    /// - Parameter object: an entry of the directory being checked. Nil for the directory itself.
    func report(
        _ kind: VerifierFinding.Kind, _ object: VerifierObject?, _ message: String, attribute: [UInt8]? = nil,
        at plaintextOffset: UInt64? = nil, count: UInt64? = nil, remedy: Remedy? = nil
    ) {
        if isInUse && kind.isTransient { return }
        let shown = stack.compactMap(\.object?.shown) + (object.map { [$0.shown] } ?? [])
        let backing = stack.compactMap(\.object?.entry) + (object.map { [$0.entry] } ?? [])
        // A conflict copy must not be changed, so it has no remedy.
        let remedy = isInConflictCopy(object) ? nil : remedy
        let finding = VerifierFinding(
            kind: kind, path: Array(shown.joined(separator: [UInt8(ascii: "/")])),
            backingPath: Array(backing.joined(separator: [UInt8(ascii: "/")])), attribute: attribute,
            plaintextOffset: plaintextOffset, plaintextCount: count, message: message, remedy: remedy)
        if current == nil { handOut(finding) } else { current?.findings.append(finding) }
    }

    private func handOut(_ finding: VerifierFinding) {
        if finding.kind.isNote { totals.notes += 1 } else { totals.damage += 1 }
        onFinding(finding)
    }

    /// Runs `check` of an object. While a daemon has the vault, repeats it until it finds nothing, or the same twice.
    /// - Parameter isThere: returns false for a removed object, which has no findings.
    func confirmed(isThere: () -> Bool, _ check: () -> Void) {
        guard isInUse else { return check() }
        let before = totals
        var last: [VerifierFinding] = []
        // The findings common to all checks.
        var always: [VerifierFinding]?
        var next = Check()
        for _ in 0..<Self.maximumChecks {
            totals = before
            current = next
            check()
            let done = current ?? next
            current = nil
            next = Check(isRepeated: true, file: done.file)
            let found = done.findings
            if found == last || found.isEmpty {
                for finding in found { handOut(finding) }
                return
            }
            last = found
            always = always?.filter(found.contains) ?? found
            usleep(useconds_t(Self.pause / .microseconds(1)))
            if !isThere() { return }
        }
        for finding in always ?? [] { handOut(finding) }
        // The last finding has the object's name.
        guard let seen = last.last else { return }
        handOut(
            VerifierFinding(
                kind: .busy, path: seen.path, backingPath: seen.backingPath, attribute: nil, plaintextOffset: nil,
                plaintextCount: nil, message: "it changed during every check, which hides damage",
                remedy: nil))
    }

    /// Reports a failure to read `object`.
    /// - Parameter remedy: the remedy for an object that is readable but damaged.
    func report(
        _ error: StoreError, _ object: VerifierObject?, _ what: String, attribute: [UInt8]? = nil,
        at plaintextOffset: UInt64? = nil, remedy: Remedy? = nil
    ) {
        let (kind, reason): (VerifierFinding.Kind, String) =
            switch error {
            case .system(let errno), .refused(let errno): (.unreadable, "cannot be read: \(errno)")
            case .damaged(let reason): (.damaged, reason)
            case .unavailable(_, let reason), .crypto(let reason): (.unreadable, reason)
            }
        report(
            kind, object, "\(what): \(reason)", attribute: attribute, at: plaintextOffset,
            remedy: kind == .damaged ? remedy : nil)
    }
}

extension Verifier {
    /// One check of an object. Its findings are confirmed by another check.
    private struct Check {
        /// True if an earlier check of this object had findings.
        var isRepeated = false
        /// The file with several names that it has read. A repeated check reads the file again.
        var file: FileIdentity?
        var findings: [VerifierFinding] = []
    }
}

/// An entry of a backing directory.
struct VerifierObject {
    let entry: Component
    /// Nil if the name does not authenticate.
    var name: [UInt8]?
    var isConflictCopy = false

    var shown: [UInt8] { name ?? entry.bytes }
    /// False for a conflict copy, because only the original's name authenticates.
    var isNamed: Bool { name != nil && !isConflictCopy }
}

/// The numbers of objects that the keys of `vaultfs.json` open. A repair needs them, because wrong keys make everything
/// look damaged.
package struct VerifierKeys: Sendable, Equatable {
    /// Number of opened records of directories and headers of files.
    var opened = 0
    /// Number of readable records and headers that did not open.
    var unopened = 0
    /// Those of `unopened` whose key epoch is later than that of `vaultfs.json`.
    var later = 0

    /// Counts an unopened object.
    /// - Parameter start: its first bytes. The eighth is its epoch (FileFormat, Epochs).
    mutating func count(unopened start: some Collection<UInt8>, _ epochs: KeyEpochs) {
        unopened += 1
        let isOurs = start.starts(with: DirectoryRecord.magic) || start.starts(with: FileHeader.magic)
        if isOurs, let epoch = start.dropFirst(7).first, epoch > epochs.current { later += 1 }
    }

    /// The reason to refuse a repair with these keys, or nil. One unopened object is no reason: it may just be damaged.
    package var misfit: String? {
        if later > 0 { return "parts of the vault were rekeyed after this vaultfs.json was written" }
        if opened == 0 && unopened > 1 { return "nothing in the vault opens with the keys of this vaultfs.json" }
        return nil
    }
}

/// A directory on the way from the vault's root to the current object.
struct VerifierFrame {
    /// Nil for the vault's root.
    let object: VerifierObject?
    let descriptor: Descriptor
    /// True for a conflict copy, and for everything in it.
    let isInConflictCopy: Bool
    /// Nil if the record does not authenticate. Then all names in the directory are unreadable.
    var keys: DirectoryKeys?
    var reader: DirectoryReader
    /// True if nothing in it belongs to this vault.
    var isForeign = false
}

extension Verifier {
    /// Checks everything below `root`, in the store's order. Not recursive, because a tree may be deeper than the
    /// stack.
    private func walk(_ root: Descriptor) {
        enter(nil, root)
        while let last = stack.indices.last {
            var entry: Component?
            do throws(StoreError) { entry = try stack[last].reader.next() } catch {
                // In use, the directory may have been removed meanwhile, getdents(2).
                if !isInUse || error != .system(.noSuchFileOrDirectory) { report(error, nil, "directory") }
            }
            if let entry {
                check(entry, in: stack[last])
            } else {
                progress()
                if let keys = stack.removeLast().keys { secretsAbove.remove(keys.identity) }
            }
        }
    }

    /// Makes a directory the innermost one of the stack, and checks its record and attributes.
    private func enter(_ object: VerifierObject?, _ descriptor: Descriptor) {
        stack.append(
            VerifierFrame(
                object: object, descriptor: descriptor, isInConflictCopy: isInConflictCopy(object),
                reader: DirectoryReader(descriptor)))
        totals.directories += 1
        var keys: DirectoryKeys?
        let isThere = { (try? descriptor.status().st_nlink) ?? 0 > 0 }
        var isRepeated = false
        confirmed(isThere: isThere) {
            keys = checkRecord(of: descriptor, isRoot: object == nil)
            isRepeated = keys.map { secretsAbove.contains($0.identity) } ?? false
            guard isRepeated else {
                if let keys { checkAttributes(of: descriptor, key: keys.attributeKey, nil) }
                return
            }
            // The copied record of the root is reported already, because of its flag.
            if keys?.identity != stack[0].keys?.identity { report(OpenDirectory.repeated, nil, "directory") }
        }
        if isRepeated {
            stack.removeLast()
        } else {
            stack[stack.count - 1].keys = keys
            if let keys { secretsAbove.insert(keys.identity) }
        }
    }

    /// Enters a directory found in the innermost one.
    func descend(_ object: VerifierObject, in parent: Descriptor) {
        do throws(StoreError) {
            enter(object, try Descriptor(at: parent, object.entry, flags: O_RDONLY | O_DIRECTORY))
        } catch .system(.noSuchFileOrDirectory) where isInUse {
            return
        } catch {
            totals.directories += 1
            report(error, object, "directory")
        }
    }

    /// Reports damage of `vaultfs.dir`. Returns its keys, or nil without valid ones.
    private func checkRecord(of directory: Descriptor, isRoot: Bool) -> DirectoryKeys? {
        if !isRoot && isCompleted && stack[stack.count - 1].object?.isNamed == true && !isInConflictCopy(nil),
            (try? Completion.isIncomplete(directory)) == true
        {
            report(
                .incomplete, nil, "vaultfs.dir: missing or cut short: a mount completes the directory, which is empty",
                remedy: .complete)
            return nil
        }
        let remedy: Remedy? = isRoot ? .renewRoot : isOurs(directory) ? .empty : nil
        do throws(StoreError) {
            let (record, keys) = try openRecord(of: directory)
            if record.isRoot != isRoot {
                report(
                    .damaged, nil, "vaultfs.dir: the root's flag is \(record.isRoot ? "set" : "not set")",
                    remedy: remedy)
            }
            return keys
        } catch .system(.noSuchFileOrDirectory) {
            report(.missing, nil, "vaultfs.dir: missing", remedy: remedy)
        } catch {
            report(error, nil, "vaultfs.dir", remedy: remedy)
        }
        return nil
    }

    /// Returns true for a directory of the vault, even without its record, if its name or something in it
    /// authenticates. Any other directory stays as it is.
    private func isOurs(_ directory: Descriptor) -> Bool {
        let last = stack.count - 1
        if stack[last].object?.isNamed == true { return true }
        if (try? directory.status(of: OpenDirectory.recordEntry)) != nil { return true }
        stack[last].isForeign = stack[last - 1].isForeign || !HiddenName.holdsOurs(directory, keyRing)
        return !stack[last].isForeign
    }

    private func openRecord(
        of directory: Descriptor
    ) throws(StoreError) -> (record: DirectoryRecord, keys: DirectoryKeys) {
        let bytes = try directory.readFile(OpenDirectory.recordEntry, limit: DirectoryRecord.size)
        do throws(StoreError) {
            let record = try keyRing.parseRecord(bytes)
            let opened = try record.unwrapKeys(keyRing)
            keys.opened += 1
            return (record, opened)
        } catch {
            keys.count(unopened: bytes, keyRing.epochs)
            throw error
        }
    }
}
