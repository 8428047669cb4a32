import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// Rekeys stopped at every step: the vault opens with the secret, its content is complete, and the next run finishes
/// the rekey (FileFormat: Store-26, Store-27, Store-28).
@Suite(.timeLimit(.minutes(60))) struct RekeyCrashTests {
    /// Returns everything except the times of directories, which change with their entries.
    private func withoutDirectoryTimes(_ tree: [String: RekeyVault.Shown]) -> [String: RekeyVault.Shown] {
        tree.mapValues { shown in
            var shown = shown
            if shown.kind == S_IFDIR { shown.modified = [] }
            return shown
        }
    }

    @Test("Store-27: at whatever moment a copy is made, it shows the whole tree, and can be rekeyed to the end")
    func copies() throws {
        let vault = try RekeyVault()
        let copies = vault.path + ".copies"
        defer { try? FileManager.default.removeItem(atPath: copies) }
        try FileManager.default.createDirectory(atPath: copies, withIntermediateDirectories: false)
        let before = withoutDirectoryTimes(try RekeyVault.tree(at: vault.path))
        let path = vault.path
        let seen = Mutex<[RekeyPoint]>([])
        let outcome = try RekeyVault.rekey(
            path, threads: 1,
            before: { point in
                seen.withLock { seen in
                    do { try RekeyVault.copy(path, to: copies + "/\(seen.count)") } catch { Issue.record(error) }
                    seen.append(point)
                }
            })
        #expect(outcome.isFinished)
        let points = seen.withLock { $0 }
        #expect(Set(points) == Set(RekeyPoint.allCases))
        for (number, point) in points.enumerated() {
            let copy = copies + "/\(number)"
            let isHalfDone = FileManager.default.fileExists(atPath: copy + "/vaultfs.rekey")
            if isHalfDone {
                #expect(throws: StoreError.self) { try RekeyVault.tree(at: copy, isReadOnly: true) }
                #expect {
                    try RekeyVault.notes(copy)
                } throws: { error in
                    "\(error)".hasPrefix("\(copy): a rekey was killed in the middle of a step")
                }
            }
            // A rekey syncs often, so only a third of the copies are rekeyed to the end, among them the first at each
            // point.
            let isFirst = points.firstIndex(of: point) == number
            if number % 3 > 0 || isFirst && number % 2 == 0 {
                let found = withoutDirectoryTimes(try RekeyVault.tree(at: copy, isReadOnly: !isHalfDone))
                #expect(found == before, "\(number) \(point)")
                let notes = try RekeyVault.notes(copy)
                #expect(notes.allSatisfy { $0.hasPrefix("leftover") }, "\(number) \(point) \(notes)")
            }
            if number % 3 == 0 || isFirst {
                #expect(try RekeyVault.rekey(copy).isFinished, "\(number) \(point)")
                #expect(try withoutDirectoryTimes(RekeyVault.tree(at: copy)) == before, "\(number) \(point)")
                #expect(try RekeyVault.notes(copy).isEmpty, "\(number) \(point)")
            }
            try FileManager.default.removeItem(atPath: copy)
        }
    }

    /// The copies above are made at announced steps. These are made before calls, whichever code makes the calls.
    @Test(
        "Store-26, Store-27: before one changing call in thirteen: nothing is lost, and it can be rekeyed to the end"
    )
    func replay() throws {
        let vault = try RekeyVault()
        let before = withoutDirectoryTimes(try RekeyVault.tree(at: vault.path))
        let copies = DirectoryCopies(of: vault.path)
        try copies.takeBeforeEachChange(every: 13) { () throws in
            #expect(try RekeyVault.rekey(vault.path, threads: 1).isFinished)
        }
        #expect(copies.paths.count > 15)
        for (number, copy) in copies.paths.enumerated() {
            #expect(try withoutDirectoryTimes(RekeyVault.tree(at: copy)) == before, "copy \(number)")
            #expect(try RekeyVault.rekey(copy).isFinished, "copy \(number)")
            #expect(try withoutDirectoryTimes(RekeyVault.tree(at: copy)) == before, "copy \(number)")
            #expect(try RekeyVault.notes(copy).isEmpty, "copy \(number)")
        }
    }

    @Test(
        "a step that fails for lack of space ends the rekey; the vault is whole, and the next rekey continues",
        arguments: RekeyPoint.allCases)
    func fullDisk(at point: RekeyPoint) throws {
        let vault = try RekeyVault()
        let before = withoutDirectoryTimes(try RekeyVault.tree(at: vault.path))
        for skipped in [0, 2] {
            let left = Mutex(skipped)
            var failure: VaultError?
            do {
                try RekeyVault.rekey(
                    vault.path, threads: 1,
                    before: { (now) throws(StoreError) in
                        let isNow = left.withLock { left in
                            if now == point { left -= 1 }
                            return now == point && left < 0
                        }
                        if isNow { throw .system(.noSpace) }
                    })
            } catch let error as VaultError {
                failure = error
            }
            // With two steps skipped the rekey may succeed, because fewer may be left.
            let isExpected = failure?.description.contains("No space left on device")
            #expect(isExpected == true || (isExpected == nil && skipped > 0))
            // Some steps can be undone without space. They are undone at once, so the vault can be read.
            if [.linkName, .renameLink, .writeSidecar, .writeRecord, .renameRecord].contains(point), skipped == 0 {
                #expect(throws: Never.self) { try RekeyVault.tree(at: vault.path, isReadOnly: true) }
            }
            #expect(try withoutDirectoryTimes(RekeyVault.tree(at: vault.path)) == before)
            #expect(try RekeyVault.notes(vault.path).allSatisfy { $0.hasPrefix("leftover vaultfs.long") })
            if failure == nil || point == .finish { break }
        }
        #expect(try RekeyVault.rekey(vault.path).isFinished)
        #expect(try withoutDirectoryTimes(RekeyVault.tree(at: vault.path)) == before)
    }

    @Test(
        "ENOSPC: on a full disk a rekey ends with one error, and continues when there is space",
        .enabled(if: geteuid() == 0))
    func smallDisk() throws {
        let disk = try SmallDisk(size: 4 << 20)
        let path = disk.path + "/vault"
        let vault = try RekeyVault { writer in
            for number in 0..<20 { try writer.file("\(number)" + RekeyVault.long, count: 20_000) }
        }
        try FileManager.default.copyItem(atPath: vault.path, toPath: path)
        let before = withoutDirectoryTimes(try RekeyVault.tree(at: path))
        try RekeyVault.begin(path)
        for space in [0, 8192, 40_960, 200_000, 300_000] {
            let filler = try disk.fill(leaving: space)
            let error = #expect(throws: VaultError.self) { try RekeyVault.rekey(path, threads: 2) }
            #expect(error?.description.contains("No space left on device") == true)
            try filler.descriptor.truncate(to: 0)
            #expect(!FileManager.default.fileExists(atPath: path + "/vaultfs.rekey"))
            #expect(try withoutDirectoryTimes(RekeyVault.tree(at: path)) == before)
            #expect(try RekeyVault.notes(path).isEmpty)
        }
        // The disk fills up in the middle of a step, for which the reserved space suffices.
        nonisolated(unsafe) let inner = disk
        let filled = Mutex<SmallDisk.Filler?>(nil)
        let outcome = try RekeyVault.rekey(
            path, threads: 1,
            before: { point in
                guard point == .writeSidecar else { return }
                filled.withLock { if $0 == nil { $0 = try? inner.fill(leaving: 0) } }
            })
        #expect(outcome.isFinished && filled.withLock { $0 != nil })
        #expect(try withoutDirectoryTimes(RekeyVault.tree(at: path)) == before)
    }

    @Test("a damaged or forged vaultfs.rekey is refused, and never followed")
    func forged() throws {
        let vault = try RekeyVault()
        let before = withoutDirectoryTimes(try RekeyVault.tree(at: vault.path))
        let path = vault.path
        let kept = Mutex<[UInt8]>([])
        let outcome = try RekeyVault.rekey(
            path, threads: 1,
            before: { (now) throws(StoreError) in
                guard now == .writeRecord else { return }
                kept.withLock { $0 = (try? VerifierVault.contents(path + "/vaultfs.rekey")) ?? [] }
                throw .system(.ioError)
            })
        #expect(!outcome.isFinished)
        let intent = kept.withLock { $0 }
        try #require(intent.count > 250)
        let file = URL(filePath: path + "/vaultfs.rekey")
        try Data(intent).write(to: file)
        let listing = try vault.vault.everything().sorted()
        for position in [0, 4, 5, 7, 8, 30, intent.count - 1] {
            var forged = intent
            forged[position] ^= 1
            try Data(forged).write(to: file)
            #expect(throws: StoreError.self) { try RekeyVault.tree(at: path) }
            #expect(try vault.vault.everything().sorted() == listing)
        }
        for other in [[], ascii("VFSK"), Array(intent.dropLast())] {
            try Data(other).write(to: file)
            #expect(throws: StoreError.self) { try RekeyVault.tree(at: path) }
        }
        try FileManager.default.removeItem(at: file)
        try FileManager.default.createSymbolicLink(atPath: file.path, withDestinationPath: "/etc/passwd")
        #expect(throws: StoreError.self) { try RekeyVault.tree(at: path) }
        try FileManager.default.removeItem(at: file)
        try Data(intent).write(to: file)
        #expect(try withoutDirectoryTimes(RekeyVault.tree(at: path)) == before)
        // Put the intent back once more: it finds all done, or a directory with another record since.
        try Data(intent).write(to: file)
        #expect(try withoutDirectoryTimes(RekeyVault.tree(at: path)) == before)
        #expect(try RekeyVault.rekey(path).isFinished)
        try Data(intent).write(to: file)
        #expect(try withoutDirectoryTimes(RekeyVault.tree(at: path)) == before)
    }

}
