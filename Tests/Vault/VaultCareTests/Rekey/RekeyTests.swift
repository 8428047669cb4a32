import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// A whole rekey: afterwards everything exists, under new keys only (FileFormat, Rekeying).
@Suite(.timeLimit(.minutes(60))) struct RekeyTests {
    @Test("a tree of every kind is the same afterwards, and is only under the next epoch", arguments: [1, 3])
    func whole(threads: Int) throws {
        let vault = try RekeyVault()
        try vault.addForeign()
        let before = try RekeyVault.tree(at: vault.path)
        let findings = try RekeyVault.notes(vault.path)
        #expect(before["sparse"]?.hasHoles == true && before["more"]?.names.count == 3)
        let outcome = try RekeyVault.rekey(vault.path, threads: threads)
        #expect(outcome.isFinished && outcome.totals.problems == 0)
        #expect(try RekeyVault.tree(at: vault.path) == before)
        #expect(try RekeyVault.notes(vault.path).count == findings.count)
        let configuration = try VaultDirectory.open(FilePath(vault.path)).configuration
        #expect(configuration.epochs.current == 1 && !configuration.isRekeying)
        #expect(configuration.features == ["epochs"])
        #expect(try Data(contentsOf: URL(filePath: vault.path + "/foreign.txt")) == Data([1, 2, 3]))
        #expect(try Data(contentsOf: URL(filePath: vault.path + "/lost+found/vaultfs.tmp.1")) == Data([4]))
        try RekeyVault.rekey(vault.path)
        #expect(try RekeyVault.tree(at: vault.path) == before)
        #expect(try VaultDirectory.open(FilePath(vault.path)).configuration.epochs.current == 2)
    }

    @Test("Store-26: nothing is lost on a store that refuses to replace an open file, and then removes it (SMB)")
    func refusingStore() throws {
        let vault = try RekeyVault()
        let before = try RekeyVault.tree(at: vault.path)
        let store = SmbStore()
        let outcome = try store.run(in: vault.path) { try RekeyVault.rekey(vault.path) }
        #expect(outcome.isFinished && outcome.totals.problems == 0)
        // The only refusal is that of the probe's file.
        #expect(store.refusals == 1)
        #expect(try RekeyVault.tree(at: vault.path) == before)
    }

    @Test("Store-26: a file that another machine has open there is kept as a conflict copy, and named")
    func openElsewhere() throws {
        let vault = try RekeyVault()
        let before = try RekeyVault.tree(at: vault.path)
        let path = try vault.vault.backing("one")
        let other = try Descriptor(path: FilePath(path), flags: O_RDONLY)
        let problems = Mutex<[String]>([])
        let outcome = try SmbStore().run(in: vault.path) {
            try RekeyVault.rekey(
                vault.path, onProblem: { name, reason in problems.withLock { $0.append(name + reason) } })
        }
        withExtendedLifetime(other) {}
        #expect(!outcome.isFinished)
        let files = try FileManager.default.contentsOfDirectory(atPath: vault.path)
        let kept = try #require(files.first { $0.contains(".kept-") })
        #expect(problems.withLock { $0.contains { $0.hasPrefix("one") && $0.contains("new version is \(kept)") } })
        #expect(try RekeyVault.notes(vault.path).contains { $0.contains("one (conflict kept-") })
        #expect(rename(vault.path + "/" + kept, path) == 0)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try RekeyVault.tree(at: vault.path)["one"] == before["one"])
    }

    @Test("Directory-4: a rekey reports a directory with the record of one above, and does not end before it is gone")
    func repeatedRecord() throws {
        let vault = try RekeyVault()
        let (outer, inner) = (try vault.vault.backing("outer"), try vault.vault.backing("outer/inner"))
        let own = try VerifierVault.contents(inner + "/vaultfs.dir")
        let before = try RekeyVault.tree(at: vault.path)
        try vault.vault.edit(inner + "/vaultfs.dir") { $0 = try VerifierVault.contents(outer + "/vaultfs.dir") }
        try RekeyVault.begin(vault.path)
        let problems = Mutex<[String]>([])
        let note = { @Sendable (path: String, reason: String) in problems.withLock { $0.append("\(path): \(reason)") } }
        let stop = { @Sendable (point: RekeyPoint) throws(StoreError) in
            if point == .replaceEntry { throw .system(.canceled) }
        }
        #expect(try !RekeyVault.rekey(vault.path, before: stop, onProblem: note).isFinished)
        // The report includes files with hard links in that directory.
        #expect(problems.withLock(\.self).contains("outer/inner: \(OpenDirectory.repeated.reason)"))
        try vault.vault.edit(inner + "/vaultfs.dir") { $0 = own }
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try RekeyVault.tree(at: vault.path) == before)
    }

    @Test("Store-28: the old keys open nothing any more: no secret, name, link, attribute or record")
    func nothingOld() throws {
        let vault = try RekeyVault()
        let copy = vault.path + ".old"
        defer { try? FileManager.default.removeItem(atPath: copy) }
        try RekeyVault.copy(vault.path, to: copy)
        let old = vault.vault.keyRing
        let oldRoot = try vault.vault.keys(ofDirectory: vault.path)
        let oldPieces = try Set(pieces(copy))
        #expect(oldPieces.count > 20)
        try RekeyVault.rekey(vault.path)
        #expect(try oldPieces.isDisjoint(with: pieces(vault.path)))
        for path in try vault.vault.everything() {
            let entry = Array(URL(filePath: path).lastPathComponent.utf8)
            #expect(EntryName.decode(entry, sidecarBlob: nil, keys: oldRoot) == nil)
            if let target = try? FileManager.default.destinationOfSymbolicLink(atPath: path) {
                #expect(throws: StoreError.self) { _ = try old.linkTarget(ofStored: Array(target.utf8)) }
                continue
            }
            guard let bytes = try? VerifierVault.contents(path), bytes.starts(with: ascii("VFS")) else { continue }
            #expect(bytes[7] == 1)
            for protectionClass in ProtectionClass.allCases {
                #expect(throws: CryptoError.doesNotAuthenticate) {
                    try old.classCipher(protectionClass).decrypt(
                        Array(bytes[16..<64]), associatedData: [Array(bytes[..<16])])
                }
            }
        }
        // The master key in an old copy of vaultfs.json is one that this vault has dropped.
        let kept = try RekeyVault.open(copy).masterKey
        let configuration = try VaultDirectory.open(FilePath(vault.path)).configuration
        #expect(!configuration.authenticates(masterKey: kept))
    }

    /// Returns the data that identifies each object on disk: names, targets, wrapped secrets, first record, attributes.
    private func pieces(_ path: String) throws -> [[UInt8]] {
        var pieces: [[UInt8]] = []
        for entry in try FileManager.default.subpathsOfDirectory(atPath: path) {
            let name = URL(filePath: entry).lastPathComponent
            if !name.hasPrefix("vaultfs.") || name.hasPrefix("vaultfs.long") { pieces.append(ascii(name)) }
            if name == "vaultfs.json" || name == "vaultfs.log" { continue }
            if let target = try? FileManager.default.destinationOfSymbolicLink(atPath: path + "/" + entry) {
                pieces.append(ascii(target))
                continue
            }
            let fd = Glibc.open(path + "/" + entry, O_RDONLY | O_NONBLOCK)
            guard fd >= 0 else { continue }
            let object = Descriptor(owning: fd)
            for stored in try ExtendedAttributes(object).names() where stored.starts(with: ascii("user.vaultfs.")) {
                if stored != AttributeCodec.packName { pieces.append(stored) }
                pieces.append(try ExtendedAttributes(object).value(of: stored))
            }
            guard let bytes = try? VerifierVault.contents(path + "/" + entry), bytes.count >= 64 else { continue }
            pieces.append(Array(bytes[16..<64]))
            if bytes.count > 160 { pieces.append(Array(bytes[128..<160])) }
        }
        return pieces.filter { !$0.allSatisfy { $0 == 0 } }
    }

    @Test("attributes set by users stay: owners, times, modes, access lists, foreign extended attributes")
    func metadata() throws {
        let vault = try RekeyVault()
        let backing = try vault.vault.backing("outer/inner/attributed")
        // Version 2, for the owner, a user, the group, the mask and others (acl_xattr in linux/posix_acl_xattr.h).
        let entries: [(UInt16, UInt16, UInt32)] = [
            (1, 7, .max), (2, 6, 1234), (4, 5, .max), (0x10, 7, .max), (0x20, 1, .max),
        ]
        var list: [UInt8] = [2, 0, 0, 0]
        for (tag, rights, id) in entries {
            for part in [tag, rights] { list += [UInt8(part & 0xFF), UInt8(part >> 8)] }
            list += (0..<4).map { UInt8(truncatingIfNeeded: id >> (8 * $0)) }
        }
        let attributes = ExtendedAttributes(Descriptor(owning: Glibc.open(backing, O_RDONLY)))
        let hasLists = (try? attributes.set(ascii("system.posix_acl_access"), list, flags: 0)) != nil
        if geteuid() == 0 {
            #expect(chown(backing, 123, 456) == 0 && chmod(backing, 0o6751) == 0)
            try attributes.set(ascii("trusted.mine"), [1], flags: 0)
            #expect(lchown(try vault.vault.backing("link"), 77, 88) == 0)
        }
        var status = stat()
        #expect(stat(backing, &status) == 0)
        let before = try RekeyVault.tree(at: vault.path)
        try RekeyVault.rekey(vault.path)
        let after = try RekeyVault.tree(at: vault.path)
        #expect(after == before)
        #expect(
            !hasLists || after["outer/inner/attributed"]?.attributes["system.posix_acl_access"]?.count == list.count)
    }

    @Test("Epochs-3: a vault whose rekey is unfinished is read and written: new objects are of the new epoch")
    func unfinished() throws {
        let vault = try RekeyVault()
        let before = try RekeyVault.tree(at: vault.path)
        try RekeyVault.begin(vault.path)
        #expect(try RekeyVault.tree(at: vault.path, isReadOnly: true) == before)
        let (directory, masterKey, _) = try RekeyVault.open(vault.path)
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        try withExtendedLifetime(directory) {
            let writer = try VerifierVaultWriter(directory, keyRing)
            try writer.file("made meanwhile", count: 5000)
            let made = try writer.directory("directory made meanwhile")
            try made.makeLink(ascii("link"), target: ascii("elsewhere"), owner: nil)
            let entry = try writer.root.encode(ascii("chunk")).entry
            let old = try FileOpening(
                Descriptor(at: writer.root.descriptor, entry, flags: O_RDONLY), in: writer.store
            ).open()
            try writer.write(3, to: old, at: 100_000)
            try old.changeClass(to: .none)
            writer.store.durability.sealer.sealAll()
        }
        let written = try RekeyVault.tree(at: vault.path, isReadOnly: true)
        #expect(written["chunk"]?.contents.count == 100_003 && written["made meanwhile"]?.contents.count == 5000)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try RekeyVault.tree(at: vault.path) == written)
        // A lock forgets the keys of both epochs, and an unlock restores them.
        #expect(keyRing.epochs.current == 1 && keyRing.epochs.previous == 0)
        keyRing.beginForgetting()
        keyRing.forget()
        #expect(throws: StoreError.locked) { _ = try keyRing.classCipher(.complete, epoch: 0) }
        try keyRing.restore(masterKey: masterKey)
        for epoch: UInt8 in [0, 1] {
            _ = try keyRing.classCipher(.complete, epoch: epoch).encrypt([1], associatedData: [])
        }
        #expect(throws: StoreError.self) { _ = try keyRing.classCipher(.complete, epoch: 2) }
    }

    @Test("a damaged file stays under the old key, is named, and keeps the rekey unfinished until it is removed")
    func damaged() throws {
        let vault = try RekeyVault()
        let backing = try vault.vault.backing("more")
        try vault.vault.edit(backing) { $0[128 + 4128 + 20] ^= 1 }
        let hurt = try vault.vault.backing("class1/file")
        try vault.vault.edit(hurt) { $0[20] ^= 1 }
        let problems = Mutex<Set<String>>([])
        let outcome = try RekeyVault.rekey(
            vault.path, onProblem: { path, _ in problems.withLock { _ = $0.insert(path) } })
        let found = problems.withLock { $0 }
        // The damaged file has three names, and one of them is reported.
        #expect(found.count == 2 && found.contains("class1/file") && !outcome.isFinished)
        #expect(try VaultDirectory.open(FilePath(vault.path)).configuration.isRekeying)
        #expect(try !RekeyVault.rekey(vault.path).isFinished)
        let tree = try #require(try? RekeyVault.notes(vault.path))
        #expect(tree.contains { $0.hasPrefix("damaged") })
        for path in try vault.vault.everything() {
            guard let bytes = try? VerifierVault.contents(path), bytes.starts(with: ascii("VFSF")) else { continue }
            if bytes[7] == 0 { unlink(path) }
        }
        #expect(try RekeyVault.rekey(vault.path).isFinished)
    }

    @Test("a rekey stops on request, and continues later")
    func stopping() throws {
        let vault = try RekeyVault()
        let before = try RekeyVault.tree(at: vault.path)
        var runs = 0
        while true {
            let calls = Mutex(0)
            let patience = 20 * (runs + 1)
            let outcome = try RekeyVault.rekey(
                vault.path, threads: 1,
                isStopped: {
                    calls.withLock { calls in
                        calls += 1
                        return calls > patience
                    }
                })
            #expect(outcome.isStopped != outcome.isFinished)
            #expect(try RekeyVault.tree(at: vault.path, isReadOnly: true) == before)
            runs += 1
            if outcome.isFinished || runs > 100 { break }
        }
        #expect(runs > 1 && runs < 100)
    }
}
