import FileSystem
import Glibc
import LinuxSystem
import Locking
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import VaultFileSystem
@testable import VaultStore

/// A store that fails under a mount: the errors that show it, its end, and the report at the unmount
/// (Manual/Recovery.md, "The disk or the server goes away").
@Suite(.timeLimit(.minutes(60))) struct StoreFailureTests {
    private static let ofStore: [Errno] = [
        .ioError, .readOnlyFileSystem, Errno(rawValue: ENODEV), .socketNotConnected, .socketShutdown, .timedOut,
        .connectionAbort,
        Errno(rawValue: EUCLEAN),
    ]
    private static let ofObjects: [StoreError] =
        [
            .noSuchFileOrDirectory, .fileExists, .directoryNotEmpty, .permissionDenied, .noSpace, .diskQuotaExceeded,
            .notPermitted, Errno(rawValue: ENAMETOOLONG), .fileTooLarge, .tooManyOpenFiles, .staleNFSFileHandle,
            .noData,
        ].map { .system($0) } + [
            .locked, .expired, .damaged("chunk 1: its data is damaged"), .refused(.ioError),
            .refused(.readOnlyFileSystem),
        ]

    @Test("an error of the store that a program gets is a problem; one of its object, or of the request, is none")
    func kinds() throws {
        let vault = try MountedVault()
        let store = vault.system.store
        for error in Self.ofObjects {
            vault.system.failed(error)
            #expect(store.problems.isEmpty && vault.system.missingData.isEmpty, "\(error)")
        }
        for errno in Self.ofStore {
            vault.system.failed(.system(errno))
            #expect(store.problems.count == 1 && store.problems.first?.contains("\(errno)") == true, "\(errno)")
            #expect(vault.system.missingData == store.problems)
            // The store answers this, so the fault ends.
            try vault.system.synchronizeEverything()
            #expect(store.problems.isEmpty && vault.system.missingData.isEmpty, "\(errno)")
        }
    }

    @Test("a refusal of vaultfs itself is none: a conflict copy, a read-only mount")
    func refusals() throws {
        let vault = try MountedVault()
        try vault.file("f", pattern(10))
        try vault.remount(isReadOnly: true)
        do throws(StoreError) { try vault.system.store.admitChange() } catch { vault.system.failed(error) }
        #expect(vault.system.store.problems.isEmpty)
        vault.system.failed(.system(.ioError))
        #expect(vault.system.store.problems.count == 1)
        // A read-only mount has written nothing, so it misses no data.
        #expect(vault.system.missingData.isEmpty)
    }

    @Test("the problem stays while the store takes no change, and if it fails again during the check")
    func confirmation() throws {
        let vault = try MountedVault()
        let durability = vault.system.store.durability
        vault.system.failed(.system(.readOnlyFileSystem))
        let refuse = { @Sendable (call: WatchedCall) -> Int32 in call.kind == .create ? EROFS : 0 }
        CallWatcher.watch(vault.path, refuse) {
            #expect(throws: StoreError.system(.readOnlyFileSystem)) { try durability.confirm() }
        }
        #expect(vault.system.store.problems.count == 1)
        let again = { @Sendable (call: WatchedCall) -> Int32 in
            if call.kind == .synchronize { durability.met(.system(.ioError)) }
            return 0
        }
        try CallWatcher.watch(vault.path, again) { try durability.confirm() }
        #expect(vault.system.store.problems.count == 1)
        // A full disk has answered, so the store works again.
        try CallFaults(.full, first: 0, count: .max).during(in: vault.path) { try durability.confirm() }
        #expect(vault.system.store.problems.isEmpty)
        #expect(try vault.names().isEmpty)
    }

    @Test("it ends by itself when the store works again")
    func healing() throws {
        let vault = try MountedVault()
        let durability = vault.system.store.durability
        let thread = try BackgroundThread { durability.run() }
        vault.system.failed(.system(.ioError))
        try poll("the check", timeout: .seconds(60)) { vault.system.store.problems.isEmpty }
        durability.stop()
        thread.join()
    }

    @Test("a sync of names that fails is a problem until one succeeds")
    func names() throws {
        let vault = try MountedVault()
        let fail = { @Sendable (call: WatchedCall) -> Int32 in call.kind == .synchronizeAll ? ENOSPC : 0 }
        CallWatcher.watch(vault.path, fail) {
            #expect(throws: StoreError.system(.noSpace)) { try vault.system.synchronizeEverything() }
        }
        #expect(vault.system.missingData.first?.hasPrefix("names and attributes") == true)
        try vault.system.synchronizeEverything()
        #expect(vault.system.missingData.isEmpty)
    }

    @Test(
        "an end that cannot be recorded for lack of room is no missing data: everything is in place",
        arguments: [ENOSPC, EDQUOT])
    func noRoomAtEnd(_ errno: Int32) throws {
        let ending = try Ending()
        let logged = Mutex<[String]>([])
        ending.system.store.reportProblems(to: { line in logged.withLock { $0.append(line) } })
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .write && call.path.hasSuffix("/vaultfs.lock") ? errno : 0
        }
        CallWatcher.watch(ending.vault.path, answer) { ending.system.shutDown() }
        #expect(ending.system.missingData.isEmpty)
        #expect(logged.withLock { $0.count == 1 && $0[0].hasPrefix("a clean end cannot be recorded") })
        #expect(try !ending.isClean())
        try ending.check("\(errno)")
    }

    @Test("the problem of several files is one line, with their number and the first names")
    func severalFiles() throws {
        let vault = try MountedVault()
        let names = ["a", "b", "c", "d"]
        for name in names { try vault.file(name, pattern(10_000)) }
        try vault.remount()
        let handles = try names.map { try vault.opened($0) }
        for handle in handles { try vault.write(handle, [1], at: 5000) }
        let system = vault.system
        let fail = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .write && !call.path.hasSuffix("/vaultfs.log") ? EIO : 0
        }
        CallWatcher.watch(vault.path, fail) { _ = try? system.store.log.checkpoint(.due) }
        let found = system.problems.filter { $0.hasPrefix("changes of a file") }
        #expect(found.count == 1 && system.store.problems.count == 1, "\(system.problems)")
        let line = try #require(found.first)
        #expect(line.contains(": 4 files, such as "))
        let named = try #require(line.split(separator: "such as ").dropFirst().first)
        #expect(named.split(separator: ", ").allSatisfy { names.contains(String($0)) })
        for handle in handles.dropFirst() {
            try handle.file.synchronize(dataOnly: true)
        }
        let first = try vault.backing("a")
        let failOne = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .write && call.path == first ? EIO : 0
        }
        CallWatcher.watch(vault.path, failOne) { _ = try? system.store.log.checkpoint(.due) }
        #expect(system.problems.count == 1 && system.problems[0].hasSuffix("tried again: a"), "\(system.problems)")
        try system.store.log.checkpoint(.due)
        #expect(system.problems.isEmpty)
        for handle in handles { system.release(handle) }
    }

    @Test("'vaultfs sync' goes on after a file that fails, and ends with its error")
    func syncOfOthers() throws {
        let vault = try MountedVault()
        for name in ["a", "b", "c"] { try vault.file(name, pattern(10_000)) }
        try vault.remount()
        let handles = try ["a", "b", "c"].map { try vault.opened($0) }
        for handle in handles { try vault.write(handle, [1], at: 5000) }
        let (first, bad, last) = (try vault.backing("a"), try vault.backing("b"), try vault.backing("c"))
        let synced = Mutex<Set<String>>([])
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            if call.kind == .synchronize { synced.withLock { _ = $0.insert(call.path) } }
            return call.kind == .synchronize && call.path == bad ? EIO : 0
        }
        CallWatcher.watch(vault.path, answer) {
            #expect(throws: StoreError.system(.ioError)) { try vault.system.synchronizeEverything() }
        }
        #expect(synced.withLock { $0.isSuperset(of: [first, bad, last]) })
        #expect(!handles[0].file.isLogged && !handles[2].file.isLogged)
        try vault.system.synchronizeEverything()
        #expect(vault.system.problems.isEmpty)
        for handle in handles { vault.system.release(handle) }
    }

    @Test("background work that the store does not answer has a time, until it is answered")
    func silence() throws {
        let vault = try MountedVault()
        let activity = vault.system.store.durability.activity
        let before = monotonicNanoseconds()
        let seen = Mutex<[Int?]>([])
        let look = { @Sendable (call: WatchedCall) -> Int32 in
            if call.kind == .synchronizeAll { seen.withLock { $0.append(activity.oldest) } }
            return 0
        }
        try CallWatcher.watch(vault.path, look) { try vault.system.synchronizeEverything() }
        #expect(seen.withLock { times in !times.isEmpty && times.allSatisfy { $0.map { $0 >= before } ?? false } })
        #expect(activity.oldest == nil)
    }

    @Test("a file that another program removes after it was written is told at the end; one that was unlinked is not")
    func removed() throws {
        for isForeign in [true, false] {
            let vault = try MountedVault()
            try vault.file("f", pattern(10))
            if isForeign {
                try #require(unlink(vault.backing("f")) == 0)
            } else {
                try vault.system.remove(ascii("f"), in: .root, isDirectory: false)
            }
            vault.system.shutDown()
            #expect(vault.system.missingData.isEmpty != isForeign)
        }
    }

    // MARK: The end

    /// A mount with acknowledged changes that are not in place yet, and its writer lock.
    private struct Ending {
        static let content = pattern(10_000, seed: 2) + pattern(3000)
        let vault: MountedVault
        let system: VaultFileSystem
        private let root: Descriptor
        private let handle: FileHandle

        init() throws {
            vault = try MountedVault()
            try vault.file("f", pattern(10_000))
            vault.system.shutDown()
            root = try Descriptor(path: FilePath(bytes: ascii(vault.path)), flags: O_RDONLY | O_DIRECTORY)
            system = try Self.mount(vault, root)
            // The file stays open until the end, as at a SIGTERM.
            let id = try system.lookUp(ascii("f"), in: .root).id
            handle = try system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
            _ = try Self.content.withUnsafeBytes {
                try system.write(handle, $0, at: 0, workspace: vault.workspace)
            }
            let (_, new) = try system.create(ascii("new"), in: .root, mode: 0o600, flags: O_RDWR, for: .root)
            _ = try pattern(50).withUnsafeBytes { try system.write(new, $0, at: 0, workspace: vault.workspace) }
            system.release(new)
            _ = try system.make(ascii("directory"), in: .root, .directory(mode: 0o700), for: .root)
        }

        static func mount(_ vault: MountedVault, _ root: Descriptor) throws -> VaultFileSystem {
            let lock = try #require(
                try WriterLock.acquire(root: root, .exclusive, wait: .seconds(60), isRemote: false))
            let store = try Store(
                root: FileDescriptor(rawValue: root.fd), keyRing: vault.keyRing, cacheSize: 0, isReadOnly: false,
                writerLock: lock)
            return try VaultFileSystem(store: store)
        }

        /// Returns true if the lock file records a clean end.
        func isClean() throws -> Bool { try Bytes.of(vault.path + "/vaultfs.lock") == ascii("\n") }

        /// Expects all changes in the next mount.
        func check(_ context: Comment) throws {
            let next = try Self.mount(vault, root)
            for (name, content) in [("f", Self.content), ("new", pattern(50))] {
                let id = try next.lookUp(ascii(name), in: .root).id
                let handle = try next.open(id, flags: O_RDONLY, for: .root, workspace: vault.workspace)
                #expect(try vault.read(handle, next) == content, context)
                next.release(handle)
            }
            _ = try next.lookUp(ascii("directory"), in: .root)
            next.shutDown()
            #expect(next.missingData.isEmpty, context)
        }
    }

    @Test(
        "an end that meets an error at any call says so, or has everything in place and notes it",
        arguments: [1, 3, Int.max])
    func replay(count: Int) throws {
        var number = 0
        while true {
            let context = Comment("\(count) calls fail from \(number) on")
            let ending = try Ending()
            let faults = CallFaults(.error, first: number, count: count)
            faults.during(in: ending.vault.path) { ending.system.shutDown() }
            let missing = ending.system.missingData
            #expect(try ending.isClean() == missing.isEmpty, "\(context): \(missing)")
            #expect(!missing.contains { $0.hasSuffix("tried again") }, "\(context): \(missing)")
            if !faults.isReached {
                #expect(missing.isEmpty, context)
                break
            }
            // If the store fails for good, data is missing at the end, whichever call was the first to fail.
            if count == .max { #expect(!missing.isEmpty, context) }
            try ending.check(context)
            number += 1
        }
        #expect(number > 15)
    }
}
