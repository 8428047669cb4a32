import CLinux
import FileSystem
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultStore

@testable import VaultFileSystem

/// Files, attributes, and the operations refused by a read-only mount.
@Suite struct FileTests {
    private let vault: MountedVault
    private var system: VaultFileSystem { vault.system }

    /// XATTR_CREATE and XATTR_REPLACE of setxattr(2), missing in Glibc's module.
    private let createOnly: Int32 = 1
    private let replaceOnly: Int32 = 2

    init() throws { vault = try MountedVault() }

    private func set(_ id: NodeID, _ name: String, _ value: [UInt8], flags: Int32 = 0) throws {
        try system.setAttribute(id, ascii(name), value: value, flags: flags)
    }

    @Test("Store-8: written files are sealed at the latest when the vault is unmounted")
    func sealing() throws {
        let file = try vault.file("f", pattern(5000)).id
        #expect(system.statistics().filesSealed == 0)
        system.shutDown()
        #expect(system.statistics().filesSealed == 1)
        try vault.remount()
        #expect(try vault.content("f") == pattern(5000))
        #expect(file != .root)
    }

    @Test("truncate(2) by path opens the file only for a moment", arguments: [0, 3])
    func truncatedByPath(length: UInt64) throws {
        let file = try vault.file("f", pattern(5000)).id
        var changes = AttributeChanges()
        changes.length = length
        let other = try system.open(file, flags: O_RDWR, for: .root, workspace: vault.workspace)
        _ = try system.change(file, changes, handle: nil, workspace: vault.workspace)
        #expect(system.openHandles == 1 && system.writingHandles == 1)
        system.release(other)
        #expect(system.openHandles == 0 && system.writingHandles == 0)
    }

    @Test(
        "A file capability survives the seal, also for a file that is not executable yet", .enabled(if: geteuid() == 0))
    func capability() throws {
        // VFS_CAP_REVISION_2 with cap_net_raw, linux/capability.h.
        let value: [UInt8] = [0, 0, 0, 2, 0, 0x20] + [UInt8](repeating: 0, count: 14)
        let (entry, handle) = try system.create(ascii("f"), in: .root, mode: 0o600, flags: O_RDWR, for: vault.caller)
        try vault.write(handle, pattern(100))
        try set(entry.id, "security.capability", value)
        system.release(handle)
        system.store.durability.sealer.sealAll()
        #expect(try system.attribute(entry.id, ascii("security.capability")) == value)
        #expect(system.statistics().filesSealed == 1)
    }

    @Test("Data overwritten in place is durable after the unmount, also in files that are open")
    func overwrittenInPlace() throws {
        try vault.file("f", pattern(20_000))
        try vault.remount()
        let id = try system.lookUp(ascii("f"), in: .root).id
        let handle = try system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
        let log = try CallLog(of: FilePath(vault.path).lexicallyNormalized().string) {
            try vault.write(handle, [9, 9, 9], at: 5000)
            system.shutDown()
        }
        let written = Set(log.changes.filter { $0.call.kind == .write }.map(\.call.path)).filter {
            !$0.contains("/vaultfs.")
        }
        #expect(written.count == 1)
        #expect(log.unsynchronized.isDisjoint(with: written))
    }

    @Test("All handles of an open file share it")
    func shared() throws {
        let id = try vault.file("f", pattern(5000)).id
        let first = try system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
        let second = try system.open(id, flags: O_RDONLY, for: .root, workspace: vault.workspace)
        #expect(first.file === second.file)
        try vault.write(first, [9, 9, 9], at: 4999)
        #expect(try vault.read(second) == pattern(4999) + [9, 9, 9])
        #expect(try system.attributes(id).st_size == 5002)
        let truncated = try system.open(id, flags: O_WRONLY | O_TRUNC, for: .root, workspace: vault.workspace)
        #expect(try vault.read(second) == [])
        for handle in [first, second, truncated] { system.release(handle) }
    }

