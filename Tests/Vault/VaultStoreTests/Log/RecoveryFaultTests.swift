import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import VaultStore

/// A recovery on a store that lacks space, descriptors, a right, or an answer. The data is undamaged, so everything is
/// kept, and readable meanwhile (FileFormat: Log-17).
@Suite(.timeLimit(.minutes(60))) struct RecoveryFaultTests {
    private static let c = 4096
    private let vault: TestStore
    private let contents: [String: [UInt8]]

    /// Makes files with each kind of change, all in the log only.
    init() throws {
        vault = try TestStore(in: TemporaryDirectory.memory)
        let c = Self.c
        for name in ["written", "cut", "holed", "grown"] { try vault.make(pattern(6 * c + 500), entry: name) }
        let store = try vault.open(cacheSize: 0)
        let (written, cut) = (try vault.reopen("written", in: store), try vault.reopen("cut", in: store))
        let (holed, grown) = (try vault.reopen("holed", in: store), try vault.reopen("grown", in: store))
        try written.put(pattern(2 * c, seed: 2), at: c)
        try cut.truncate(to: 2 * c + 100)
        try cut.put(pattern(c, seed: 3), at: 2 * c + 100)
        try holed.punchHole(UInt64(c)..<UInt64(4 * c), workspace: Workspace(layout: store.layout))
        try holed.put(pattern(100, seed: 4), at: 2 * c)
        try grown.put(pattern(3000, seed: 5), at: 6 * c + 500)
        for file in [written, cut, holed, grown] { try file.synchronize(dataOnly: true) }
        contents = [
            "written": try written.contents(), "cut": try cut.contents(), "holed": try holed.contents(),
            "grown": try grown.contents(),
        ]
    }

    private func open(_ vault: TestStore, isReadOnly: Bool = false, setsAside: Bool = false) throws(StoreError) -> Store
    {
        try Store(
            root: FileDescriptor(rawValue: vault.root.fd), keyRing: vault.keyRing, cacheSize: 0, isReadOnly: isReadOnly,
            setsLogAside: setsAside)
    }

    private func logs(_ vault: TestStore) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: vault.path).filter { $0.hasPrefix("vaultfs.log") }
    }

    private func check(_ vault: TestStore, _ store: Store, _ context: Comment, without: String? = nil) throws {
        for (name, content) in contents where name != without {
            #expect(try vault.reopen(name, in: store).contents() == content, context)
        }
    }

    @Test(
        "Log-17: an error at any call of a recovery or a repair loses nothing, and sets nothing aside",
        arguments: CallFaults.Kind.allCases.filter { $0 != .tooLarge }, [false, true])
    func everyCall(kind: CallFaults.Kind, setsAside: Bool) throws {
        // A store that interrupts every call for good would make this loop endless.
        for count in kind == .interrupted ? [1, 3] : [1, 3, .max] {
            var first = 0
            while true {
                let context: Comment = "\(kind) \(count) times from call \(first)"
                let copy = try TestStore(copying: vault)
                let faults = CallFaults(kind, first: first, count: count)
                faults.during(in: copy.path) {
                    do throws(StoreError) { _ = try open(copy, setsAside: setsAside) } catch {
                        if case .damaged = error { Issue.record("\(context): \(error)") }
                    }
                }
                guard faults.isReached else { break }
                #expect(try logs(copy) == ["vaultfs.log"], context)
                try check(copy, open(copy, isReadOnly: true), context)
                let store = try open(copy, setsAside: setsAside)
                #expect(store.problems.isEmpty, context)
                try check(copy, store, context)
                first += count == 1 ? 1 : 3
            }
            #expect(first > 3)
        }
    }

    @Test(
        "Log-17: each lack has a message that says what to do",
        arguments: [
            (.noSpace, "free 1 MiB there"), (.diskQuotaExceeded, "free 1 MiB there"),
            (.tooManyOpenFiles, "raise the limit of open files"), (.noMemory, "free memory"),
            (.readOnlyFileSystem, "make the store writable"), (.permissionDenied, "become the vault's owner"),
            (.ioError, "see why the store does not answer"),
            (Errno(rawValue: ENOTCONN), "see why the store does not answer"),
        ] as [(Errno, String)], [false, true])
    func lacks(lack: (errno: Errno, advice: String), setsAside: Bool) throws {
        let before = try vault.bytes("vaultfs.log")
        let answer = { @Sendable [vault] (call: WatchedCall) -> Int32 in
            call.kind == .write && call.path == vault.path("written") ? lack.errno.rawValue : 0
        }
        CallWatcher.watch(vault.path, answer) {
            do throws(StoreError) {
                _ = try open(vault, setsAside: setsAside)
                Issue.record("it succeeds")
            } catch {
                #expect(
                    error
                        == .unavailable(
                            lack.errno,
                            "changes in vaultfs.log cannot be put in place (\(lack.errno)): \(lack.advice), then try again"
                        ))
                #expect(error.errno == lack.errno)
            }
        }
        #expect(try vault.bytes("vaultfs.log") == before)
        try check(vault, open(vault, isReadOnly: true), "read-only")
        let store = try open(vault)
        #expect(store.problems.isEmpty)
        try check(vault, store, "again")
    }

    @Test("Log-17: a file that the store cannot have as large as its changes need costs only those, and is named")
    func tooLarge() throws {
        let answer = { @Sendable [vault] (call: WatchedCall) -> Int32 in
            call.kind == .write && call.path == vault.path("grown") ? EFBIG : 0
        }
        try CallWatcher.watch(vault.path, answer) {
            let store = try open(vault)
            #expect(store.problems.count == 1 && store.problems[0].contains(vault.entry("grown")), "\(store.problems)")
            try check(vault, store, "the others", without: "grown")
            #expect(try vault.reopen("grown", in: store).contents() == pattern(6 * Self.c + 500))
        }
        #expect(try open(vault).problems.isEmpty)
    }

    @Test("Log-17: a damaged file keeps the vault from being written, and a repair sets the log aside")
    func damaged() throws {
        try vault.change("written") { $0[100] ^= 1 }
        #expect(damage { _ = try open(vault) }?.contains("verify --repair") == true)
        #expect(try logs(vault) == ["vaultfs.log"])
        // If space is lacking too, that error comes first.
        let answer = { @Sendable [vault] (call: WatchedCall) -> Int32 in
            call.kind == .write && call.path == vault.path("cut") ? ENOSPC : 0
        }
        CallWatcher.watch(vault.path, answer) {
            #expect(throws: StoreError.self) { try open(vault, setsAside: true) }
        }
        #expect(try logs(vault) == ["vaultfs.log"])
        let store = try open(vault, setsAside: true)
        try check(vault, store, "the others", without: "written")
    }
}
