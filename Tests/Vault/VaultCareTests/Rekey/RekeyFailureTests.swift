import CLinux
import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import Testing
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// A failed step of a rekey: it is undone, and the vault can be read and written as before (FileFormat: Store-27).
@Suite(.timeLimit(.minutes(60))) struct RekeyFailureTests {
    private static let steps: [RekeyPoint] = [
        .linkName, .renameLink, .writeSidecar, .renameName, .removeSidecar, .removeAttribute, .setAttribute,
        .writeRecord, .renameRecord,
    ]

    /// Returns everything except the times of directories, which change with their entries.
    private func tree(_ path: String, isReadOnly: Bool = false) throws -> [String: RekeyVault.Shown] {
        try RekeyVault.tree(at: path, isReadOnly: isReadOnly).mapValues { shown in
            var shown = shown
            if shown.kind == S_IFDIR { shown.modified = [] }
            return shown
        }
    }

    private func isHalfDone(_ path: String) -> Bool {
        FileManager.default.fileExists(atPath: path + "/vaultfs.rekey")
    }

    /// Returns a hook that fails `count` times, from occurrence `first` of `point` on.
    private func failing(
        _ error: StoreError, at point: RekeyPoint, from first: Int, count: Int = .max,
        afterwards: @escaping @Sendable (RekeyPoint) -> Void = { _ in }
    ) -> RekeyHook {
        let seen = Counter()
        return { (now) throws(StoreError) in
            if seen.value >= first { afterwards(now) }
            guard now == point else { return }
            let number = seen.next()
            if number >= first && number - first < count { throw error }
        }
    }

    private final class Counter: Sendable {
        private let state = Mutex(0)
        var value: Int { state.withLock { $0 } }
        func next() -> Int {
            state.withLock { state in
                state += 1
                return state
            }
        }
    }

    @Test(
        "a step that fails is undone and named, the others are done, and the next rekey completes it",
        arguments: Self.steps, [Errno.notPermitted, .ioError])
    func undone(at point: RekeyPoint, errno: Errno) throws {
        let vault = try RekeyVault()
        let before = try tree(vault.path)
        let reasons = Mutex<[String]>([])
        let outcome = try RekeyVault.rekey(
            vault.path, threads: 1, before: failing(.system(errno), at: point, from: 2, count: 1),
            onProblem: { path, reason in reasons.withLock { $0.append("\(path): \(reason)") } })
        let problems = reasons.withLock { $0 }
        #expect(!outcome.isFinished && problems.count == 1 && problems.allSatisfy { $0.contains("\(errno)") })
        #expect(!isHalfDone(vault.path))
        #expect(try tree(vault.path, isReadOnly: true) == before)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try tree(vault.path) == before)
        #expect(try RekeyVault.notes(vault.path).isEmpty)
    }

    @Test(
        "a kill while a step is being undone: the vault opens with the whole tree, and can be rekeyed to the end",
        arguments: [RekeyPoint.renameName, .setAttribute, .renameRecord, .renameLink])
    func killedWhileUndoing(from point: RekeyPoint) throws {
        let vault = try RekeyVault()
        let copies = vault.path + ".copies"
        defer { try? FileManager.default.removeItem(atPath: copies) }
        try FileManager.default.createDirectory(atPath: copies, withIntermediateDirectories: false)
        let before = try tree(vault.path)
        let path = vault.path
        let made = Counter()
        let outcome = try RekeyVault.rekey(
            path, threads: 1,
            before: failing(
                .system(.ioError), at: point, from: 2, count: 1,
                afterwards: { _ in
                    guard FileManager.default.fileExists(atPath: path + "/vaultfs.rekey"), made.value < 12 else {
                        return
                    }
                    do { try RekeyVault.copy(path, to: copies + "/\(made.next())") } catch { Issue.record(error) }
                }))
        #expect(!outcome.isFinished && made.value > 0)
        for number in 1...max(1, made.value) {
            let copy = copies + "/\(number)"
            #expect(try tree(copy) == before, "\(number)")
            #expect(try RekeyVault.rekey(copy).isFinished, "\(number)")
            #expect(try tree(copy) == before, "\(number)")
            #expect(try RekeyVault.notes(copy).isEmpty, "\(number)")
        }
    }

    @Test(
        "a step that can be neither done nor undone ends the rekey with an error; the next opening ends the step",
        arguments: [RekeyPoint.renameName, .renameLink])
    func stuck(at point: RekeyPoint) throws {
        // One directory, and one file with several names, so the failure comes after a step's first operation.
        let vault = try RekeyVault { writer in
            for number in 0..<8 { try writer.file("\(number)", count: 10) }
            let entry = try writer.root.encode(ascii("0")).entry
            for number in 0..<5 { try writer.root.link(ascii("link \(number)"), to: entry, in: writer.root.descriptor) }
        }
        let before = try tree(vault.path)
        let error = #expect(throws: VaultError.self) {
            try RekeyVault.rekey(vault.path, threads: 1, before: failing(.system(.notPermitted), at: point, from: 3))
        }
        #expect(error?.description.contains("Operation not permitted") == true, "\(error?.description ?? "")")
        #expect(isHalfDone(vault.path))
        let refusal = #expect(throws: StoreError.self) { try RekeyVault.tree(at: vault.path, isReadOnly: true) }
        #expect(refusal?.reason.contains("is incomplete") == true)
        #expect(try tree(vault.path) == before)
        #expect(!isHalfDone(vault.path))
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try tree(vault.path) == before)
    }

    @Test("an opening for writing undoes a step that it cannot continue")
    func undoneByOpening() throws {
        let vault = try RekeyVault { writer in
            for number in 0..<8 { try writer.file("\(number)" + RekeyVault.long, count: 10) }
        }
        let before = try tree(vault.path)
        #expect(throws: VaultError.self) {
            try RekeyVault.rekey(
                vault.path, threads: 1, before: failing(.system(.noSpace), at: .renameName, from: 3))
        }
        #expect(isHalfDone(vault.path))
        let keys = try vault.vault.keys(ofDirectory: vault.path)
        let entry = try #require(
            try FileManager.default.contentsOfDirectory(atPath: vault.path).first { entry in
                guard let blob = try? VerifierVault.contents(vault.path + "/" + entry + ".name") else { return false }
                return EntryName.decode(ascii(entry), sidecarBlob: blob, keys: keys) != nil
            })
        let sidecar = vault.path + "/" + entry + ".name"
        let bytes = try VerifierVault.contents(sidecar)
        unlink(sidecar)
        mkdir(sidecar, 0o755)
        _ = try RekeyVault.tree(at: vault.path)
        #expect(!isHalfDone(vault.path))
        rmdir(sidecar)
        try Data(bytes).write(to: URL(filePath: sidecar))
        #expect(try tree(vault.path) == before)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try tree(vault.path) == before)
    }

    @Test(
        "an entry whose sidecar cannot be read, or is damaged, keeps its directory under the old key",
        arguments: [true, false])
    func sidecar(isUnreadable: Bool) throws {
        let vault = try RekeyVault()
        let before = try tree(vault.path)
        let entry = try vault.vault.backing(RekeyVault.long)
        let sidecar = entry + ".name"
        let bytes = try VerifierVault.contents(sidecar)
        if isUnreadable {
            unlink(sidecar)
            mkdir(sidecar, 0o755)
        } else {
            try vault.vault.edit(sidecar) { $0[40] ^= 1 }
        }
        let problems = Mutex<[String]>([])
        let outcome = try RekeyVault.rekey(
            vault.path, onProblem: { path, reason in problems.withLock { $0.append("\(path): \(reason)") } })
        let found = problems.withLock { $0 }
        #expect(!outcome.isFinished)
        #expect(
            found.contains { $0.contains(URL(filePath: entry).lastPathComponent) }, "\(found)")
        if isUnreadable { rmdir(sidecar) }
        try Data(bytes).write(to: URL(filePath: sidecar))
        #expect(try tree(vault.path) == before)
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try tree(vault.path) == before)
    }

    @Test("an entry of the vault whose name does not authenticate in its directory keeps the rekey unfinished")
    func namelessEntry() throws {
        let vault = try RekeyVault()
        let moved = try vault.vault.backing("chunk")
        let elsewhere = try vault.vault.backing("outer") + "/" + URL(filePath: moved).lastPathComponent
        #expect(rename(moved, elsewhere) == 0)
        #expect(try !RekeyVault.rekey(vault.path).isFinished)
    }

    @Test("a change of mode does not follow a link that replaced an entry")
    func modeOfLink() throws {
        let vault = try RekeyVault()
        let outside = vault.path + ".outside"
        try Data([1]).write(to: URL(filePath: outside))
        defer { unlink(outside) }
        #expect(chmod(outside, 0o600) == 0)
        try FileManager.default.createSymbolicLink(atPath: vault.path + "/placed", withDestinationPath: outside)
        let (directory, masterKey, _) = try RekeyVault.open(vault.path)
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        try withExtendedLifetime(directory) {
            let root = try VerifierVaultWriter(directory, keyRing).root
            _ = try? Descriptor(at: root.descriptor, "placed", flags: linux_O_PATH).changePinnedMode(to: 0o777)
        }
        var status = stat()
        #expect(stat(outside, &status) == 0 && status.st_mode & 0o777 == 0o600)
    }
}
