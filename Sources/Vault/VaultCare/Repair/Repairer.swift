internal import CLinux
internal import Glibc
internal import LinuxSystem
package import VaultCrypto
internal import VaultFormat
package import VaultStore

/// The repair of a vault by the remedies in the findings of a `Verifier`. Never deletes an object that does not
/// authenticate, except for leftovers of vaultfs's own operations and bytes past a file's end.
///
/// A repair can be killed at any moment. A new check then finds the remaining remedies. Used by one thread.
package final class Repairer {
    /// A failed remedy, with the reason in one line.
    package struct Failure: Sendable {
        package let finding: VerifierFinding
        package let reason: String
    }

    let store: Store
    /// Opened or made for the first object to be moved there.
    private var lostAndFound: LostAndFound?
    private let directory: VaultDirectory
    private var failures: [Failure] = []
    private var onStep: (Int) -> Void = { _ in }
    private var steps = 0

    /// Sets the log aside if it is no log, or if its changes cannot be put in place.
    /// - Parameter directory: locked exclusively by the caller.
    /// - Throws: `system`, `format`.
    package init(directory: VaultDirectory, masterKey: SecretBytes) throws(VaultError) {
        self.directory = directory
        // Claim the vault before the first change.
        try directory.claim()
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        store = try VaultError.wrapping("cannot repair", directory.path) { () throws(StoreError) in
            try Store(
                root: directory.root, keyRing: keyRing, cacheSize: 0, isReadOnly: false,
                writerLock: directory.writerLock, setsLogAside: true, traits: directory.traits)
        }
    }

    /// Carries out the remedies of `findings`, which a `Verifier` has just found in this vault. Called once.
    /// - Parameter onStep: called after each remedy, with the number so far.
    /// - Throws: `system` if the store cannot be made durable.
    package func run(
        _ findings: [VerifierFinding], onStep: @escaping (Int) -> Void = { _ in }
    ) throws(VaultError) -> [Failure] {
        self.onStep = onStep
        // Sync the found objects before removing anything that they replace.
        try synchronize()
        // The root comes first, because lost+found is in it. Files come next, because moving changes their paths.
        each(findings, [.renewRoot]) { (_) throws(StoreError) in try DamagedRoot.renewRecord(in: store) }
        eachEntry(findings, [.complete]) { (entry, parent, finding) throws(StoreError) in
            try store.completion?.complete(entry, in: parent, shownPath: finding.backingPath, in: store)
        }
        repairFiles(findings)
        eachEntry(findings, [.remove]) { (entry, parent, _) throws(StoreError) in
            OpenDirectory.remove(entry, from: parent)
            if (try? parent.status(of: entry)) != nil { throw .damaged("it holds something, and stays") }
        }
        eachEntry(findings, [.empty]) { (entry, parent, _) throws(StoreError) in
            try openLostAndFound().mark(entry, in: parent)
        }
        listMoves(findings)
        // Move the innermost first, because an entry's path is valid only until a directory around it moves.
        each(findings.reversed(), [.move, .empty, .renewRoot, .clearLog], moveAway)
        try VaultError.wrapping("cannot make durable", directory.path) { () throws(StoreError) in
            try store.log.checkpoint(.end)
        }
        try synchronize()
        return failures
    }

    private func synchronize() throws(VaultError) {
        try VaultError.wrapping("cannot make durable", directory.path) { () throws(StoreError) in
            if store.isOnFuse { return }
            try retrying { linux_syncfs(store.root.fd) }
        }
    }

    private func each(
        _ findings: [VerifierFinding], _ remedies: [Remedy], _ body: (VerifierFinding) throws(StoreError) -> Void
    ) {
        for finding in findings {
            guard let remedy = finding.remedy, remedies.contains(remedy) else { continue }
            // Skip it, because there is no lost+found without a record of the root.
            if [.renewRoot, .empty].contains(remedy), failures.contains(where: { $0.finding == finding }) { continue }
            do throws(StoreError) {
                try store.admitChange()
                try body(finding)
            } catch {
                failures.append(Failure(finding: finding, reason: error.reason))
            }
            steps += 1
            onStep(steps)
        }
    }

    /// Does the same, with the entry of each finding and the directory that has it.
    private func eachEntry(
        _ findings: [VerifierFinding], _ remedies: [Remedy],
        _ body: (Component, Descriptor, VerifierFinding) throws(StoreError) -> Void
    ) {
        each(findings, remedies) { (finding) throws(StoreError) in
            let (parent, entry) = try store.root.locate(finding.backingPath)
            try body(entry, parent, finding)
        }
    }

    private func repairFiles(_ findings: [VerifierFinding]) {
        var last: [UInt8]?
        let remedies: [Remedy] = [.recover, .cutTail, .cutBack, .cutRest, .seal, .sealRest]
        eachEntry(findings, remedies) { (entry, parent, finding) throws(StoreError) in
            // A file's findings are adjacent, so compare with the last path.
            if finding.backingPath == last { return }
            last = finding.backingPath
            let pin = try Descriptor(at: parent, entry, flags: linux_O_PATH)
            guard try pin.status().st_mode & S_IFMT == S_IFREG else { throw .damaged("not a regular file") }
            try FileOpening(try pin.reopened(flags: O_RDONLY | O_NONBLOCK), in: store).repair()
        }
    }

    /// Lists the entries to be moved, by their backing paths.
    private func listMoves(_ findings: [VerifierFinding]) {
        let moves = findings.filter { $0.remedy == .move }
        guard let first = moves.first else { return }
        let found = moves.compactMap { finding -> (path: [UInt8], name: [UInt8])? in
            guard let (parent, entry) = try? store.root.locate(finding.backingPath) else { return nil }
            return LostObject.find(entry, in: parent, store.keyRing).map { (finding.backingPath, $0.name) }
        }
        do throws(StoreError) { try openLostAndFound().list(found, as: Array("moved".utf8)) } catch {
            failures.append(Failure(finding: first, reason: "a list of what is moved: \(error.reason)"))
        }
    }

    private func moveAway(_ finding: VerifierFinding) throws(StoreError) {
        let lostAndFound = try openLostAndFound()
        if finding.remedy == .renewRoot { return try lostAndFound.moveFromRoot() }
        if finding.remedy == .clearLog { return try lostAndFound.keepAside(DamagedRoot.logPrefix) }
        let (parent, entry) = try store.root.locate(finding.backingPath)
        if finding.remedy == .empty {
            try lostAndFound.empty(entry, in: parent)
        } else if EntryName.kind(of: entry.bytes) == .reserved {
            try lostAndFound.keep(entry, from: parent, as: entry.bytes)
        } else {
            try lostAndFound.moveHere(entry, from: parent)
        }
    }

    private func openLostAndFound() throws(StoreError) -> LostAndFound {
        if let lostAndFound { return lostAndFound }
        let opened = try LostAndFound(in: store)
        lostAndFound = opened
        return opened
    }
}