    @Test("A file that waits for its seal is the same after the kernel has forgotten it and looks it up again")
    func forgottenWhileWaiting() throws {
        let content = pattern(5000)
        let id = try vault.file("f", content).id
        system.forget(id, count: 1)
        let again = try system.lookUp(ascii("f"), in: .root).id
        let handle = try system.open(again, flags: O_RDWR, for: .root, workspace: vault.workspace)
        try vault.write(handle, content, at: 5000)
        try system.synchronize(handle, dataOnly: false)
        // The seal due to the first close is made now, while the file is open and longer.
        system.store.durability.sealer.sealAll()
        try vault.write(handle, [1, 2, 3], at: 10000)
        system.release(handle)
        system.forget(again, count: 1)
        try vault.remount()
        #expect(try vault.content("f") == content + content + [1, 2, 3])
        #expect(system.statistics().nodes == 1)
    }

    @Test("Sizes, modes, owners and times are set as requested")
    func changes() throws {
        let id = try vault.file("f", pattern(9000)).id
        var changes = AttributeChanges()
        changes.length = 100
        changes.mode = 0o600
        changes.modificationTime = timespec(tv_sec: 1_000_000_000, tv_nsec: 123)
        let found = try system.change(id, changes, handle: nil, workspace: vault.workspace)
        #expect(found.st_size == 100)
        #expect(found.st_mode & 0o7777 == 0o600)
        #expect(found.st_mtim.tv_sec == 1_000_000_000 && found.st_mtim.tv_nsec == 123)
        system.shutDown()
        #expect(try system.attributes(id).st_mtim.tv_sec == 1_000_000_000)
        #expect(try vault.content(id) == pattern(100))
        let link = try system.make(ascii("l"), in: .root, .link(target: ascii("anywhere")), for: vault.caller)
        var mode = AttributeChanges()
        mode.mode = 0o600
        expect(.notSupported) { _ = try system.change(link.id, mode, handle: nil, workspace: vault.workspace) }
    }

    @Test("Store-4, Store-7: a file that cannot be opened can be truncated to nothing", arguments: [50, 200])
    func truncateDamaged(size: Int) throws {
        let id = try vault.file("f", pattern(9000)).id
        system.shutDown()
        #expect(truncate(try vault.backing("f"), size) == 0)
        expect(.ioError) { _ = try vault.content(id) }
        var changes = AttributeChanges()
        changes.length = 0
        #expect(try system.change(id, changes, handle: nil, workspace: vault.workspace).st_size == 0)
        #expect(try vault.content(id) == [])
        #expect(truncate(try vault.backing("f"), size) == 0)
        let handle = try system.open(id, flags: O_RDWR | O_TRUNC, for: .root, workspace: vault.workspace)
        try vault.write(handle, [1, 2])
        system.release(handle)
        #expect(try vault.content(id) == [1, 2])
    }

    @Test("Links-3: a link returns its target, and the target's size")
    func links() throws {
        for target in [ascii("a"), ascii("../some/where"), pattern(3000).map { $0 | 1 }] {
            let link = try system.make(ascii("l"), in: .root, .link(target: target), for: vault.caller)
            #expect(link.attributes.st_size == target.count)
            #expect(try system.linkTarget(link.id) == target)
            try system.remove(ascii("l"), in: .root, isDirectory: false)
        }
        let long = [UInt8](repeating: 1, count: 3001)
        expect(.fileNameTooLong) { _ = try system.make(ascii("l"), in: .root, .link(target: long), for: vault.caller) }
    }

