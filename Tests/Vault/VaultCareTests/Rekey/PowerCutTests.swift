import Foundation
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// The order in which changes become durable. The replays miss this, because their copies have even what a power cut
/// takes. Each order is also tested with some fsync(2) calls ignored, and the test must notice.
@Suite(.timeLimit(.minutes(60))) struct PowerCutTests {
    typealias Ignored = @Sendable (WatchedCall) -> Bool

    private func isIntent(_ call: WatchedCall) -> Bool { call.path.hasSuffix("/vaultfs.rekey") }

    private func isConfiguration(_ call: WatchedCall) -> Bool {
        call.path.hasSuffix("/vaultfs.json") && call.kind == .rename
    }

    private func kind(_ path: String) -> EntryName.Kind {
        EntryName.kind(of: Array((path as NSString).lastPathComponent.utf8))
    }

    private func names(around call: WatchedCall) -> String { (call.path as NSString).deletingLastPathComponent + "/" }

    /// Returns the unsynced objects at a call, except temporary files, which only reserve a step's space.
    private func losses(_ entry: CallLog.Entry) -> [String] {
        entry.unsynchronized.filter { kind($0) != .temporary }
            .map { "\(entry.call.path): \($0)" }
    }

    private func changeSlots(ignoring isIgnored: @escaping Ignored) throws -> [String] {
        let vault = try SlotVault()
        var problems: [String] = []
        for change in 2...4 {
            let log = try CallLog(of: vault.path.string, ignoring: isIgnored) {
                switch change {
                case 2: try vault.editor().add(SlotRequest(secret: SlotVault.keyfile(2)))
                case 3:
                    let slot = try #require(try vault.open().configuration.slot(2))
                    try vault.editor().change(slot, to: SlotRequest(secret: SlotVault.keyfile(3)), isForced: false)
                default: _ = try vault.editor().remove([2], isForced: false)
                }
            }
            #expect(log.renames(to: "vaultfs.json").count == 1)
            problems += log.unsafeRenames + log.overtaken(isConfiguration) + log.unsynchronized
        }
        return problems
    }

    @Test("Store-16: a change of slots: written, fsync, renamed, fsync of the directory")
    func slots() throws {
        #expect(try changeSlots(ignoring: { _ in false }) == [])
        #expect(try changeSlots(ignoring: { $0.kind == .synchronize && $0.path.hasSuffix("/vault") }) != [])
        #expect(try changeSlots(ignoring: { $0.kind == .synchronize && !$0.path.hasSuffix("/vault") }) != [])
    }

    private func rekey(ignoring isIgnored: @escaping Ignored) throws -> [String] {
        let vault = try RekeyVault()
        let log = try CallLog(of: vault.path, ignoring: isIgnored) { () throws in
            #expect(try RekeyVault.rekey(vault.path, threads: 1).isFinished)
        }
        let configurations = log.renames(to: "vaultfs.json")
        let ends = log.changes.filter { isIntent($0.call) && $0.call.kind == .remove }
        #expect(configurations.count == 2)
        #expect(ends.count == log.renames(to: "vaultfs.rekey").count && ends.count > 5)
        // A loss from before the step belongs to an object that was replaced by one rename.
        let unfinished = zip(log.renames(to: "vaultfs.rekey"), ends).flatMap { begin, end in
            losses(end).filter { loss in !begin.unsynchronized.contains { loss.hasSuffix(": " + $0) } }
        }
        return log.unsafeRenames + log.overtaken { isIntent($0) || isConfiguration($0) } + steps(log) + unfinished
            + configurations.flatMap(losses)
    }

    /// Checks the order in a directory's step: sidecars, then names, then removals of sidecars, and the record last.
    private func steps(_ log: CallLog) -> [String] {
        let records = log.renames(to: "vaultfs.dir")
        #expect(records.count > 5)
        var problems = records.filter { $0.unsynchronized.contains(names(around: $0.call)) }.map(\.call.path)
        let changes = log.changes.filter { $0.call.kind == .rename || $0.call.kind == .remove }
        var (given, taken) = (0, 0)
        for (first, next) in zip(changes, changes.dropFirst()) where first.call.kind == .rename {
            let (isFirst, isNext) = (kind(first.call.path) == .sidecar, kind(next.call.path) == .sidecar)
            if isFirst && !isNext && next.call.kind == .rename {
                given += 1
            } else if !isFirst && isNext && next.call.kind == .remove {
                taken += 1
            } else {
                continue
            }
            if next.unsynchronized.contains(names(around: first.call)) { problems.append(next.call.path) }
        }
        #expect(given > 2 && taken > 2)
        return problems
    }

    @Test(
        "Store-27: a rekey: its intent is durable before a step, the step before the intent goes, all before the old key"
    )
    func rekeying() throws {
        let problems = try rekey(ignoring: { _ in false })
        #expect(problems == [])
        let isRoot: Ignored = { $0.kind == .synchronize && $0.path.hasSuffix("/vault") }
        let isFile: Ignored = { $0.kind == .synchronize && $0.path.contains("/vaultfs.tmp.") }
        #expect(try rekey(ignoring: isRoot) != [])
        #expect(try rekey(ignoring: isFile) != [])
        #expect(try rekey(ignoring: { $0.kind == .synchronize && !isRoot($0) && !isFile($0) }) != [])
    }

    /// All steps of directories are over then, so only the step of the file syncs its new name.
    @Test("Store-27: a file that an earlier run has left is durable under its new key before the old key goes")
    func rekeyingTheRest() throws {
        let vault = try RekeyVault()
        let flip = { (bytes: inout [UInt8]) in bytes[128 + 20] ^= 1 }
        try vault.vault.edit(vault.vault.backing("class1/file"), flip)
        #expect(try !RekeyVault.rekey(vault.path).isFinished)
        let left = try vault.vault.everything().filter { path in
            guard let bytes = try? VerifierVault.contents(path), bytes.starts(with: ascii("VFSF")) else { return false }
            return bytes[7] == 0
        }
        try vault.vault.edit(#require(left.first), flip)
        let log = try CallLog(of: vault.path) { () throws in
            #expect(try RekeyVault.rekey(vault.path, threads: 1).isFinished)
        }
        #expect(left.count == 1 && log.renames(to: "vaultfs.dir").isEmpty)
        #expect(try losses(#require(log.renames(to: "vaultfs.json").last)) == [])
    }

    private func repair(ignoring isIgnored: @escaping Ignored) throws -> [String] {
        let vault = try VerifierVault(copying: "vault-4096")
        let manager = FileManager.default
        try manager.removeItem(atPath: vault.backing("Documents/notes") + "/vaultfs.dir")
        try vault.edit(vault.backing("Documents") + "/vaultfs.dir") { $0[30] ^= 1 }
        try vault.edit(vault.backing("size-1")) { $0 += [1, 2, 3] }
        try vault.edit(vault.path + "/vaultfs.dir") { $0[30] ^= 1 }
        let log = try CallLog(of: vault.path, ignoring: isIgnored) { () throws in #expect(try vault.repair() == []) }
        let gone = log.changes.filter { $0.call.kind == .remove && kind($0.call.path) != .temporary }
        #expect(gone.count > 3)
        // A moved object is in one of the two directories, even if only a part of the move is on disk.
        let problems = log.unsafeRenames + gone.flatMap(losses).filter { !$0.hasSuffix("/") }
        return problems + log.unsynchronized
    }

    @Test("Store-25: a repair: what it keeps of a thing is durable before that goes, and all is at its end")
    func repairing() throws {
        #expect(try repair(ignoring: { _ in false }) == [])
        #expect(try repair(ignoring: { $0.kind == .synchronize }) != [])
        #expect(try repair(ignoring: { $0.kind == .synchronizeAll }) != [])
    }
}
