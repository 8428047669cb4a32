import Foundation
import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing
import VaultFormat
import VaultStore

@testable import Transfer

/// Transfers between real directories, with an action at one of the calls.
@Suite(.timeLimit(.minutes(60))) struct TransferReplayTests {
    private let directory: TemporaryDirectory
    private var out: String { directory.appending("out") }
    private var tree: String { directory.appending("tree") }

    init() throws {
        directory = try TemporaryDirectory(in: "/dev/shm")
        try shell("mkdir tree out")
    }

    @discardableResult
    private func shell(_ script: String) throws -> String {
        try Command(["env", "-C", directory.path, "sh", "-ec", script]).run().succeeded().output
    }

    /// Transfers with one thread, so a copy shows a single moment.
    private func transfer(isNew: Bool) throws -> TransferTotals {
        let transfer = TreeTransfer(
            from: LocalTree<Workspace>(), to: LocalTree<Workspace>(), TransferOptions(),
            failed: { path, reason in Issue.record("\(String(decoding: path, as: UTF8.self)): \(reason)") },
            damaged: { _, _, reason in Issue.record("\(reason)") }, isStopped: { false })
        try transfer.transferTree(
            opened(tree), into: opened(out), isNew: isNew, [Workspace(layout: ChunkLayout(chunkSize: 4096))],
            whileWaiting: { _ in })
        return transfer.totals
    }

    private func expectSame(_ when: Comment) throws {
        #expect(try shell("rsync -aHAX --checksum --delete -n -i tree/ out/") == "", when)
    }

    @Test("a directory that was made for it gets all, whenever it was killed after the mark")
    func directoryThatWasMade() throws {
        try shell("printf x >tree/file; setfattr -n user.tree -v 1 tree; chmod 751 tree")
        if geteuid() == 0 { try #require(chown(tree, OrdinaryUser.id, OrdinaryUser.id) == 0) }
        try shell("touch -d 2001-01-01 tree")
        let copies = DirectoryCopies(of: out)
        try copies.takeBeforeEachChange(includingAttributes: true) { _ = try transfer(isNew: true) }
        try expectSame("at once")
        let all = copies.paths
        #expect(all.count > 8)
        // The first copy has no mark yet, so skip it.
        for (call, copy) in all.enumerated().dropFirst() {
            try copies.putBack(copy)
            let isMarked = access(out + "/.vaultfs-transfer-0000000000000000", F_OK) == 0
            #expect(isMarked || call == all.count - 1, "before call \(call)")
            _ = try transfer(isNew: false)
            // The removal of the mark has changed the times, so compare everything else.
            if isMarked { try expectSame("before call \(call)") }
            #expect(try shell("rsync -aHAX -O --checksum --delete -n -i tree/ out/") == "", "before call \(call)")
        }
    }

    @Test("one that gets closed to its owner keeps no mark", arguments: ["500", "555"])
    func oneThatGetsClosed(mode: String) throws {
        try shell("printf x >tree/file; chmod \(mode) tree; touch -d 2001-01-01 tree")
        if geteuid() == 0 {
            for path in [tree, tree + "/file", out] { try #require(chown(path, OrdinaryUser.id, OrdinaryUser.id) == 0) }
        }
        try OrdinaryUser.act { _ = try transfer(isNew: true) }
        try expectSame("at once")
    }

    /// Simulates another export of the same source, which creates its name first.
    @Test("a file that another program puts there meanwhile stays")
    func fileThatAnotherProgramPuts() throws {
        try shell(
            "printf x >tree/first; ln tree/first tree/second; ln -s first tree/link; touch -h -d 2001-01-01 tree/*")
        let names = Mutex<[String]>([])
        let answer = { @Sendable [base = directory.path, out] (call: WatchedCall) -> Int32 in
            guard call.kind == .rename, call.path.hasPrefix(out + "/") else { return 0 }
            let name = String(call.path.dropFirst(out.count + 1))
            names.withLock { $0.append(name) }
            let script = """
                if [ $1 != link ]; then ln out/first out/$1 || ln out/second out/$1 && exit; fi
                exec cp -a tree/$1 out/$1
                """
            let result = try? Command(["env", "-C", base, "sh", "-c", script, "sh", name]).run()
            return result?.exitCode == 0 ? 0 : EPROTO
        }
        var totals = TransferTotals()
        try CallWatcher.watch(out, answer) { totals = try transfer(isNew: false) }
        #expect(names.withLock(\.count) == 3)
        #expect(totals.failed == 0 && totals.present == 3 && totals.files == 0)
        #expect(try shell("rsync -aHAX -O --checksum --delete -n -i tree/ out/") == "")
    }

    @Test("a file that has not got its name yet is nobody's leftover")
    func fileThatHasNotGot() throws {
        try shell("printf x >tree/file")
        let isStale = Mutex<Bool?>(nil)
        let answer = { @Sendable [out] (call: WatchedCall) -> Int32 in
            guard call.kind == .rename, let source = call.source, source.hasPrefix(out + "/") else { return 0 }
            let fd = open(source, O_RDONLY | O_CLOEXEC)
            if fd >= 0 { isStale.withLock { $0 = LocalTree<Workspace>().isStale(Descriptor(owning: fd)) } }
            return 0
        }
        try CallWatcher.watch(out, answer) { _ = try transfer(isNew: false) }
        #expect(isStale.withLock(\.self) == false)
    }
}
