import FileSystem
import Glibc
import LinuxSystem
import Locking
import TestSupport
import Testing
import VaultFormat
import VaultStore

@testable import VaultFileSystem

/// Locks that forget the keys, and so must seal all earlier writes (Manual/Protection.md).
@Suite(.timeLimit(.minutes(60))) struct SealedAtLockTests {
    private static let names = ["appended", "cut", "overwritten", "sparse", "new", "open"]

    /// Makes closed files with each kind of change, and an open one, whose handle is returned.
    private func change(_ vault: MountedVault) throws -> FileHandle {
        for name in Self.names.dropLast(2) { try vault.file(name, pattern(9000)) }
        let system = vault.system
        system.sealClosed()
        for name in Self.names.dropLast(2) {
            let id = try system.lookUp(ascii(name), in: .root).id
            let handle = try system.open(id, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)
            switch name {
            case "appended": try vault.write(handle, [1, 2, 3], at: 9000)
            case "cut": try handle.file.setLength(5000, workspace: vault.workspace)
            case "overwritten": try vault.write(handle, [1], at: 10)
            default: try handle.file.setLength(2 << 20, workspace: vault.workspace)
            }
            system.release(handle)
        }
        try vault.file("new", pattern(4))
        let (_, open) = try system.create(ascii("open"), in: .root, mode: 0o600, flags: O_RDWR, for: vault.caller)
        try vault.write(open, pattern(100))
        // This change is only in the log.
        try vault.write(open, [1], at: 100)
        #expect(open.file.isLogged)
        return open
    }

    /// The backing paths, before a lock hides the names.
    private func paths(_ vault: MountedVault) throws -> [String] { try Self.names.map { try vault.backing($0) } }

    private func isSealed(_ path: String) throws -> Bool {
        try FileHeader.parse(Array(Bytes.of(path).prefix(FileHeader.size))).isSealed
    }

    @Test("all files, also those with changes in the log, and those that are open", arguments: [false, true])
    func sealed(isForced: Bool) throws {
        let setup = try SilentStore(isForced ? .refuse : .forget, patience: 20_000)
        let open = try change(setup.vault)
        defer { setup.vault.system.release(open) }
        let paths = try paths(setup.vault)
        setup.controller.lock(.command, forgetsKeys: isForced)
        let receipt = try setup.nextComplete()
        #expect(receipt.missingData == [] && setup.vault.system.presentKeys.count == 3)
        // An unmount now must not change the result.
        setup.vault.system.shutDown()
        for (name, path) in zip(Self.names, paths) { #expect(try isSealed(path), "\(name)") }
    }

    @Test("a file of class unless-open that is written during the lock, at its last close")
    func closedLater() throws {
        let setup = try SilentStore(.forget, patience: 20_000)
        let (vault, system) = (setup.vault, setup.vault.system)
        let (entry, handle) = try system.create(
            ascii("open"), in: .root, mode: 0o600, flags: O_RDWR, for: vault.caller)
        try system.setAttribute(entry.id, ascii("user.vaultfs.class"), value: ascii("unless-open"), flags: 0)
        try vault.write(handle, pattern(9000))
        let path = try vault.backing("open")
        try setup.lockWholly()
        try vault.write(handle, [1, 2, 3], at: 9000)
        #expect(try !isSealed(path))
        system.release(handle)
        try poll("the last close's purge", timeout: .seconds(20)) { !handle.file.hasKeys }
        #expect(try isSealed(path))
    }

    @Test("a checkpoint that hangs keeps no keys: the receipt counts the files, and the unlock seals them")
    func silent() throws {
        let setup = try SilentStore(.forget, patience: 3000)
        let vault = setup.vault
        let open = try change(vault)
        let paths = try paths(vault)
        let isHeld = Monitor(true)
        let hold = { @Sendable (call: WatchedCall) -> Int32 in
            // A checkpoint puts a cut in place by this call.
            if call.kind == .truncate, call.path == paths[1] { isHeld.wait { $0 ? nil : () } }
            return 0
        }
        try CallWatcher.watch(vault.path, hold) {
            setup.controller.lock(.command)
            let receipt = try setup.next()
            #expect(receipt.complete && vault.system.presentKeys.count == 3, "\(receipt.unpurged)")
            #expect(receipt.missingData?.contains { $0.contains("could not be authenticated") } == true)
            #expect(try !isSealed(paths[1]))
            isHeld.update { $0 = false }
            #expect(try setup.unlock(setup.key).awaited() == .success(false))
        }
        // An open file without keys is sealed at its close.
        vault.system.release(open)
        vault.system.sealClosed()
        for (name, path) in zip(Self.names, paths) { #expect(try isSealed(path), "\(name)") }
    }

    @Test("a dead store does not delay the lock, which says that it is dead")
    func dead() throws {
        let setup = try SilentStore(.forget, patience: 20_000)
        let vault = setup.vault
        let open = try change(vault)
        defer { vault.system.release(open) }
        try CallFaults(.error, first: 0, count: .max).during(in: vault.path) {
            setup.controller.lock(.command)
            let receipt = try setup.next()
            #expect(receipt.complete && vault.system.presentKeys.count == 3, "\(receipt.unpurged)")
            let missing = try #require(receipt.missingData)
            #expect(missing.contains { $0.contains("could not be authenticated") }, "\(missing)")
            #expect(missing.contains { $0.contains("store fails") }, "\(missing)")
        }
    }

    @Test("a sync that hangs is told too: nobody knows what is durable")
    func unknown() throws {
        let setup = try SilentStore(.refuse)
        let vault = setup.vault
        let open = try change(vault)
        defer { vault.system.release(open) }
        let paths = try paths(vault)
        let isHeld = Monitor(true)
        let hold = { @Sendable (call: WatchedCall) -> Int32 in
            if call.kind == .synchronize, paths.contains(call.path) { isHeld.wait { $0 ? nil : () } }
            return 0
        }
        // Leave one request in flight, because the lock's later timeouts are short after such a request.
        let inFlight = vault.system.gate.register()
        vault.system.gate.enter(inFlight)
        try CallWatcher.watch(vault.path, hold) {
            setup.controller.lock(.command)
            let receipt = try setup.next()
            #expect(receipt.missingData?.contains { $0.contains("does not answer") } == true)
            isHeld.update { $0 = false }
            vault.system.gate.leave(inFlight)
            #expect(try setup.nextComplete().missingData == [])
        }
    }
}
