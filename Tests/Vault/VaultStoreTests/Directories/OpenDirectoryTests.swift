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

/// Names in the backing directory (FileFormat: Names, Directory record, Order of operations).
@Suite struct OpenDirectoryTests {
    private let fixture: TestStore
    private let store: Store
    private let root: OpenDirectory
    private let long = [UInt8](repeating: UInt8(ascii: "n"), count: 200)

    init() throws {
        fixture = try TestStore()
        store = try fixture.open()
        root = try fixture.openRoot(in: store)
    }

    private func entries(of path: String = "") throws -> Set<String> {
        let own = ["vaultfs.dir", "vaultfs.log"]
        return Set(try FileManager.default.contentsOfDirectory(atPath: fixture.path + "/" + path)).subtracting(own)
    }

    private func entry(_ name: [UInt8], in directory: OpenDirectory? = nil) throws -> String {
        String(decoding: try (directory ?? root).encode(name).entry, as: UTF8.self)
    }

    private func open(_ name: [UInt8], in parent: OpenDirectory? = nil) throws -> OpenDirectory {
        let parent = parent ?? root
        let entry = try parent.encode(name).entry
        let pinned = try Descriptor(at: parent.descriptor, entry, flags: linux_O_PATH | O_DIRECTORY)
        return try OpenDirectory.open(pinned, isRoot: false, in: store)
    }

    private func make(_ name: String, in parent: OpenDirectory? = nil) throws -> OpenDirectory {
        try (parent ?? root).makeDirectory(ascii(name), mode: 0o755, owner: nil)
        return try open(ascii(name), in: parent)
    }

    @Test("Names-7: the two places of an addition in a long entry are two names, each of which finds its entry")
    func placesOfAnAddition() throws {
        _ = try root.createFile(long, mode: 0o640, owner: nil)
        let own = try entry(long)
        let copies = [own + "~", "vaultfs.long~" + own.dropFirst("vaultfs.long".count)]
        for copy in copies { #expect(Glibc.link("\(fixture.path)/\(own)", "\(fixture.path)/\(copy)") == 0) }
        let names = try copies.map { try #require(root.conflictName(of: Component(ascii($0)))) }
        #expect(names == [long + ascii(" (conflict ~)"), long + ascii(" (conflict ~%)")])
        for (name, copy) in zip(names, copies) { #expect(try root.find(name).entry == Component(ascii(copy))) }
        try root.unlink(root.find(names[0]))
        #expect(try root.conflictName(of: Component(ascii(copies[1]))) == names[1])
    }

    @Test("Directory-4: directories with equal parts of a record do not count as one", arguments: [0, 63])
    func cutRecords(size: Int) throws {
        let names = ["outer", "inner"]
        let inner = try make(names[1], in: make(names[0]))
        let paths = [
            try entry(ascii(names[0])),
            try entry(ascii(names[0])) + "/" + entry(ascii(names[1]), in: open(ascii(names[0]))),
        ]
        for path in paths {
            try Data(count: size).write(to: URL(filePath: "\(fixture.path)/\(path)/vaultfs.dir"))
        }
        #expect(inner.descriptor.identity() == nil)
        var walk = BackingWalk(try Descriptor(path: FilePath(fixture.path), flags: O_RDONLY | O_DIRECTORY))
        var found = 0
        while let step = walk.next() {
            switch step {
            case .found: found += 1
            case .left: break
            case .failed(_, _, let error): Issue.record(error)
            }
        }
        #expect(found == 2)
    }

    @Test("Store-17: a directory that the store does not remove keeps its name and its record")
    func refusedRemoval() throws {
        let before = try make("d").keys.identity
        let isRefused = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .remove && !call.path.hasSuffix("/vaultfs.dir") ? EBUSY : 0
        }
        CallWatcher.watch(fixture.path, isRefused) {
            #expect(throws: StoreError.system(.resourceBusy)) { try root.removeDirectory(root.encode(ascii("d"))) }
        }
        #expect(try entries() == [entry(ascii("d"))])
        #expect(try open(ascii("d")).keys.identity == before)
        try root.removeDirectory(root.encode(ascii("d")))
        #expect(try entries().isEmpty)
    }

    @Test("an empty directory is replaced on a store that has EPERM for one that is not empty, as sshfs")
    func replacementWithoutAnError() throws {
        let (old, new) = (try make("old"), try make("new"))
        try old.makeDirectory(ascii("inside"), mode: 0o755, owner: nil)
        let calls = Mutex(0)
        try CallWatcher.watch(
            fixture.path,
            { call in
                guard call.kind == .rename else { return 0 }
                // The first call is the rename, the second the exchange.
                let number = calls.withLock {
                    $0 += 1
                    return $0
                }
                return number == 1 ? EPERM : number == 2 ? EINVAL : 0
            },
            during: { try root.rename(root.encode(ascii("old")), to: root, as: root.encode(ascii("new")), flags: 0) })
        withExtendedLifetime(new) {}
        #expect(try entries() == [entry(ascii("new"))])
        _ = try open(ascii("inside"), in: open(ascii("new")))
        // For a file there is no second way, so the caller gets EPERM.
        _ = try root.createFile(ascii("file"), mode: 0o644, owner: nil)
        CallWatcher.watch(
            fixture.path, { $0.kind == .rename ? EPERM : 0 },
            during: {
                #expect(throws: StoreError.system(.notPermitted)) {
                    try root.rename(root.encode(ascii("new")), to: root, as: root.encode(ascii("file")), flags: 0)
                }
            })
    }

    @Test("Store-18: a file appears once, with its header")
    func createFile() throws {
        let file = try root.createFile(ascii("f"), mode: 0o640, owner: nil)
        #expect(try entries() == [entry(ascii("f"))])
        #expect(try fixture.bytes(try entry(ascii("f"))).count == 128)
        #expect(try fixture.reopen(try entry(ascii("f")), in: store).fileID == file.fileID)
        #expect(throws: StoreError.system(.fileExists)) {
            _ = try root.createFile(ascii("f"), mode: 0o640, owner: nil)
        }
        #expect(throws: StoreError.system(.invalidArgument)) { try root.encode([]) }
        #expect(throws: StoreError.system(.invalidArgument)) { try root.encode(ascii("a/b")) }
        #expect(throws: StoreError.system(.fileNameTooLong)) { try root.encode(pattern(256)) }
    }

