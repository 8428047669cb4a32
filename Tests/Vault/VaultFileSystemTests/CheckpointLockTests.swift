import FileSystem
import Glibc
import LinuxSystem
import Locking
import Synchronization
import TestSupport
import Testing
import VaultStore

@testable import VaultFileSystem

/// Checkpoints of the log while the vault is being locked (Manual/Locking.md).
@Suite(.timeLimit(.minutes(60))) struct CheckpointLockTests {
    @Test("a lock waits for no checkpoint, and the checkpoint needs no key")
    func atOnce() throws {
        let vault = try MountedVault()
        try vault.file("f", pattern(20_000))
        try vault.remount()
        let system = vault.system
        let id = try system.lookUp(ascii("f"), in: .root).id
        let handle = try system.open(id, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)
        try vault.write(handle, [1, 2, 3])
        let state = Monitor((isHeld: true, hasBegun: false, isLocked: false))
        let name = try #require(vault.backing("f").split(separator: "/").last)
        let hold = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .synchronize, call.path.hasSuffix(name) else { return 0 }
            state.update { $0.hasBegun = true }
            state.wait { $0.isHeld ? nil : () }
            return 0
        }
        try CallWatcher.watch(vault.path, hold) {
            let checkpoint = try BackgroundThread { try? system.store.log.checkpoint(.due) }
            let begun: Void? = state.wait(until: .now + .seconds(60)) { $0.hasBegun ? () : nil }
            #expect(begun != nil)
            let locking = try BackgroundThread {
                system.gate.enter(.locked)
                system.sealEverything()
                _ = system.forgetKeys(everything: false)
                state.update { $0.isLocked = true }
            }
            let locked: Void? = state.wait(until: .now + .seconds(60)) { $0.isLocked ? () : nil }
            #expect(locked != nil)
            state.update { $0.isHeld = false }
            locking.join()
            checkpoint.join()
        }
        #expect(!handle.file.hasKeys && system.store.log.usedSize == 0)
        system.gate.enter(.unlocked)
        try system.restoreKeys(vault.masterKey)
        #expect(try Array(vault.read(handle).prefix(5)) == [1, 2, 3] + pattern(5)[3...])
        system.release(handle)
    }

    @Test("a write has its own time while a checkpoint puts earlier ones in place")
    func timeOfWrite() throws {
        let vault = try MountedVault()
        let id = try vault.file("f", pattern(4096)).id
        let system = vault.system
        let handle = try system.open(id, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)
        defer { system.release(handle) }
        try vault.write(handle, [1, 2, 3])
        let modified = { @Sendable () throws -> [Int] in
            let time = try system.attributes(id).st_mtim
            return [time.tv_sec, time.tv_nsec]
        }
        let earlier = try modified()
        let seen = Mutex<[Int]?>(nil)
        // Safe because this thread makes the watched calls.
        nonisolated(unsafe) let writer = vault
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            let isLog = call.path.hasSuffix("/vaultfs.log")
            guard call.kind == .write, !isLog, seen.withLock({ $0 == nil }) else { return 0 }
            seen.withLock { $0 = earlier }
            awaitTick()
            // Writes a new chunk, which goes in place at once.
            try? writer.write(handle, pattern(4096), at: 4096)
            seen.withLock { $0 = try? modified() }
            return 0
        }
        try CallWatcher.watch(vault.path, answer) { try system.store.log.checkpoint(.due) }
        let after = try modified()
        #expect(after != earlier && seen.withLock { $0 } == after)
    }
}
