import FileSystem
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultStore

@testable import VaultFileSystem

/// The log does not work, and the durability thread makes a new one when the store answers again (FileFormat: Log-14).
@Suite(.timeLimit(.minutes(20))) struct RenewalTests {
    /// A vault whose log fails on demand, with the durability thread.
    private final class Place {
        let vault: MountedVault
        private let isGone = Monitor(false)
        private let thread: BackgroundThread

        init() throws {
            let vault = try MountedVault()
            self.vault = vault
            thread = try BackgroundThread { [durability = vault.system.store.durability] in durability.run() }
        }

        deinit {
            vault.system.store.durability.stop()
            thread.join()
            vault.system.shutDown()
        }

        func file(_ name: String) throws -> FileHandle {
            let id = try vault.file(name, pattern(10_000)).id
            return try vault.system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
        }

        /// Runs `body`, which gets functions that make the log fail and work again.
        func watching(_ body: (_ fail: () -> Void, _ mend: () -> Void) throws -> Void) rethrows {
            let answer = { @Sendable [isGone] (call: WatchedCall) -> Int32 in
                call.path.contains("/vaultfs.log") && isGone.access { $0 } ? EIO : 0
            }
            try CallWatcher.watch(vault.path, answer) {
                defer { isGone.update { $0 = false } }
                try body({ isGone.update { $0 = true } }, { isGone.update { $0 = false } })
            }
        }
    }

    @Test("Log-14: when the store answers again, a write and an fsync wait for the new log, and fail no more")
    func awaited() throws {
        let place = try Place()
        let (vault, handle) = (place.vault, try place.file("a"))
        try vault.write(handle, [1])
        try place.watching { fail, mend in
            fail()
            expect(.ioError) { try vault.system.synchronize(handle, dataOnly: true) }
            mend()
            // A request does not wait for a thread that has not begun.
            try poll("the durability thread", timeout: .seconds(60)) { vault.system.store.problems.isEmpty }
            try vault.write(handle, [1])
            fail()
            expect(.ioError) { try vault.system.synchronize(handle, dataOnly: true) }
            mend()
            try vault.system.synchronize(handle, dataOnly: true)
            fail()
            expect(.ioError) { try vault.write(handle, [2]) }
            mend()
            try vault.write(handle, [3])
        }
        // The request may be quicker than the thread's report.
        try poll("the checkpoint", timeout: .seconds(20)) { vault.system.store.problems.isEmpty }
        #expect(try vault.read(handle).first == 3)
        vault.system.release(handle)
    }

    @Test("A lock's seals do not wait for a new log, once for each file with changes in the old one")
    func sealing() throws {
        let place = try Place()
        let handles = try (0..<4).map { try place.file("\($0)") }
        for handle in handles { try place.vault.write(handle, [1]) }
        place.watching { fail, _ in
            fail()
            expect(.ioError) { try place.vault.write(handles[0], [2]) }
            let begin = monotonicMilliseconds()
            place.vault.system.sealEverything()
            #expect(monotonicMilliseconds() - begin < 3000)
        }
        try poll("the new log", timeout: .seconds(20)) { place.vault.system.store.problems.isEmpty }
        for handle in handles { place.vault.system.release(handle) }
    }
}
