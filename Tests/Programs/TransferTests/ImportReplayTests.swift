import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import Transfer
import VaultCare
import VaultCrypto
import VaultFileSystem
import VaultFormat
import VaultStore

@testable import vaultfs

/// Imports stopped before each of their calls that change the vault. The vault must open, and another import must
/// complete it.
@Suite(.timeLimit(.minutes(60))) struct ImportReplayTests {
    private let directory: TemporaryDirectory
    private let masterKey: SecretBytes
    private let keyRing: KeyRing
    private var vault: String { directory.appending("vault") }

    init() throws {
        directory = try TemporaryDirectory(in: "/dev/shm")
        let path = FilePath(directory.appending("vault"))
        let secret = try SlotSecret.keyfile([UInt8](repeating: 7, count: 32))
        try VaultCreation.create(at: path, chunkSize: 4096, slots: [SlotRequest(secret: secret)])
        let opened = try VaultDirectory.open(path)
        masterKey = try opened.openSlot(with: secret).masterKey
        keyRing = try KeyRing(masterKey: masterKey, configuration: opened.configuration)
        let script = """
            set -e; umask 022; mkdir -p tree/inner; cd tree; head -c 10000 /dev/urandom >file; : >empty; ln -s file link; ln file inner/other
            truncate -s 3000000 inner/hole; printf end >>inner/hole; mkfifo fifo; printf x >$(printf %0255d 0)
            ln link inner/link; printf closed >closed; chmod 444 closed; touch -d 2001-01-01 closed
            """
        try Command(["sh", "-c", "cd \(directory.path); \(script)"]).run().succeeded()
        // Let another user own the objects, because root ignores modes that deny access.
        if geteuid() == 0 {
            try Command(["chown", "-R", "\(OrdinaryUser.id):\(OrdinaryUser.id)", directory.path]).run().succeeded()
        }
    }

    /// Imports as an ordinary user.
    /// - Parameter threads: with one thread, a copy shows a single moment.
    private func transfer(
        isComparing: Bool = false, mayFail: Bool = false, threads: Int = 1, resumeInterval: UInt64? = nil,
        limit: UInt64 = .max
    ) throws -> TransferTotals {
        try OrdinaryUser.act { try transferAsWhoCalls(isComparing, mayFail, threads, resumeInterval, limit) }
    }

    private func transferAsWhoCalls(
        _ isComparing: Bool, _ mayFail: Bool, _ threads: Int, _ resumeInterval: UInt64?, _ limit: UInt64
    ) throws -> TransferTotals {
        let opened = try VaultDirectory.open(FilePath(vault))
        let store = try Store(root: opened.root, keyRing: keyRing, cacheSize: 1 << 20, isReadOnly: isComparing)
        let system = try VaultFileSystem(store: store)
        let tree = FileSystemTree(system)
        let source = Descriptor(owning: Glibc.open(directory.appending("tree"), O_RDONLY | O_DIRECTORY))
        var options = TransferOptions()
        options.isComparing = isComparing
        if let resumeInterval { options.resumeInterval = resumeInterval }
        let running = Mutex<TreeTransfer<LocalTree<Workspace>, FileSystemTree<VaultFileSystem>>?>(nil)
        let transfer = TreeTransfer(
            from: LocalTree<Workspace>(), to: tree, options,
            failed: { path, reason in
                if !mayFail { Issue.record("\(String(decoding: path, as: UTF8.self)): \(reason)") }
            },
            damaged: { _, _, reason in Issue.record("\(reason)") },
            isStopped: { running.withLock { $0?.totals.bytes ?? 0 } >= limit })
        running.withLock { $0 = transfer }
        // A stopped import ends as by a kill.
        defer {
            running.withLock { $0 = nil }
            if !isComparing, limit == .max { system.shutDown() }
        }
        try transfer.transferTree(
            source, into: tree.root, isNew: false, (0..<threads).map { _ in try Workspace(layout: keyRing.layout) },
            whileWaiting: { _ in })
        return transfer.totals
    }

    private func findings() throws -> [VerifierFinding] {
        var found: [VerifierFinding] = []
        _ = try Verifier(directory: VaultDirectory.open(FilePath(vault)), masterKey: masterKey)
            .run(onFinding: { found.append($0) })
        return found
    }

    @Test("whatever the moment, the next import completes it, also inside a file", arguments: [nil, 4096])
    func moments(resumeInterval: UInt64?) throws {
        let copies = DirectoryCopies(of: vault)
        try copies.takeBeforeEachChange(includingAttributes: true) { () throws in
            _ = try transfer(resumeInterval: resumeInterval)
        }
        #expect(copies.paths.count > 60)
        // Compute every sum of the files' sizes.
        let wholeFiles = [10000, 3_000_003, 1, 6].reduce(into: [0] as Set<UInt64>) { sums, size in
            sums.formUnion(sums.map { $0 + size })
        }
        var hasResumed = false
        for (call, copy) in copies.paths.enumerated() {
            try copies.putBack(copy)
            let totals = try expectCompletion("before call \(call)", resumeInterval)
            if !wholeFiles.contains(totals.bytesPresent) { hasResumed = true }
        }
        #expect(hasResumed == (resumeInterval != nil))
    }

    @Test("a begun file that others have changed is not gone on with", arguments: ["damaged", "longer", "linked"])
    func changedByOthers(how: String) throws {
        // With a hole, the file may be lengthened with zeros.
        let script = """
            cd \(directory.path)/tree; rm -r *; head -c 8192 /dev/urandom >file; truncate -s 3000000 file
            head -c 200000 /dev/urandom >>file; touch -d 2001-01-01 file
            """
        try Command(["sh", "-c", script]).run().succeeded()
        #expect(throws: TransferError.stopped) { try transfer(resumeInterval: 8192, limit: 60_000) }
        let files = try FileManager.default.contentsOfDirectory(atPath: vault).filter { !$0.hasPrefix("vaultfs.") }
        let begun = "\(vault)/\(try #require(files.first))"
        let change =
            switch how {
            case "damaged": "printf 0123456789abcdef | dd of=\(begun) bs=1 seek=5000 conv=notrunc"
            case "longer": "truncate -s +100000 \(begun)"
            default: "ln \(begun) \(directory.path)/kept"
            }
        try Command(["sh", "-c", change]).run().succeeded()
        let totals = try transfer(resumeInterval: 8192)
        #expect(totals.files == 1 && totals.failed == 0 && (totals.bytesPresent == 0) == (how != "longer"))
        #expect(try findings() == [])
        #expect(try transfer(isComparing: true).different == 0)
    }

    /// The disk is full from any call on. The import must report this, and be completed once there is space again.
    @Test("a full disk, whatever the moment, leaves what the next import completes")
    func fullDiskWhatever() throws {
        let copies = DirectoryCopies(of: vault)
        try copies.take()
        var call = 0
        var wasFull = true
        while wasFull {
            try copies.putBack(copies.paths[0])
            wasFull = CallWatcher.fullDisk(in: vault, from: call) { _ = try? transfer(mayFail: true) }
            try expectCompletion("full at call \(call)")
            call += 1
        }
        #expect(call > 20)
    }

    /// The first writing thread waits for another. With one thread at a time, it would wait for ever.
    @Test("threads write at once")
    func threadsWriteAtOnce() throws {
        // Make a directory for each file, because a directory gets only one new file at a time.
        let script = "cd \(directory.path)/tree; rm -r *; for i in $(seq 100); do mkdir $i; echo $i >$i/file; done"
        try Command(["sh", "-c", script]).run().succeeded()
        let writers = Monitor((threads: Set<pthread_t>(), hasMet: false))
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            // Look only at writes of files.
            guard call.kind == .write, !call.path.contains("/vaultfs.") else { return 0 }
            let isFirst = writers.update { $0.threads.insert(pthread_self()).inserted && $0.threads.count == 1 }
            guard isFirst else { return 0 }
            let met: Void? = writers.wait(until: .now + .seconds(30)) { $0.threads.count > 1 ? () : nil }
            writers.update { $0.hasMet = met != nil }
            return 0
        }
        try CallWatcher.watch(vault, answer) { () throws in #expect(try transfer(threads: 2).failed == 0) }
        #expect(writers.access { $0.hasMet })
    }

    @Test("a command has a thread for each core")
    func commandHasThreadForEach() throws {
        let configuration = try VaultDirectory.open(FilePath(vault)).configuration
        let cores = sysconf(Int32(_SC_NPROCESSORS_ONLN))
        #expect(try VaultSession.withWorkspaces(for: configuration) { $0.count } == min(16, cores))
    }

    /// Returns the modes of some objects in the vault.
    private func modes() throws -> [String] {
        let opened = try VaultDirectory.open(FilePath(vault))
        let store = try Store(root: opened.root, keyRing: keyRing, cacheSize: 1 << 20, isReadOnly: true)
        let tree = FileSystemTree(try VaultFileSystem(store: store))
        return try ["closed", "fifo", "file"].map { name in
            let item = try #require(try tree.find(Array(name.utf8), in: tree.root))
            return "\(name) \(String(try tree.status(of: item).st_mode & 0o7777, radix: 8))"
        }
    }

    @discardableResult
    private func expectCompletion(_ when: Comment, _ resumeInterval: UInt64? = nil) throws -> TransferTotals {
        // After a crash there may be notes, but no damage.
        #expect(try findings().filter { !$0.kind.isNote } == [], when)
        let totals = try transfer(resumeInterval: resumeInterval)
        #expect(totals.failed == 0 && totals.notKept == TransferTotals().notKept, when)
        #expect(try findings() == [], when)
        #expect(try modes() == ["closed 444", "fifo 644", "file 644"], when)
        let compared = try transfer(isComparing: true)
        #expect(compared.different == 0 && compared.failed == 0 && compared.objects == 9, when)
        return totals
    }
}
