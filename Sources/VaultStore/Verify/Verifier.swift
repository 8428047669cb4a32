internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto
internal import VaultFormat

/// Checks everything in a vault that a key can prove, without changing it: `vaultfs.json`, directory records, names,
/// headers, lengths, chunks, the journal, links and attributes.
///
/// While a daemon has the vault, what it does may look like damage for a moment: then a finding counts that is made twice
/// of something that has not changed in between (Verifier+Confirming), and notes, which a daemon at work makes, are left
/// out. Goes by directory descriptors and follows no link. Memory and descriptors stay bounded in wide and in deep trees:
/// findings go out as they are made, and only the innermost directories are kept open. One thread's.
package final class Verifier {
    /// Files with several names that are remembered, so that each is read once; beyond, they are read again.
    private static let rememberedFiles = 1 << 16

    let keyRing: KeyRing
    let layout: ChunkLayout
    let workspace: Workspace
    var totals = VerifierTotals()
    package internal(set) var keys = VerifierKeys()
    /// The directories from the root to the one being looked at.
    var stack: [VerifierFrame] = []
    var journal: VerifierJournal?
    /// A daemon may be writing.
    let isInUse: Bool
    /// True if new files and directories that a power cut left incomplete are completed by the next mount, or by the
    /// present one (`Completion`).
    let isCompleted: Bool
    /// Where findings go while they are to be confirmed.
    var unconfirmed: [VerifierFinding]?
    /// Of a look that is repeated: what was seen is not seen yet.
    private var lastSeen: FileIdentity?
    private let directory: VaultDirectory
    private var filesSeen: Set<FileIdentity> = []
    private var onFinding: (VerifierFinding) -> Void = { _ in }
    private var onProgress: (VerifierTotals) -> Void = { _ in }

    /// Verifies the MAC of `vaultfs.json` first.
    /// - Parameters:
    ///   - directory: locked by the caller, so that no daemon writes meanwhile, unless `isInUse`.
    ///   - isInUse: a daemon has the vault, and may write.
    ///   - isCompleting: the daemon is completing the remains of an unclean end.
    /// - Throws: `damaged` where the MAC does not verify; `system`, `format` where memory or libcrypto fail.
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

    /// Looks at the whole vault.
    /// - Parameters:
    ///   - onFinding: gets each finding when it is made.
    ///   - onProgress: gets the totals so far, after every object and every batch of chunks.
    /// - Throws: `system`, `damaged` where the root cannot be read, or the tree changes under way.
    package func run(
        onFinding: @escaping (VerifierFinding) -> Void, onProgress: @escaping (VerifierTotals) -> Void = { _ in }
    ) throws(VaultError) -> VerifierTotals {
        self.onFinding = onFinding
        self.onProgress = onProgress
        totals = VerifierTotals()
        keys = VerifierKeys()
        filesSeen = []
        stack = []
        try VaultError.wrapping("cannot verify", directory.path) { () throws(StoreError) in
            let root = try Descriptor(
                at: directory.root.rawValue, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
            // In use, its slots come and go, and a record that is in one is about to be in place.
            journal = isInUse ? nil : openJournal(root)
            try walk(root)
        }
        reportUnusedSlots()
        return totals
    }

    func progress() {
        onProgress(totals)
    }

    /// False where the file was looked at under another name.
    func isFirstVisit(_ status: stat) -> Bool {
        guard status.st_nlink > 1 else { return true }
        let identity = FileIdentity(status)
        if identity == lastSeen { return true }
        lastSeen = isInUse ? identity : nil
        if filesSeen.contains(identity) { return false }
        if filesSeen.count < Self.rememberedFiles { filesSeen.insert(identity) }
        return true
    }

    /// Counts a finding and hands it out, once it is confirmed.
    /// - Parameters:
    ///   - object: an entry of the directory being looked at; nil for the directory itself.
    func report(
        _ kind: VerifierFinding.Kind, _ object: VerifierObject?, _ message: String, attribute: [UInt8]? = nil,
        at plaintextOffset: UInt64? = nil, count: UInt64? = nil, remedy: Remedy? = nil, slot: Int? = nil
    ) {
        if isInUse && kind.isNote { return }
        let shown = stack.dropFirst().map(\.object.shown) + (object.map { [$0.shown] } ?? [])
        let backing = stack.dropFirst().map(\.object.entry) + (object.map { [$0.entry] } ?? [])
        let finding = VerifierFinding(
            kind: kind, path: Array(shown.joined(separator: [UInt8(ascii: "/")])),
            backingPath: Array(backing.joined(separator: [UInt8(ascii: "/")])), attribute: attribute,
            plaintextOffset: plaintextOffset, plaintextCount: count, message: message, remedy: remedy, slot: slot)
        if unconfirmed == nil { handOut(finding) } else { unconfirmed?.append(finding) }
    }

    func handOut(_ finding: VerifierFinding) {
        if finding.kind.isNote { totals.notes += 1 } else { totals.damage += 1 }
        onFinding(finding)
    }

    /// Reports that the store would not let `object` be read.
    /// - Parameter remedy: where it can be read, and is damaged.
    func report(
        _ error: StoreError, _ object: VerifierObject?, _ what: String, at plaintextOffset: UInt64? = nil,
        remedy: Remedy? = nil
    ) {
        switch error {
        case .system(let errno): report(.unreadable, object, "\(what): cannot be read: \(errno)", at: plaintextOffset)
        case .damaged(let reason): report(.damaged, object, "\(what): \(reason)", at: plaintextOffset, remedy: remedy)
        case .crypto(let reason): report(.unreadable, object, "\(what): \(reason)", at: plaintextOffset)
        }
    }
}

/// An entry of a backing directory.
struct VerifierObject {
    let entry: [UInt8]
    /// The plaintext name, or the entry where that does not authenticate.
    let shown: [UInt8]
    /// The name authenticates.
    var isNamed = false
}
