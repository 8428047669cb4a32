internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
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

    /// Carries out the remedies of `findings`, which a `Verifier` has just found in this vault.
    /// - Parameter onStep: called after each remedy, with the number so far.
    /// - Returns: the failed remedies.
    /// - Throws: `system` if the store cannot be made durable.
    package func run(
        _ findings: [VerifierFinding], onStep: @escaping (Int) -> Void = { _ in }
    ) throws(VaultError) -> [Failure] {
        self.onStep = onStep
        steps = 0
        failures = []
        // Sync the found objects before removing anything that they replace.
        try synchronize()
        // The root comes first, because lost+found is in it. Files come next, because moving changes their paths.
        each(findings, [.renewRoot]) { (_) throws(StoreError) in try DamagedRoot.renewRecord(in: self.store) }
        each(findings, [.complete]) { (finding) throws(StoreError) in
            let (parent, entry) = try self.store.root.locate(finding.backingPath)
            try self.store.completion?.complete(entry, in: parent, shownPath: finding.backingPath, in: self.store)
        }
        repairFiles(findings)
        each(findings, [.remove]) { (finding) throws(StoreError) in try self.remove(finding) }
        each(findings, [.empty]) { (finding) throws(StoreError) in
            let (parent, entry) = try self.store.root.locate(finding.backingPath)
            try self.openLostAndFound().mark(entry, in: parent)
        }
        listMoves(findings)
        // Move the innermost first, because an entry's path is valid only until a directory around it moves.
        each(findings.reversed(), [.move, .empty, .renewRoot, .clearLog]) { (finding) throws(StoreError) in
            try self.moveAway(finding)
        }
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

    /// Repairs each file once.
    private func repairFiles(_ findings: [VerifierFinding]) {
        var last: [UInt8]?
        let remedies: [Remedy] = [.recover, .cutTail, .cutBack, .cutRest, .seal, .sealRest]
        each(findings, remedies) { (finding) throws(StoreError) in
            // A file's findings are adjacent, so compare with the last path.
            if finding.backingPath == last { return }
            last = finding.backingPath
            try FileRepair.run(try self.openFile(finding), in: self.store)
        }
    }

    private func openFile(_ finding: VerifierFinding) throws(StoreError) -> Descriptor {
        let (parent, entry) = try store.root.locate(finding.backingPath)
        let pin = try Descriptor(at: parent, entry, flags: linux_O_PATH)
        guard try pin.status().st_mode & S_IFMT == S_IFREG else { throw .damaged("not a regular file") }
        return try pin.reopened(flags: O_RDONLY | O_NONBLOCK)
    }

    /// Lists the entries to be moved, by their backing paths.
    private func listMoves(_ findings: [VerifierFinding]) {
        let moves = findings.filter { $0.remedy == .move }
        guard let first = moves.first else { return }
        do throws(StoreError) {
            var found: [(path: [UInt8], name: [UInt8])] = []
            for finding in moves {
                guard let (parent, entry) = try? store.root.locate(finding.backingPath),
                    let object = LostObject.find(entry, in: parent, store.keyRing)
                else { continue }
                found.append((finding.backingPath, object.name))
            }
            try openLostAndFound().list(found, as: Array("moved".utf8))
        } catch {
            failures.append(Failure(finding: first, reason: "a list of what is moved: \(error.reason)"))
        }
    }

    private func remove(_ finding: VerifierFinding) throws(StoreError) {
        let (parent, entry) = try store.root.locate(finding.backingPath)
        OpenDirectory.remove(entry, from: parent)
        if (try? parent.status(of: entry)) != nil { throw .damaged("it holds something, and stays") }
    }

    private func moveAway(_ finding: VerifierFinding) throws(StoreError) {
        let lostAndFound = try openLostAndFound()
        switch finding.remedy {
        case .renewRoot: try lostAndFound.moveFromRoot()
        case .clearLog: try lostAndFound.keepAside(DamagedRoot.logPrefix)
        case .empty:
            let (parent, entry) = try store.root.locate(finding.backingPath)
            try lostAndFound.empty(entry, in: parent)
        default:
            let (parent, entry) = try store.root.locate(finding.backingPath)
            if EntryName.kind(of: entry.bytes) == .reserved {
                try lostAndFound.keep(entry, from: parent, as: entry.bytes)
            } else {
                try lostAndFound.moveHere(entry, from: parent)
            }
        }
    }

    private func openLostAndFound() throws(StoreError) -> LostAndFound {
        if let lostAndFound { return lostAndFound }
        let opened = try LostAndFound(in: store)
        lostAndFound = opened
        return opened
    }
}
