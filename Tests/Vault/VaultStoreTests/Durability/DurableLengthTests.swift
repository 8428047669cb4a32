import LinuxSystem
import Synchronization
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// The durable length in the header of a growing file (FileFormat: Header-3). It bounds the work of verifying at an
/// open after an unclean end.
@Suite(.timeLimit(.minutes(60))) struct DurableLengthTests {
    private static let grown = 300 << 20

    @Test("a file that has grown by 256 MiB gets its length noted, durably and unsealed, while it is open")
    func noted() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let file = try vault.create(in: store)
        let thread = try BackgroundThread { store.durability.run() }
        defer {
            store.durability.stop()
            thread.join()
        }
        // Repeat until the thread runs, because only the thread notes lengths.
        try poll("the thread") {
            try file.truncate(to: 0)
            // While the log has the exact length, the durable one is not noted.
            try store.log.checkpoint(.due)
            try file.truncate(to: Self.grown)
            return file.writing.withLock { $0.awaitsDurableLength || $0.header.length > 0 }
        }
        try store.log.checkpoint(.due)
        try poll("the header") {
            try file.put([1], at: Int(file.length))
            return try Descriptor(at: vault.root, Component(ascii(vault.entry("file"))), flags: 0).read(
                at: 0, count: 128
            )
            .isDurable(
                atLeast: Self.grown)
        }
        #expect(!file.isSealed)
        let reopened = try vault.reopen(in: try vault.open())
        #expect(reopened.length == file.length)
    }

    @Test("a length is not noted if the file is cut while it is synced")
    func cutDuringSync() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let file = try vault.create(in: store)
        try file.put(pattern(5 * 4096), at: 0)
        try writeDurableLength(of: file) {
            try file.truncate(to: 4096)
            try store.log.checkpoint(.due)
            try file.put(pattern(3 * 4096), at: 4096)
        }
        #expect(file.writing.withLock { $0.header.length } == 0)
        file.writing.withLock { $0.awaitsDurableLength = true }
        try file.writeDurableLength()
        #expect(file.writing.withLock { $0.header.length } == 4 * 4096)
    }

    @Test("a length that is asked for after a seal, while an earlier one is synced, waits for the next sync")
    func sealDuringSync() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let file = try vault.create(in: store)
        try file.put(pattern(4 * 4096 + 1), at: 0)
        try store.log.checkpoint(.due)
        try writeDurableLength(of: file) {
            try file.writing.withLock { state in
                try state.seal()
                try state.unseal(floor: 4096)
                let awaits = state.awaitsDurableLength
                #expect(!awaits)
                state.awaitsDurableLength = true
            }
        }
        #expect(file.writing.withLock { $0.header.length } == 4096)
        #expect(file.writing.withLock { $0.awaitsDurableLength })
        try file.writeDurableLength()
        #expect(file.writing.withLock { $0.header.length } == 4 * 4096)
        #expect(file.writing.withLock { !$0.awaitsDurableLength })
    }

    /// Writes the length, and runs `body` while the sync waits.
    private func writeDurableLength(of file: EncryptedFile, during body: () throws -> Void) throws {
        file.writing.withLock { state in
            state.awaitsDurableLength = true
            state.growth.logged(0..<1, 1, as: 0, isNew: true, hasLength: false)
        }
        let thread = try file.parts.syncs.synced.withLock { _ in
            let thread = try BackgroundThread { try? file.writeDurableLength() }
            try poll("the sync") { file.writing.withLock { $0.growth.loggedBytes == 0 } }
            try body()
            return thread
        }
        thread.join()
    }

    @Test("a file that awaits no length is not synced")
    func nothingAwaited() throws {
        let vault = try TestStore()
        let file = try vault.create(in: try vault.open())
        try file.put(pattern(4096), at: 0)
        file.writing.withLock { $0.growth.logged(0..<1, 1, as: 0, isNew: true, hasLength: false) }
        try file.writeDurableLength()
        #expect(file.writing.withLock { ($0.growth.loggedBytes, $0.header.length) } == (1, 0))
    }
}

extension [UInt8] {
    /// Returns true for an unsealed header with at least this durable length.
    fileprivate func isDurable(atLeast length: Int) throws -> Bool {
        let header = try FileHeader.parse(self)
        return !header.isSealed && header.length >= UInt64(length)
    }
}
