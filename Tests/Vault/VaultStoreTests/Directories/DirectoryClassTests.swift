import CLinux
import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Changes of a directory's class, and the class of objects made in it (FileFormat: Directory record).
@Suite struct DirectoryClassTests {
    private let fixture: TestStore
    private let store: Store
    private let root: OpenDirectory

    init() throws {
        fixture = try TestStore()
        store = try fixture.open()
        root = try fixture.openRoot(in: store)
    }

    private func entries(of path: String = "") throws -> Set<String> {
        Set(try FileManager.default.contentsOfDirectory(atPath: fixture.path + "/" + path)).subtracting([
            "vaultfs.log"
        ])
    }

    private func entry(_ name: String, in directory: OpenDirectory? = nil) throws -> String {
        String(decoding: try (directory ?? root).encode(ascii(name)).entry, as: UTF8.self)
    }

    /// Reads the class on disk, from an authentic record.
    private func recordClass(of path: String = "vaultfs.dir") throws -> ProtectionClass {
        let record = try DirectoryRecord.parse(try fixture.bytes(path))
        _ = try record.unwrapKeys(
            classCipher: fixture.keyRing.classCipher(record.protectionClass), vault: fixture.keyRing.vault)
        return record.protectionClass
    }

    private func open(_ name: String, class shared: DirectoryClass = DirectoryClass()) throws -> OpenDirectory {
        let pinned = try Descriptor(
            at: root.descriptor, Component(ascii(try entry(name))), flags: linux_O_PATH | O_DIRECTORY)
        return try OpenDirectory.open(pinned, isRoot: false, in: store, class: shared)
    }

    @Test(
        "Store-12, Directory-3: another record replaces the old one, with its owner and mode, and names stay")
    func change() throws {
        try root.makeDirectory(ascii("d"), mode: 0o755, owner: nil)
        let directory = try open("d")
        _ = try directory.createFile(ascii("f"), mode: 0o600, owner: nil)
        let path = fixture.path + "/" + (try entry("d"))
        #expect(chmod(path + "/vaultfs.dir", 0o640) == 0)
        if geteuid() == 0 { #expect(chown(path + "/vaultfs.dir", 12, 34) == 0) }
        var (before, after) = (stat(), stat())
        #expect(stat(path + "/vaultfs.dir", &before) == 0)
        for newClass in [ProtectionClass.none, .untilFirstUnlock, .unlessOpen, .complete] {
            try directory.changeClass(to: newClass)
            #expect(directory.protectionClass == newClass)
            #expect(try recordClass(of: entry("d") + "/vaultfs.dir") == newClass)
            #expect(try entries(of: entry("d")) == ["vaultfs.dir", entry("f", in: directory)])
            #expect(stat(path + "/vaultfs.dir", &after) == 0)
            #expect(after.st_mode == before.st_mode && after.st_uid == before.st_uid && after.st_gid == before.st_gid)
            let again = try open("d")
            #expect(again.protectionClass == newClass)
            #expect(try again.encode(ascii("f")).entry == directory.encode(ascii("f")).entry)
        }
        #expect(try recordClass() == .complete, "of the parent")
        #expect(try fixture.header(entry("d") + "/" + entry("f", in: directory)).protectionClass == .complete)
    }

    @Test("Store-12: if the store removes the old record, which another machine has open (SMB), the new one is kept")
    func openElsewhere() throws {
        let other = try Descriptor(path: FilePath(fixture.path + "/vaultfs.dir"), flags: O_RDONLY)
        let error = #expect(throws: StoreError.self) {
            try SmbStore().run(in: fixture.path) { try root.changeClass(to: .none) }
        }
        withExtendedLifetime(other) {}
        let kept = try #require(entries().first { $0.hasPrefix("vaultfs.dir.kept-") })
        #expect(error?.reason.contains("its new version is \(kept): rename that to vaultfs.dir") == true)
        #expect(try recordClass(of: kept) == .none)
    }

    @Test("Store-11, Store-12: the root stays the root")
    func ofRoot() throws {
        try root.changeClass(to: .none)
        #expect(try DirectoryRecord.parse(fixture.bytes("vaultfs.dir")).isRoot)
        #expect(try fixture.openRoot(in: try fixture.open()).protectionClass == .none)
    }

    @Test("Store-12: the directory's times stay; setting the current class writes nothing")
    func times() throws {
        let past = [timespec(tv_sec: 1000, tv_nsec: 5), timespec(tv_sec: 2000, tv_nsec: 7)]
        #expect(futimens(fixture.root.fd, past) == 0)
        try root.changeClass(to: .none)
        let after = try fixture.root.status()
        #expect(after.st_atim.tv_sec == 1000 && after.st_mtim.tv_sec == 2000 && after.st_mtim.tv_nsec == 7)
        var (record, same) = (stat(), stat())
        #expect(stat(fixture.path + "/vaultfs.dir", &record) == 0)
        try root.changeClass(to: .none)
        #expect(stat(fixture.path + "/vaultfs.dir", &same) == 0)
        #expect(same.st_ino == record.st_ino && same.st_ctim.tv_nsec == record.st_ctim.tv_nsec)
        #expect(try fixture.root.status().st_ctim.tv_nsec == after.st_ctim.tv_nsec)
    }