    @Test("Attributes-1, Attributes-2, Store-15: user attributes are encrypted, reserved names refused")
    func attributes() throws {
        let file = try vault.file("f").id
        let directory = try vault.directory("d")
        for id in [file, directory] {
            try set(id, "user.color", ascii("green"), flags: createOnly)
            try set(id, "user.empty", [])
            expect(.fileExists) { try set(id, "user.color", [], flags: createOnly) }
            expect(.noData) { try set(id, "user.other", [], flags: replaceOnly) }
            #expect(try system.attribute(id, ascii("user.color")) == ascii("green"))
            #expect(try system.attribute(id, ascii("user.empty")) == [])
            #expect(try Set(system.attributeNames(id)) == [ascii("user.color"), ascii("user.empty")])
            expect(.noData) { _ = try system.attribute(id, ascii("user.none")) }
            #expect(try system.attribute(id, ascii("user.vaultfs.class")) == ascii("complete"))
            expect(.notSupported) { try set(id, "user.vaultfs.x", [1]) }
            expect(.notSupported) { try system.setAttribute(id, ascii("user.vaultfs.x"), value: nil, flags: 0) }
            expect(.notSupported) { try set(id, "weird.x", [1]) }
            expect(.outOfRange) { try set(id, "user." + String(repeating: "x", count: 166), [1]) }
            try set(id, "user." + String(repeating: "x", count: 165), [1])
            try system.setAttribute(id, ascii("user.color"), value: nil, flags: 0)
            expect(.noData) { _ = try system.attribute(id, ascii("user.color")) }
        }
        let stored = try ExtendedAttributes(Descriptor(owning: open(try vault.backing("f"), O_RDONLY))).names()
        #expect(stored.count == 2)
        #expect(stored.allSatisfy { $0.starts(with: ascii("user.vaultfs.")) })
        let link = try system.make(ascii("l"), in: .root, .link(target: [1]), for: vault.caller).id
        expect(.noData) { try set(link, "user.x", []) }
    }

    @Test(
        "A logged record sets the size that a lookup and a listing show", arguments: [true, false], [true, false])
    func recoveredSize(isReadOnly: Bool, byListing: Bool) throws {
        try tearTruncation()
        try vault.remount(isReadOnly: isReadOnly)
        var size: off_t?
        if byListing {
            let handle = try system.openDirectory(.root)
            try system.list(handle, from: 0, withAttributes: true) { listed in
                if listed.name == ascii("f") { size = listed.attributes.st_size }
                return true
            }
        }
        let found = try system.lookUp(ascii("f"), in: .root)
        #expect(found.attributes.st_size == 5000)
        if byListing { #expect(size == 5000) }
        #expect(try system.attributes(found.id).st_size == 5000)
        #expect(try vault.content(found.id) == pattern(5000))
    }

    /// Leaves the state of a daemon killed after a truncation to 5000, which is only in the log.
    private func tearTruncation() throws {
        let id = try vault.file("f", pattern(9000)).id
        let path = try vault.backing("f")
        let handle = try system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
        var changes = AttributeChanges()
        changes.length = 5000
        _ = try system.change(id, changes, handle: handle, workspace: vault.workspace)
        let (backing, log) = (try Bytes.of(path), try Bytes.of(vault.path + "/vaultfs.log"))
        system.release(handle)
        system.shutDown()
        try Bytes.put(backing, at: path)
        try Bytes.put(log, at: vault.path + "/vaultfs.log")
    }

    @Test("A read-only mount refuses every change with EROFS, and changes no byte")
    func readOnly() throws {
        let file = try vault.file("f", pattern(5000))
        try set(file.id, "user.a", [1])
        _ = try vault.directory("d")
        system.shutDown()
        close(open(vault.path + "/vaultfs.tmp.0123", O_CREAT | O_WRONLY, 0o600))
        try vault.remount(isReadOnly: true)
        let before = try Bytes.of(vault.backing("f"))
        let id = try system.lookUp(ascii("f"), in: .root).id
        let changes: [(String, () throws -> Void)] = [
            ("create", { try vault.file("x") }), ("mkdir", { _ = try vault.directory("x") }),
            ("symlink", { _ = try system.make(ascii("x"), in: .root, .link(target: [1]), for: vault.caller) }),
            (
                "mknod",
                { _ = try system.make(ascii("x"), in: .root, .node(mode: S_IFIFO, device: 0), for: vault.caller) }
            ),
            ("link", { _ = try system.make(ascii("x"), in: .root, .hardLink(of: id), for: vault.caller) }),
            ("unlink", { try system.remove(ascii("f"), in: .root, isDirectory: false) }),
            ("rmdir", { try system.remove(ascii("d"), in: .root, isDirectory: true) }),
            (
                "rename",
                { try system.rename(ascii("f"), in: .root, to: ascii("x"), in: .root, flags: 0, for: vault.caller) }
            ),
            ("open", { _ = try system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace) }),
            (
                "truncate",
                { _ = try system.open(id, flags: O_RDONLY | O_TRUNC, for: .root, workspace: vault.workspace) }
            ),
            ("setattr", { _ = try system.change(id, .init(), handle: nil, workspace: vault.workspace) }),
            ("setxattr", { try set(id, "user.b", [1]) }),
            ("removexattr", { try system.setAttribute(id, ascii("user.a"), value: nil, flags: 0) }),
        ]
        for (name, change) in changes { expect(.readOnlyFileSystem, "\(name)", change) }
        let handle = try system.open(id, flags: O_RDONLY, for: .root, workspace: vault.workspace)
        expect(.readOnlyFileSystem) { try vault.write(handle, [1]) }
        expect(.readOnlyFileSystem) {
            try system.allocate(handle, mode: 0, range: 0..<10, workspace: vault.workspace)
        }
        #expect(try vault.read(handle) == pattern(5000))
        #expect(try system.attribute(id, ascii("user.a")) == [1])
        #expect(try Set(vault.names()) == ["f", "d"])
        system.release(handle)
        system.shutDown()
        #expect(try Bytes.of(vault.backing("f")) == before)
        #expect(access(vault.path + "/vaultfs.tmp.0123", F_OK) == 0)
    }

