import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Tests of the arrows in "The life of a chunk" (ARCHITECTURE.md), each with the store's calls for it.
@Suite("The life of a chunk") struct ChunkLifeTests {
    private static let c = 4096
    private let vault: TestStore
    private let store: Store
    private let file: EncryptedFile

    init() throws {
        vault = try TestStore()
        try vault.make(pattern(4 * Self.c))
        store = try vault.open()
        file = try vault.reopen(in: store)
        // Makes the log's file, with its header.
        try file.put([1], at: 0)
        try store.log.checkpoint(.due)
    }

    /// Returns the calls of `body`, each with its file's name, without adjacent repetitions.
    private func calls(_ body: () throws -> Void) throws -> [String] {
        let found = Mutex<[String]>([])
        let path = vault.path("file")
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            let text = "\(call.kind) \(call.path == path ? "file" : call.path.split(separator: "/").last ?? "")"
            found.withLock { if $0.last != text { $0.append(text) } }
            return 0
        }
        try CallWatcher.watch(vault.path, answer, during: body)
        return found.withLock { $0 }
    }

    private func overwrite() throws { try file.put(pattern(Self.c, seed: 9), at: Self.c) }

    @Test("written → logged: RedoLog.append")
    func logged() throws {
        #expect(try calls { try overwrite() } == ["write vaultfs.log"])
        #expect(file.isLogged && store.log.durableSequence < file.parts.log.lastSequence)
    }

    @Test("written → in place: FileWriter.writePastEnd")
    func writtenPastEnd() throws {
        // The unsealed header comes first, because the sealed one authenticates the old length.
        #expect(try calls { try file.put(pattern(Self.c), at: 4 * Self.c) } == ["write file"])
        #expect(!file.isLogged && !file.isSealed)
    }

    @Test("logged → durable in the log: RedoLog.synchronize")
    func durableInTheLog() throws {
        try overwrite()
        let sequence = file.parts.log.lastSequence
        #expect(try calls { try store.log.synchronize(through: sequence) } == ["synchronize vaultfs.log"])
        #expect(store.log.durableSequence == sequence && file.isLogged)
        #expect(try calls { try store.log.synchronize(through: sequence) }.isEmpty)
    }

    @Test("logged → in place, durable: RedoLog.checkpoint syncs the log first, and the file before the log's header")
    func placed() throws {
        try overwrite()
        let calls = try calls { try store.log.checkpoint(.due) }
        let syncs = calls.filter { $0.hasPrefix("synchronize") }
        #expect(calls.first == "synchronize vaultfs.log" && calls.contains("write file"))
        #expect(syncs == ["synchronize vaultfs.log", "synchronize file", "synchronize vaultfs.log"])
        #expect(!file.isLogged && store.log.usedSize == 0)
    }

    @Test("in place → durable in place: BackingSync.run")
    func durableInPlace() throws {
        try file.put(pattern(Self.c), at: 4 * Self.c)
        #expect(try calls { try file.synchronize(dataOnly: true) } == ["synchronize file"])
        #expect(try calls { try file.synchronize(dataOnly: true) }.isEmpty)
    }

    @Test("sealed → unsealed: unseal, before the length changes, and not for an overwrite")
    func unsealed() throws {
        #expect(file.isSealed)
        try overwrite()
        #expect(file.isSealed)
        try file.put([1], at: 4 * Self.c)
        #expect(!file.isSealed)
        #expect(try vault.header().length == 4 * UInt64(Self.c))
    }

    @Test("unsealed → sealed: seal, and only if nothing of the file is in the log")
    func sealed() throws {
        try file.put([1], at: 4 * Self.c)
        try overwrite()
        #expect(try !file.seal(ifStill: file.lengthMark, isDurable: false))
        try store.log.checkpoint(.due)
        #expect(try file.seal(ifStill: file.lengthMark, isDurable: false))
        #expect(try vault.header().isSealed && vault.header().length == 4 * UInt64(Self.c) + 1)
    }

    @Test("working → failed → working: fail and renew keep the entries")
    func renewed() throws {
        try overwrite()
        store.log.fail(.system(.ioError))
        #expect(throws: StoreError.self) { try store.log.synchronize(through: file.parts.log.lastSequence) }
        try store.log.renewIfNeeded()
        #expect(file.isLogged && store.log.durableSequence == file.parts.log.lastSequence)
        #expect(try file.contents()[Self.c..<(2 * Self.c)] == pattern(Self.c, seed: 9)[...])
    }

    @Test("entries → none after an unclean end: LogRecovery.run")
    func recovered() throws {
        try overwrite()
        let next = try TestStore(copying: vault)
        let store = try next.open()
        #expect(store.problems.isEmpty && store.log.usedSize == 0)
        #expect(try next.reopen(in: store).contents()[Self.c..<(2 * Self.c)] == pattern(Self.c, seed: 9)[...])
    }
}
