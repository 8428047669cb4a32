import FileSystem
import Glibc
import LinuxSystem
import Locking
import TestSupport
import Testing
import VaultFormat
import VaultStore

@testable import VaultFileSystem

/// Checkpoints of the log and locks beside each other (Manual/Locking.md).
@Suite(.timeLimit(.minutes(20))) struct CheckpointLockTests {
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
            let checkpoint = try BackgroundThread { try? system.store.log.checkpoint() }
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
}