    @Test("An open file that is extended on disk keeps its length for stat(2), lseek(2) and read(2)")
    func extendedWhileOpen() throws {
        let (entry, handle) = try system.create(ascii("f"), in: .root, mode: 0o600, flags: O_RDWR, for: vault.caller)
        defer { system.release(handle) }
        try vault.write(handle, pattern(9000))
        try handle.file.setLength(2_000_000, workspace: vault.workspace)
        try #require(truncate(try vault.backing("f"), 4_000_000) == 0)
        #expect(try system.attributes(entry.id).st_size == 2_000_000)
        #expect(try system.lookUp(ascii("f"), in: .root).attributes.st_size == 2_000_000)
        system.forget(entry.id, count: 1)
        #expect(try system.seek(handle, from: 9000, toHole: true) <= 2_000_000)
        expect(.noSuchAddressOrDevice) { _ = try system.seek(handle, from: 2_000_000, toHole: false) }
    }

    @Test("The requests of fallocate(2) and lseek(2)")
    func allocation() throws {
        let (_, handle) = try system.create(ascii("f"), in: .root, mode: 0o600, flags: O_RDWR, for: vault.caller)
        func allocate(_ mode: Int32, _ range: Range<UInt64>) throws {
            try system.allocate(handle, mode: mode, range: range, workspace: vault.workspace)
        }
        try vault.write(handle, pattern(20000))
        try allocate(linux_FALLOC_FL_PUNCH_HOLE | linux_FALLOC_FL_KEEP_SIZE, 100..<15000)
        let expected = pattern(100) + [UInt8](repeating: 0, count: 14900) + pattern(20000)[15000...]
        #expect(try vault.read(handle) == expected)
        try allocate(linux_FALLOC_FL_KEEP_SIZE, 0..<40000)
        #expect(handle.file.length == 20000)
        try allocate(0, 0..<25000)
        #expect(try vault.read(handle) == expected + [UInt8](repeating: 0, count: 5000))
        expect(.notSupported) { try allocate(linux_FALLOC_FL_PUNCH_HOLE, 0..<10) }
        expect(.notSupported) { try allocate(0x20, 0..<4096) }
        #expect(try system.seek(handle, from: 0, toHole: false) == 0)
        #expect(try system.seek(handle, from: 24999, toHole: true) <= 25000)
        expect(.noSuchAddressOrDevice) { _ = try system.seek(handle, from: 25000, toHole: true) }
        let count = try system.copy(
            from: handle, at: 0, to: handle, at: 30000, count: 100, workspace: vault.workspace)
        #expect(count == 100)
        #expect(try vault.read(handle) == expected + [UInt8](repeating: 0, count: 10000) + pattern(100))
        system.release(handle)
    }
}
