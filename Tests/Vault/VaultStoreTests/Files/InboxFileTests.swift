import Glibc
import LinuxSystem
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Files made while the keys are forgotten, without a mount (FileFormat, Inbox).
@Suite struct InboxFileTests {
    private let vault: TestStore

    init() throws { vault = try TestStore() }

    /// Makes a file as a locked mount does. At the end its keys are wiped, like those of the class.
    private func deliver(_ content: [UInt8], in store: Store, isSealed: Bool = true) throws {
        let keyRing = vault.keyRing
        keyRing.beginForgetting()
        keyRing.forget()
        let entry = try Component(ascii(vault.entry("file")))
        let descriptor = try Descriptor(at: vault.root, entry, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        let file = try FileOpening(descriptor, in: store).create(class: .inbox)
        try file.put(content, at: 0)
        if isSealed {
            try store.log.checkpoint(.due)
            #expect(try file.seal(ifStill: file.lengthMark, isDurable: true))
        } else {
            try file.synchronize(dataOnly: true)
        }
        file.forgetKeys()
        #expect(throws: StoreError.locked) { try file.restoreKeys() }
        #expect(throws: StoreError.locked) { _ = try vault.reopen(in: store) }
    }

    @Test("Inbox-2: the first use wraps the secret under the class key, and keeps the times", arguments: [true, false])
    func firstUse(isSealed: Bool) throws {
        let store = try vault.open()
        try deliver(pattern(10_000), in: store, isSealed: isSealed)
        let before = try vault.bytes()
        #expect(before[5...6] == [2, 1])
        try vault.keyRing.restore(masterKey: vault.masterKey)
        // The next store finds the state of a kill.
        let next = try vault.open()
        let file = try vault.reopen(in: next)
        #expect(try file.contents() == pattern(10_000))
        let times = try file.reader.status()
        file.replaceInboxWrap()
        let after = try vault.bytes()
        #expect(after[5...6] == [2, 0] && after[64..<96].allSatisfy { $0 == 0 } && after[128...] == before[128...])
        let status = try file.reader.status()
        #expect(status.st_mtim.nanoseconds == times.st_mtim.nanoseconds)
        file.replaceInboxWrap()
        #expect(try vault.bytes() == after)
        try file.put([1], at: 0)
        #expect(try vault.reopen(in: next).contents()[1...] == pattern(10_000)[1...])
    }

    @Test("a read-only store reads it, and writes nothing")
    func readOnly() throws {
        try deliver(pattern(5000), in: try vault.open())
        try vault.keyRing.restore(masterKey: vault.masterKey)
        let before = try vault.bytes()
        let file = try vault.reopen(in: try vault.open(isReadOnly: true))
        file.replaceInboxWrap()
        #expect(try file.contents() == pattern(5000) && vault.bytes() == before)
    }

    @Test("Header-7: a change of class from a public key's wrap")
    func changedClass() throws {
        let store = try vault.open()
        try deliver(pattern(5000), in: store)
        try vault.keyRing.restore(masterKey: vault.masterKey)
        try vault.reopen(in: store).changeClass(to: .complete)
        #expect(try vault.bytes()[5...6] == [1, 0])
        #expect(try vault.reopen(in: store).contents() == pattern(5000))
    }
}