    @Test("Store-17, Store-11: a directory has its record, without the root's flag, before it has its name")
    func makeDirectory() throws {
        let directory = try make("d")
        #expect(try entries() == [entry(ascii("d"))])
        let record = try fixture.bytes(entry(ascii("d")) + "/vaultfs.dir")
        #expect(try !DirectoryRecord.parse(record).isRoot)
        #expect(throws: StoreError.system(.fileExists)) {
            try root.makeDirectory(ascii("d"), mode: 0o755, owner: nil)
        }
        #expect(try entries() == [entry(ascii("d"))])
        _ = try directory.createFile(ascii("x"), mode: 0o600, owner: nil)
        #expect(throws: StoreError.system(.directoryNotEmpty)) { try root.removeDirectory(root.encode(ascii("d"))) }
        try directory.unlink(directory.encode(ascii("x")))
        try root.removeDirectory(root.encode(ascii("d")))
        #expect(try entries().isEmpty)
    }

    @Test("Store-11: the root's record in another directory, and another record in the root, are refused")
    func rootFlag() throws {
        _ = try make("d")
        let path = try entry(ascii("d")) + "/vaultfs.dir"
        let (rootRecord, record) = (try fixture.bytes("vaultfs.dir"), try fixture.bytes(path))
        try fixture.write(rootRecord, to: path)
        damage { _ = try open(ascii("d")) }
        try fixture.write(record, to: "vaultfs.dir")
        damage { _ = try fixture.openRoot(in: store) }
    }

    @Test("Store-14: a long name's sidecar exists together with its entry, and is removed after it")
    func longNames() throws {
        let (name, sidecar) = (try entry(long), try entry(long) + ".name")
        #expect(name.hasPrefix("vaultfs.long."))
        _ = try root.createFile(long, mode: 0o600, owner: nil)
        #expect(try entries() == [name, sidecar])
        let blob = try root.descriptor.sidecarBlob(of: Component(ascii(name)))
        #expect(EntryName.decode(ascii(name), sidecarBlob: blob, keys: root.keys) == long)
        // A failed creation must leave the sidecar of the existing entry.
        #expect(throws: StoreError.system(.fileExists)) { _ = try root.createFile(long, mode: 0o600, owner: nil) }
        #expect(throws: StoreError.system(.fileExists)) { try root.makeDirectory(long, mode: 0o700, owner: nil) }
        #expect(try entries() == [name, sidecar])
        try root.rename(root.encode(long), to: root, as: root.encode(ascii("short")), flags: 0)
        #expect(try entries() == [entry(ascii("short"))])
        try root.rename(root.encode(ascii("short")), to: root, as: root.encode(long), flags: 0)
        #expect(try entries() == [name, sidecar])
        try root.unlink(root.encode(long))
        #expect(try entries().isEmpty)
        // If the name cannot be created at all, its sidecar must vanish.
        let other = try make("d")
        #expect(throws: StoreError.self) {
            try root.rename(root.encode(ascii("none")), to: other, as: other.encode(long), flags: 0)
        }
        #expect(throws: StoreError.self) { try other.link(long, to: "none", in: root.descriptor) }
        #expect(try entries(of: entry(ascii("d"))).isEmpty)
    }

    @Test("Store-14: directories, links and fifos with long names")
    func longKinds() throws {
        try root.makeDirectory(long, mode: 0o700, owner: nil)
        #expect(try entries() == [entry(long), entry(long) + ".name"])
        try root.removeDirectory(root.encode(long))
        try root.makeLink(long, target: ascii("target"), owner: nil)
        #expect(
            try root.store.keyRing.linkTarget(ofStored: root.descriptor.linkTarget(of: root.encode(long).entry)).target
                == ascii("target"))
        try root.unlink(root.encode(long))
        try root.makeNode(long, mode: S_IFIFO | 0o600, device: 0, owner: nil)
        try root.link(ascii("other"), to: root.encode(long).entry, in: root.descriptor)
        try root.rename(root.encode(long), to: root, as: root.encode(ascii("other")), flags: 0)
        #expect(try entries() == [entry(long), entry(long) + ".name", entry(ascii("other"))], "two names of one file")
        try root.unlink(root.encode(long))
        #expect(try entries() == [entry(ascii("other"))])
    }

    @Test("Store-17: a directory renamed onto an empty one replaces it, onto another one it does not")
    func renameOntoDirectory() throws {
        let (a, b, full) = (try make("a"), try make("b"), try make("full"))
        _ = try a.createFile(ascii("in a"), mode: 0o600, owner: nil)
        _ = try full.createFile(ascii("x"), mode: 0o600, owner: nil)
        #expect(throws: StoreError.system(.directoryNotEmpty)) {
            try root.rename(root.encode(ascii("a")), to: root, as: root.encode(ascii("full")), flags: 0)
        }
        #expect(throws: StoreError.system(.fileExists)) {
            try root.rename(
                root.encode(ascii("a")), to: root, as: root.encode(ascii("b")), flags: linux_RENAME_NOREPLACE)
        }
        try root.rename(root.encode(ascii("a")), to: root, as: root.encode(ascii("b")), flags: 0)
        #expect(try entries() == [entry(ascii("b")), entry(ascii("full"))])
        #expect(try open(ascii("b")).status(of: a.encode(ascii("in a")).entry).st_size == 128)
        #expect(try b.descriptor.status().st_nlink == 0)
        // Try the same with a target in another directory.
        _ = try make("b", in: full)
        #expect(throws: StoreError.system(.directoryNotEmpty)) {
            try full.rename(full.encode(ascii("b")), to: root, as: root.encode(ascii("b")), flags: 0)
        }
        try root.rename(root.encode(ascii("b")), to: full, as: full.encode(ascii("b")), flags: 0)
        #expect(try open(ascii("b"), in: full).status(of: a.encode(ascii("in a")).entry).st_size == 128)
    }

    @Test(
        "Store-43: a rename leaves a whiteout under the old entry, which keeps its sidecar", arguments: [false, true])
    func whiteout(isLong: Bool) throws {
        let old = isLong ? long : ascii("old")
        let sidecar = isLong ? [try entry(old) + ".name"] : []
        let file = try root.createFile(old, mode: 0o600, owner: nil)
        let moved = try FileIdentity(root.status(of: root.encode(old).entry))
        try root.rename(root.encode(old), to: root, as: root.encode(ascii("new")), flags: linux_RENAME_WHITEOUT)
        #expect(try FileIdentity(root.status(of: root.encode(ascii("new")).entry)) == moved)
        let whiteout = try root.status(of: root.encode(old).entry)
        #expect(whiteout.st_mode == S_IFCHR && whiteout.st_rdev == 0)
        #expect(try entries() == Set([entry(old), entry(ascii("new"))] + sidecar))
        withExtendedLifetime(file) {}
        // Rename a directory over an empty one, in which the store sees the record.
        let directory = try make("d")
        _ = try directory.createFile(ascii("f"), mode: 0o600, owner: nil)
        _ = try make("empty")
        let flags = linux_RENAME_WHITEOUT
        try root.rename(root.encode(ascii("d")), to: root, as: root.encode(ascii("empty")), flags: flags)
        #expect(try open(ascii("empty")).status(of: directory.encode(ascii("f")).entry).st_size == 128)
        #expect(try root.status(of: root.encode(ascii("d")).entry).st_mode == S_IFCHR)
        #expect(throws: StoreError.system(.fileExists)) {
            try root.rename(
                root.encode(ascii("new")), to: root, as: root.encode(ascii("d")), flags: flags | linux_RENAME_NOREPLACE)
        }
        for name in [old, ascii("d")] { try root.unlink(root.encode(name)) }
        #expect(try entries() == [entry(ascii("new")), entry(ascii("empty"))])
    }

    @Test("Store-13: entries that do not authenticate prevent the removal of a directory, and stay")
    func unauthenticatedEntries() throws {
        let path = fixture.path + "/" + (try entry(ascii("d")))
        for name in ["note.txt", "vaultfs.long.AAAA", "vaultfs.unknown"] {
            _ = try make("d")
            try fixture.write([1], to: try entry(ascii("d")) + "/" + name)
            #expect(throws: StoreError.system(.directoryNotEmpty)) {
                try root.removeDirectory(root.encode(ascii("d")))
            }
            #expect(try entries(of: entry(ascii("d"))) == [name])
            _ = try open(ascii("d"))
            #expect(unlink(path + "/" + name) == 0)
            try root.removeDirectory(root.encode(ascii("d")))
        }
    }

    @Test("Store-12: a directory without a valid record can be removed when otherwise empty")
    func removeDamaged() throws {
        for damaged in [nil, pattern(64)] as [[UInt8]?] {
            _ = try make("d")
            let record = try entry(ascii("d")) + "/vaultfs.dir"
            if let damaged { try fixture.write(damaged, to: record) } else { unlink(fixture.path + "/" + record) }
            damage { _ = try open(ascii("d")) }
            try root.removeDirectory(root.encode(ascii("d")))
            #expect(try entries().isEmpty)
        }
    }

    @Test("Store-13: leftovers of another mount are swept, our own and everything else stay")
    func sweep() throws {
        _ = try root.createFile(long, mode: 0o600, owner: nil)
        let kept = try entries()
        try fixture.write([1], to: "vaultfs.tmp.0123")
        #expect(mkdir(fixture.path + "/vaultfs.tmp.4567", 0o700) == 0)
        try fixture.write([1], to: "vaultfs.tmp.4567/vaultfs.dir")
        #expect(mkdir(fixture.path + "/vaultfs.tmp.89ab", 0o700) == 0)
        try fixture.write([1], to: "vaultfs.tmp.89ab/something")
        #expect(symlink("/tmp", fixture.path + "/vaultfs.tmp.cdef") == 0)
        let own = String(decoding: try root.temporaryEntry(), as: UTF8.self)
        try fixture.write([1], to: own)
        try root.sweep()
        #expect(try entries() == kept.union([own, "vaultfs.tmp.89ab"]))
        #expect(access("/tmp", F_OK) == 0)
        let next = try fixture.openRoot(in: try fixture.open())
        try next.sweep()
        #expect(try entries() == kept.union(["vaultfs.tmp.89ab"]))
    }

    @Test(
        "A directory swapped for a link, a record that is a link or a fifo: not followed, no hang",
        .timeLimit(.minutes(60)))
    func swapped() throws {
        _ = try make("d")
        let other = try make("other")
        _ = try other.createFile(ascii("x"), mode: 0o600, owner: nil)
        let (path, record) = (fixture.path + "/" + (try entry(ascii("d"))), "/vaultfs.dir")
        #expect(unlink(path + record) == 0)
        #expect(symlink("../" + (try entry(ascii("other"))) + record, path + record) == 0)
        damage { _ = try open(ascii("d")) }
        #expect(unlink(path + record) == 0)
        makeFifo(path + record)
        damage { _ = try open(ascii("d")) }
        #expect(unlink(path + record) == 0)
        #expect(mkdir(path + record, 0o700) == 0)
        damage { _ = try open(ascii("d")) }
        #expect(rmdir(path + record) == 0)
        #expect(rmdir(path) == 0)
        #expect(symlink(try entry(ascii("other")), path) == 0)
        #expect(throws: StoreError.system(.notDirectory)) { _ = try open(ascii("d")) }
        #expect(throws: StoreError.system(.notDirectory)) { try root.removeDirectory(root.encode(ascii("d"))) }
        damage {
            _ = try root.store.keyRing.linkTarget(
                ofStored: root.descriptor.linkTarget(of: root.encode(ascii("d")).entry))
        }
        #expect(try entries(of: entry(ascii("other"))).count == 1)
    }

    @Test("A file swapped for a link or a fifo is not opened", .timeLimit(.minutes(60)))
    func swappedFile() throws {
        _ = try root.createFile(ascii("f"), mode: 0o600, owner: nil)
        let (name, path) = (try entry(ascii("f")), fixture.path + "/" + (try entry(ascii("f"))))
        #expect(rename(path, fixture.path + "/moved") == 0)
        #expect(symlink("moved", path) == 0)
        #expect(throws: StoreError.system(.tooManySymbolicLinkLevels)) { _ = try fixture.reopen(name, in: store) }
        #expect(unlink(path) == 0)
        makeFifo(path)
        damage { _ = try fixture.reopen(name, in: store) }
    }
}
