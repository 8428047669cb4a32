import CLinux
import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import VaultStore

/// The lock seen by other machines (FileFormat, "The lock file"): the processes excluded by it, and the detection of
/// its loss.
@Suite(.timeLimit(.minutes(60))) struct WriterLockTests {
    private let vault: TestStore
    private var noteFile: String { vault.path + "/vaultfs.lock" }

    init() throws { vault = try TestStore() }

    /// Waits for a released lock, because a child started by another test has a copy until it runs its program.
    private func acquire(
        _ sharing: VaultDirectory.Sharing = .exclusive, isRemote: Bool = true, wait: Duration = .seconds(60)
    ) throws -> WriterLock? {
        try WriterLock.acquire(root: vault.root, sharing, wait: wait, isRemote: isRemote)
    }

    private func expectRefusal(
        _ sharing: VaultDirectory.Sharing = .exclusive, isRemote: Bool = true,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        expect(.resourceTemporarilyUnavailable, sourceLocation: sourceLocation) {
            _ = try acquire(sharing, isRemote: isRemote, wait: .zero)
        }
    }

    /// Takes the lock away as another machine does.
    private func takeOver() throws {
        try Data(WriterRecord.elsewhere.bytes)
            .write(to: URL(fileURLWithPath: noteFile), options: [])
    }

    /// Makes the last check too old for trust.
    private func age(_ hold: WriterLock) { hold.lastCheck.store(0, ordering: .releasing) }

    @Test("Store-29: one writer at a time, and none beside readers: also if the flock on the directory is not visible")
    func exclusion() throws {
        var writer = try acquire()
        expectRefusal()
        expectRefusal(.shared)
        try #require(writer).claim()
        writer = nil
        let readers = [try acquire(.shared), try acquire(.shared)]
        #expect(readers.allSatisfy { $0 != nil })
        expectRefusal()
        withExtendedLifetime(readers) {}
    }

    @Test("Store-29: the lock of an older release, on the whole file, excludes the new one, and the new one that")
    func olderLock() throws {
        var writer = try acquire()
        var file: Descriptor? = try Descriptor(at: vault.root, WriterLockFile.entry, flags: O_RDWR)
        let fd = try #require(file).fd
        #expect(linux_lock_bytes(fd, F_WRLCK, 0, 0) == -1 && linux_lock_bytes(fd, F_RDLCK, 0, 0) == -1)
        withExtendedLifetime(writer) {}
        writer = nil
        #expect(linux_lock_bytes(fd, F_RDLCK, 0, 0) == 0)
        expectRefusal()
        #expect(try acquire(.shared) != nil)
        #expect(linux_lock_bytes(fd, F_WRLCK, 0, 0) == 0)
        expectRefusal(.shared)
        linux_lock_bytes(fd, F_UNLCK, 0, 0)
        file = nil
        #expect(try acquire() != nil)
    }

    @Test("Store-29: where locks are mandatory (SMB), the record of a locked file can be read and checked")
    func mandatoryLocks() throws {
        try SmbStore().run(in: vault.path) {
            let writer = try #require(try acquire())
            try writer.claim()
            try writer.verifyNow()
            #expect(WriterLockFile.record(in: vault.root) != nil)
            expectRefusal()
            writer.release()
            #expect(WriterLockFile.isClean(vault.root))
        }
    }

    @Test("Store-35: a check that the store does not answer ends after the time that is set, and later goes on")
    func limitedCheck() throws {
        let hold = try #require(try acquire())
        try hold.claim(waitMilliseconds: 0)
        hold.limitChecks(seconds: 1)
        let state = Monitor((isHeld: false, mayEnd: false))
        let stuck = try BackgroundThread {
            hold.state.withLock { _ in
                state.update { $0.isHeld = true }
                _ = state.wait(until: .now + .seconds(60)) { $0.mayEnd ? () : nil }
            }
        }
        #expect(state.wait(until: .now + .seconds(60)) { $0.isHeld ? () : nil } != nil)
        for _ in 0..<2 {
            age(hold)
            #expect(throws: StoreError.system(.timedOut)) { try hold.verify() }
        }
        state.update { $0.mayEnd = true }
        stuck.join()
        hold.limitChecks(seconds: 60)
        try hold.verify()
        try takeOver()
        age(hold)
        expectLoss { try hold.verify() }
    }

    @Test(
        "Without room for the record nothing is claimed, what the last writer has left stays, and the error says what to do",
        arguments: [ENOSPC, EDQUOT])
    func noRoom(_ errno: Int32) throws {
        try vault.write(Array("incomplete\n".utf8), to: "vaultfs.lock")
        let hold = try #require(try acquire())
        // On btrfs the write fails, on NFS the sync.
        for kind in [WatchedCall.Kind.write, .synchronize] {
            let answer = { @Sendable (call: WatchedCall) -> Int32 in
                call.kind == kind && call.path.hasSuffix("/vaultfs.lock") ? errno : 0
            }
            CallWatcher.watch(vault.path, answer) {
                do throws(StoreError) {
                    try hold.claim()
                    Issue.record("claimed")
                } catch {
                    guard case .unavailable(let found, let reason) = error else {
                        Issue.record("\(error)")
                        return
                    }
                    #expect(found.rawValue == errno && reason.hasPrefix("vaultfs.lock cannot be written ("))
                    #expect(reason.hasSuffix(": free 1 MiB there, then try again"))
                }
            }
            #expect(try vault.bytes("vaultfs.lock") == Array("incomplete\n".utf8))
        }
        try hold.claim(waitMilliseconds: 0)
        #expect(hold.followsUncleanEnd == true)
    }

    @Test("A released lock is free, although a child that was just forked has its descriptor, too")
    func inherited() throws {
        let hold = try #require(try acquire())
        try hold.claim()
        let copy = try #require(hold.state.withLock { state in state.file.map { fcntl($0.fd, F_DUPFD_CLOEXEC, 0) } })
        defer { close(copy) }
        hold.release()
        #expect(try acquire(wait: .zero) != nil)
    }

    @Test("A reader locks nothing if no writer existed, and makes no file")
    func reader() throws {
        #expect(try acquire(.shared) == nil)
        #expect(!FileManager.default.fileExists(atPath: noteFile))
    }

    @Test("The writer record exists from the claim to the release")
    func note() throws {
        let hold = try #require(try acquire())
        #expect(WriterLockFile.record(in: vault.root) == nil)
        try hold.claim()
        let note = try #require(WriterLockFile.record(in: vault.root))
        #expect(note.processID == getpid() && note.isOfThisMachine)
        hold.release()
        #expect(WriterLockFile.record(in: vault.root) == nil)
        #expect(try acquire() != nil)
    }

    @Test(
        "Store-30: the file shows how the last writer ended, and an unclean end stays until all objects are completed",
        arguments: [
            (nil, false), ("", false), ("\n", false), ("incomplete\n", true), ("1 boot 7 host\n", true),
            ("1 boot 7 host 1 1\n", true), ("\0\0\0", true),
        ])
    func uncleanEnd(content: String?, isUnclean: Bool) throws {
        if let content { try Data(content.utf8).write(to: URL(fileURLWithPath: noteFile)) }
        #expect(WriterLockFile.isUnclean(vault.root) == isUnclean)
        for round in 1...3 {
            let hold = try #require(try acquire(isRemote: false))
            #expect(hold.followsUncleanEnd == nil)
            try hold.claim(waitMilliseconds: 0)
            #expect(hold.followsUncleanEnd == (isUnclean && round < 3))
            if round == 2 { hold.clearUncleanEnd() }
            hold.release()
            #expect(WriterLockFile.isUnclean(vault.root) == (isUnclean && round < 2))
            #expect(WriterLockFile.record(in: vault.root) == nil)
        }
    }

    @Test("On a full disk, a process that wants to remove something still gets the lock", .enabled(if: geteuid() == 0))
    func fullDisk() throws {
        let disk = try SmallDisk(size: 1 << 20)
        let root = Descriptor(owning: open(disk.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
        let first = try #require(try WriterLock.acquire(root: root, .exclusive, wait: .seconds(60)))
        try first.claim()
        first.release()
        let filler = try disk.fill(leaving: 0)
        try filler.extend()
        let second = try #require(try WriterLock.acquire(root: root, .exclusive, wait: .seconds(60)))
        try second.claim()
        #expect(WriterLockFile.record(in: root)?.processID == getpid())
    }

    @Test(
        "Another machine's record: nothing is changed any more, reported once; not before the check is old",
        arguments: [true, false])
    func loss(isRemote: Bool) throws {
        let hold = try #require(try acquire(isRemote: isRemote))
        try hold.claim()
        let losses = Monitor(0)
        hold.onLoss.set { losses.update { $0 += 1 } }
        try hold.verify()
        age(hold)
        try hold.verify()
        #expect(hold.lastCheck.load(ordering: .acquiring) > 0)
        try takeOver()
        // Keeps the check recent, however long this thread is delayed.
        hold.lastCheck.store(.max, ordering: .releasing)
        try hold.verify()
        for _ in 0..<2 {
            age(hold)
            expectLoss { try hold.verify() }
        }
        #expect(losses.access { $0 } == 1)
        // A release must leave the other machine's record.
        hold.release()
        #expect(WriterLockFile.record(in: vault.root)?.host == "elsewhere")
        expectLoss { try hold.verify() }
    }

    @Test("Store-29: a lock file that is removed or replaced is a loss: no second writer beside the first")
    func replaced() throws {
        for isReplaced in [false, true] {
            let first = try #require(try acquire(isRemote: isReplaced))
            try first.claim()
            unlink(noteFile)
            let second = isReplaced ? try acquire() : nil
            try second?.claim()
            age(first)
            expectLoss { try first.verify() }
            #expect(FileManager.default.fileExists(atPath: noteFile) == isReplaced)
            if let second {
                age(second)
                try second.verify()
            }
        }
    }

    @Test(
        "A loss is noticed while nothing is changed, and at the release", .timeLimit(.minutes(60)),
        arguments: [true, false])
    func watched(isWatched: Bool) throws {
        let hold = try #require(try acquire(isRemote: false))
        try hold.claim()
        let losses = Monitor(0)
        hold.onLoss.set { losses.update { $0 += 1 } }
        let watch = isWatched ? try BackgroundThread { hold.watch(interval: 1) } : nil
        unlink(noteFile)
        if isWatched { losses.wait { $0 > 0 ? () : nil } }
        hold.release()
        watch?.join()
        #expect(hold.isLost)
        #expect(losses.access { $0 } == 1)
    }

    @Test("The watch ends at the release, which is no loss", .timeLimit(.minutes(60)))
    func watchedUntilReleased() throws {
        let hold = try #require(try acquire(isRemote: false))
        try hold.claim()
        let watch = try BackgroundThread { hold.watch() }
        hold.release()
        watch.join()
        #expect(!hold.isLost)
    }

    @Test("A lock file that is restored from a copy is locked again")
    func restored() throws {
        let first = try #require(try acquire())
        try first.claim()
        let copy = try Data(contentsOf: URL(fileURLWithPath: noteFile))
        unlink(noteFile)
        try copy.write(to: URL(fileURLWithPath: noteFile), options: [])
        age(first)
        try first.verify()
        expectRefusal()
        withExtendedLifetime(first) {}
    }

    @Test("Store-36: a live process of this machine excludes others by its record, if its lock is not visible")
    func livingProcess() throws {
        let holder = try Command(["sleep", "300"]).start()
        defer { holder.kill(SIGKILL) }
        try writeNote(of: holder.pid)
        for sharing in [VaultDirectory.Sharing.exclusive, .shared] {
            expectRefusal(sharing)
            expectRefusal(sharing, isRemote: false)
        }
        // The record is of another process with the same number.
        try writeNote(of: holder.pid, startedLater: 1)
        let hold = try #require(try acquire())
        try writeNote(of: holder.pid)
        expect(.resourceTemporarilyUnavailable) { try hold.claim() }
        #expect(WriterLockFile.record(in: vault.root)?.processID == holder.pid)
        holder.kill(SIGKILL)
        #expect(holder.wait(timeout: .seconds(60)) != nil)
        let started = ContinuousClock.now
        try hold.claim(waitMilliseconds: 60_000)
        #expect(ContinuousClock.now - started < .seconds(30))
        try hold.verify()
    }

    @Test("Store-36: a living process's record in a copy of its vault does not lock the copy; in doubt it does")
    func copied() throws {
        let holder = try Command(["sleep", "300"]).start()
        defer { holder.kill(SIGKILL) }
        let here = RootIdentity(of: vault.root)
        try #require(here.device != 0 && here.inode != 0)
        let sameOrUnknown = [
            here, .unknown, RootIdentity(device: 0, inode: here.inode), RootIdentity(device: here.device, inode: 0),
            // An overlayfs may have this directory as a layer.
            RootIdentity(device: here.device | RootIdentity.overlay, inode: here.inode + 1),
        ]
        for root in sameOrUnknown {
            try writeNote(of: holder.pid, root: root)
            expectRefusal(isRemote: false)
            #expect(LockOwner(try #require(WriterLockFile.record(in: vault.root)), in: here)?.processID == holder.pid)
        }
        let others = [
            RootIdentity(device: here.device, inode: here.inode + 1),
            RootIdentity(device: here.device + 1, inode: here.inode), RootIdentity(device: 0, inode: here.inode + 1),
        ]
        for root in others {
            try writeNote(of: holder.pid, root: root)
            #expect(LockOwner(try #require(WriterLockFile.record(in: vault.root)), in: here) == nil)
            _ = try #require(try acquire(.shared))
            let hold = try #require(try acquire(isRemote: false))
            try hold.claim(waitMilliseconds: 60_000)
            #expect(hold.followsUncleanEnd == true)
            hold.release()
        }
    }

    @Test("Store-36: on an overlayfs, only the same overlayfs shows that two directories differ")
    func overlay() {
        func identity(_ device: UInt64, _ inode: UInt64) -> RootIdentity {
            RootIdentity(device: device | RootIdentity.overlay, inode: inode)
        }
        #expect(identity(5, 2).isCertainlyOther(than: identity(5, 3)))
        #expect(!identity(5, 2).isCertainlyOther(than: identity(5, 2)))
        #expect(!identity(5, 2).isCertainlyOther(than: identity(6, 3)))
        #expect(!identity(5, 2).isCertainlyOther(than: RootIdentity(device: 5, inode: 3)))
        #expect(!RootIdentity(device: 0, inode: 3).isCertainlyOther(than: identity(5, 2)))
    }

    @Test("A process of this machine in another container is waited for like another machine")
    func container() throws {
        let own = try WriterRecord.own()
        let process = ProcessIdentity(
            processID: own.processID, start: own.process.start, namespace: own.process.namespace + 1)
        let note = WriterRecord(id: "1", boot: own.boot, process: process, host: "container")
        try Data(note.bytes).write(to: URL(fileURLWithPath: noteFile), options: [])
        let started = ContinuousClock.now
        let hold = try #require(try acquire(isRemote: false))
        try hold.claim(waitMilliseconds: 60)
        #expect(ContinuousClock.now - started >= .milliseconds(60))
    }

    /// Writes a record as a mount on this machine does.
    private func writeNote(
        of processID: Int32, startedLater ticks: UInt64 = 0, root: RootIdentity = .unknown
    ) throws {
        let text = try String(contentsOfFile: "/proc/\(processID)/stat", encoding: .utf8)
        let start = try #require(text.split(separator: ")").last?.split(separator: " ").dropFirst(19).first)
        let own = try WriterRecord.own()
        let process = ProcessIdentity(
            processID: processID, start: try #require(UInt64(start)) + ticks, namespace: own.process.namespace)
        try Data(WriterRecord(id: "1", boot: own.boot, process: process, host: own.host, root: root).bytes)
            .write(to: URL(fileURLWithPath: noteFile), options: [])
    }

    @Test("Store-29: a reader refuses what is not a regular file rather than lock nothing")
    func strangeFile() throws {
        #expect(mkfifo(noteFile, 0o600) == 0)
        #expect(throws: StoreError.self) { _ = try acquire(.shared) }
        unlink(noteFile)
        #expect(symlink("vaultfs.dir", noteFile) == 0)
        #expect(throws: StoreError.self) { _ = try acquire(.shared) }
    }

    @Test("Another process's lock is a loss, too; a store that returns the lock to its former owner causes none")
    func lockAndDescriptor() throws {
        var hold = try acquire()
        try hold?.claim()
        let own = try #require(hold)
        own.loseDescriptor()
        age(own)
        try own.verify()
        own.loseDescriptor(reopening: false)
        let other = try #require(try acquire())
        age(own)
        expectLoss { try own.verify() }
        withExtendedLifetime(other) {}
        hold = nil
    }

    @Test("A release keeps another machine's record, even if nobody has checked since")
    func releaseAfterLoss() throws {
        let hold = try #require(try acquire())
        try hold.claim()
        try takeOver()
        hold.release()
        #expect(WriterLockFile.record(in: vault.root)?.host == "elsewhere")
    }

    @Test("Store-36: a writer waits for the timeout of a machine that did not release the vault")
    func waiting() throws {
        let hold = try #require(try acquire())
        try takeOver()
        let started = ContinuousClock.now
        try hold.claim(waitMilliseconds: 60)
        #expect(ContinuousClock.now - started >= .milliseconds(60))
    }

    @Test("Changes of a vault fail once another process has its lock; reads continue")
    func store() throws {
        let hold = try #require(try acquire())
        let store = try Store(
            root: FileDescriptor(rawValue: vault.root.fd), keyRing: vault.keyRing, cacheSize: 1 << 20,
            isReadOnly: false, writerLock: hold)
        let file = try vault.create(in: store)
        let workspace = try Workspace(layout: store.layout)
        let data = [UInt8](repeating: 5, count: 10_000)
        _ = try data.withUnsafeBytes { try file.write($0, at: 0, workspace: workspace) }
        try takeOver()
        age(hold)
        expectLoss { _ = try data.withUnsafeBytes { try file.write($0, at: 0, workspace: workspace) } }
        expectLoss { try file.setLength(0, workspace: workspace) }
        expectLoss { _ = try file.seal(ifStill: file.lengthMark, isDurable: false) }
        var read = [UInt8](repeating: 0, count: data.count)
        _ = try read.withUnsafeMutableBytes { try file.read(at: 0, into: $0, workspace: workspace) }
        #expect(read == data)
    }
}

extension WriterLock {
    /// Simulates a store that has dropped the descriptor: requests with it fail, and the lock is lost.
    fileprivate func loseDescriptor(reopening: Bool = true) {
        state.withLock {
            // A close would not release the lock if another test's child has a copy of the descriptor.
            if let file = $0.file { linux_lock_bytes(file.fd, F_UNLCK, 0, 0) }
            $0.file = reopening ? Descriptor(owning: Glibc.open("/dev/full", O_WRONLY)) : nil
        }
    }
}

private func expect(_ errno: Errno, sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void) {
    #expect(throws: StoreError.system(errno), sourceLocation: sourceLocation, performing: body)
}

/// Expects the refusal due to a lost vault, but not a failed store.
private func expectLoss(sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void) {
    #expect(throws: StoreError.refused(.ioError), sourceLocation: sourceLocation, performing: body)
}
