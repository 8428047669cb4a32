import FileSystem
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultStore

@testable import VaultFileSystem

/// A failed log, and the durability thread that makes a new one when the store answers again (FileFormat: Log-14).
@Suite(.timeLimit(.minutes(60))) struct RenewalTests {
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

        /// Runs `body` with two functions: one makes the log fail, the other makes it work again.
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
            // Wait for the thread's first round, because requests do not wait for a thread that has not begun.
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
        // The request may return before the thread reports the end of the problem.
        try poll("the checkpoint", timeout: .seconds(20)) { vault.system.store.problems.isEmpty }
        #expect(try vault.read(handle).first == 3)
        vault.system.release(handle)
    }

    @Test("Log-13: a log that replaces the mount's again and again is kept once, and one without entries not at all")
    func replacedAgain() throws {
        let vault = try MountedVault()
        let id = try vault.file("a", pattern(10_000)).id
        vault.system.store.durability.sealer.sealAll()
        let handle = try vault.system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
        // This write opens the log.
        try vault.write(handle, [1])
        let log = vault.path + "/vaultfs.log"
        func kept() throws -> [String] {
            try Bytes.entries(vault.path).filter { $0.hasPrefix("vaultfs.log.") }.sorted()
        }
        func replace(_ bytes: [UInt8]) throws {
            unlink(log)
            try Bytes.put(bytes, at: log)
            try vault.write(handle, [UInt8.random(in: 0...255)])
            try handle.file.synchronize(dataOnly: true)
        }
        let (first, second) = (pattern(9000), pattern(9000, seed: 7))
        for _ in 0..<3 {
            try replace(first)
            try replace(Array(ascii("vaultfs log 1\n")) + [UInt8](repeating: 0, count: 4082))
        }
        #expect(try kept() == ["vaultfs.log.damaged"])
        for bytes in [second, first, second] { try replace(bytes) }
        #expect(try kept() == ["vaultfs.log.damaged", "vaultfs.log.damaged-2"])
        vault.system.release(handle)
        try vault.remount()
        #expect(try kept().isEmpty)
        func lost() throws -> [String] {
            try vault.names(vault.system.lookUp(ascii("lost+found"), in: .root).id).sorted()
        }
        #expect(try lost() == ["vaultfs.log.damaged", "vaultfs.log.damaged-2"])
        try Bytes.put(second, at: log + ".damaged")
        try vault.remount()
        #expect(try kept().isEmpty && lost() == ["vaultfs.log.damaged", "vaultfs.log.damaged-2"])
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