    @Test("Store-20: objects made after a change are of the new class, through any opening; existing ones are not")
    func inheritance() throws {
        try root.makeDirectory(ascii("d"), mode: 0o755, owner: nil)
        let shared = DirectoryClass()
        let (first, second) = (try open("d", class: shared), try open("d", class: shared))
        let listing = try second.reopenedForListing()
        _ = try first.createFile(ascii("old"), mode: 0o600, owner: nil)
        try listing.changeClass(to: .unlessOpen)
        for (number, directory) in [first, second, listing].enumerated() {
            #expect(directory.protectionClass == .unlessOpen)
            #expect(
                try directory.createFile(ascii("f\(number)"), mode: 0o600, owner: nil).protectionClass == .unlessOpen)
            try directory.makeDirectory(ascii("d\(number)"), mode: 0o700, owner: nil)
            #expect(
                try recordClass(of: entry("d") + "/" + entry("d\(number)", in: first) + "/vaultfs.dir") == .unlessOpen)
            try directory.makeLink(ascii("l\(number)"), target: ascii("target"), owner: nil)
            let link = try FileManager.default.destinationOfSymbolicLink(
                atPath: fixture.path + "/" + entry("d") + "/" + entry("l\(number)", in: first))
            #expect(LinkTarget.protectionClass(ofStored: ascii(link)) == .unlessOpen)
        }
        #expect(try fixture.header(entry("d") + "/" + entry("old", in: first)).protectionClass == .complete)
    }

    @Test(
        "Store-20: an opening of a directory during a change of its class does not restore the old one",
        .timeLimit(.minutes(60)))
    func openedMeanwhile() throws {
        try root.makeDirectory(ascii("d"), mode: 0o755, owner: nil)
        let shared = DirectoryClass()
        let directory = try open("d", class: shared)
        let path = try entry("d") + "/vaultfs.dir"
        let isOver = Atomic<Bool>(false)
        try concurrently([
            { while !isOver.load(ordering: .acquiring) { _ = try open("d", class: shared) } },
            {
                defer { isOver.store(true, ordering: .releasing) }
                for round in 0..<200 {
                    let newClass = ProtectionClass.allCases[round % 4]
                    try directory.changeClass(to: newClass)
                    #expect(shared.value == newClass)
                    #expect(try recordClass(of: path) == newClass)
                }
            },
        ])
    }

    @Test("Store-12: killed after any step, the old record or the new one exists, and nothing else remains")
    func killed() throws {
        let old = try fixture.bytes("vaultfs.dir")
        try root.changeClass(to: .none)
        let new = try fixture.bytes("vaultfs.dir")
        // The temporary file is empty, half written, complete, and at last renamed.
        for (record, temporary) in [(old, []), (old, Array(new[..<40])), (old, new), (new, nil)]
            as [([UInt8], [UInt8]?)]
        {
            try fixture.write(record, to: "vaultfs.dir")
            if let temporary { try fixture.write(temporary, to: "vaultfs.tmp.0123456789abcdef") }
            let next = try fixture.openRoot(in: try fixture.open())
            #expect(next.protectionClass == (record == old ? .complete : .none))
            try next.sweep()
            #expect(try entries() == ["vaultfs.dir"])
            try next.changeClass(to: .untilFirstUnlock)
            #expect(try recordClass() == .untilFirstUnlock)
        }
    }

    @Test("Store-12, ENOSPC: on a full disk the class stays, and no file remains", .enabled(if: geteuid() == 0))
    func fullDisk() throws {
        let disk = try SmallDisk(size: 1 << 20)
        let fixture = try TestStore(in: disk.path)
        let filler = try disk.fill(leaving: 40 << 10)
        let root = try fixture.openRoot(in: try fixture.open())
        try filler.extend()
        let before = try fixture.bytes("vaultfs.dir")
        #expect(throws: StoreError.system(.noSpace)) { try root.changeClass(to: .none) }
        #expect(root.protectionClass == .complete)
        #expect(try fixture.bytes("vaultfs.dir") == before)
        #expect(try !FileManager.default.contentsOfDirectory(atPath: fixture.path).contains { $0.contains("tmp") })
        try filler.descriptor.truncate(to: 0)
        try root.changeClass(to: .none)
        #expect(root.protectionClass == .none)
    }

    @Test("A record that is damaged or missing, and a read-only store: an error, and nothing is written")
    func refused() throws {
        let readOnly = try fixture.openRoot(in: try fixture.open(isReadOnly: true))
        #expect(throws: StoreError.refused(.readOnlyFileSystem)) { try readOnly.changeClass(to: .none) }
        for damaged in [pattern(64), pattern(10)] {
            try fixture.write(damaged, to: "vaultfs.dir")
            damage { try root.changeClass(to: .none) }
            #expect(try fixture.bytes("vaultfs.dir") == damaged)
        }
        unlink(fixture.path + "/vaultfs.dir")
        damage { try root.changeClass(to: .none) }
        #expect(try entries().isEmpty)
        #expect(root.protectionClass == .complete)
    }
}
