import FileSystem
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import VaultFileSystem
@testable import VaultStore

/// A read-only file system over a vault while another machine writes to it.
@Suite(.timeLimit(.minutes(60))) struct FollowingTests {
    private let vault: MountedVault
    private let follower: VaultFileSystem
    private let workspace: Workspace

    init() throws {
        vault = try MountedVault()
        let root = try FileDescriptor.open(FilePath(vault.path), .readOnly, options: .directory)
        defer { try? root.close() }
        let store = try Store(
            root: root, keyRing: vault.keyRing, cacheSize: 1 << 20, isReadOnly: true, followsWriter: true)
        follower = try VaultFileSystem(store: store)
        workspace = try Workspace(layout: store.layout)
    }

    private func open(_ name: String) throws -> FileHandle {
        try follower.open(
            try follower.lookUp(ascii(name), in: .root).id, flags: O_RDONLY, for: .root, workspace: workspace)
    }

    private func read(_ handle: FileHandle, at offset: UInt64 = 0, count: Int = 1 << 17) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        let had = try bytes.withUnsafeMutableBytes {
            try follower.read(handle, at: offset, into: $0, workspace: workspace)
        }
        return Array(bytes[..<had])
    }

    private func rewrite(_ name: String, _ content: [UInt8], at offset: UInt64 = 0) throws {
        let id = try vault.system.lookUp(ascii(name), in: .root).id
        let handle = try vault.system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
        try vault.write(handle, content, at: offset)
        vault.system.release(handle)
    }

    private func bytes(_ count: Int, _ seed: UInt8) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: $0 / 7) ^ seed }
    }

    /// Lets the follower check the store again, as after a second.
    private func look(_ handle: FileHandle) {
        _ = follower.store.foundChanges?.refreshed(isRetry: true)
        handle.file.parts.lastCheck.store(0, ordering: .releasing)
    }

    @Test("An open file shows overwritten data and its current length, sealed or not", arguments: [false, true])
    func changes(isSealed: Bool) throws {
        try vault.file("file", bytes(10_000, 1))
        if isSealed { vault.system.store.durability.sealer.sealAll() }
        let handle = try open("file")
        defer { follower.release(handle) }
        #expect(try read(handle) == bytes(10_000, 1))
        try rewrite("file", bytes(5000, 2), at: 3000)
        look(handle)
        #expect(try read(handle, at: 3000, count: 5000) == bytes(5000, 2))
        try rewrite("file", bytes(9000, 3), at: 9000)
        if isSealed { vault.system.store.durability.sealer.sealAll() }
        #expect(try follower.attributes(follower.nodes.id(of: handle.node)).st_size == 18_000)
        #expect(try read(handle, at: 9000) == bytes(9000, 3))
        #expect(follower.counters.damagedReads.total == 0)
    }

    @Test(
        "The bytes past a sealed length are unreadable data, even if the file is extended after the open")
    func extendedSparse() throws {
        try vault.file("file", bytes(5000, 1))
        let id = try vault.system.lookUp(ascii("file"), in: .root).id
        var changes = AttributeChanges()
        changes.length = 1_998_848
        _ = try vault.system.change(id, changes, handle: nil, workspace: vault.workspace)
        vault.system.store.durability.sealer.sealAll()
        let handle = try open("file")
        defer { follower.release(handle) }
        expect(.noSuchAddressOrDevice) { _ = try follower.seek(handle, from: 1_000_000, toHole: false) }
        try #require(truncate(try vault.backing("file"), 4_000_000) == 0)
        handle.file.parts.lastCheck.store(0, ordering: .releasing)
        #expect(try follower.seek(handle, from: 1_000_000, toHole: false) == 1_998_848)
        #expect(try follower.seek(handle, from: 2_500_000, toHole: false) == 2_500_000)
        expect(.ioError) { _ = try read(handle, at: 2_500_000) }
    }

    @Test("A file that was cut short is read up to its new end")
    func shrinking() throws {
        try vault.file("file", bytes(20_000, 1))
        vault.system.store.durability.sealer.sealAll()
        let handle = try open("file")
        defer { follower.release(handle) }
        let id = try vault.system.lookUp(ascii("file"), in: .root).id
        var changes = AttributeChanges()
        changes.length = 5000
        _ = try vault.system.change(id, changes, handle: nil, workspace: vault.workspace)
        look(handle)
        #expect(try read(handle) == Array(bytes(20_000, 1)[..<5000]))
    }

    @Test("A half-written record is read again; one that stays so is EIO, and counted once")
    func torn() throws {
        try vault.file("file", bytes(9000, 1))
        let handle = try open("file")
        defer { follower.release(handle) }
        let backing = try vault.backing("file")
        let file = FileHandleOnDisk(backing)
        let record = try file.read(200, count: 64)
        try file.write([UInt8](repeating: 9, count: 64), at: 200)
        // The second read of the records, and each later one, finds a whole record.
        let looks = Atomic<Int>(0)
        let directory = FilePath(backing).lexicallyNormalized().removingLastComponent().string
        let found = try ReadFault.during(in: directory) { kind, _ in
            guard case .bytes(let count) = kind, count >= 4096 else { return 0 }
            if looks.add(1, ordering: .relaxed).newValue == 2 { try? file.write(record, at: 200) }
            return 0
        } _: {
            try read(handle)
        }
        #expect(found == bytes(9000, 1))
        #expect(looks.load(ordering: .relaxed) >= 2)
        #expect(follower.counters.damagedReads.total == 0)
        try file.write([UInt8](repeating: 9, count: 64), at: 200)
        expect(.ioError) { _ = try read(handle) }
        #expect(follower.counters.damagedReads.total == 1)
    }

    @Test("A file replaced by a rename is stale when the old one is opened, and the new one when it is looked up")
    func replaced() throws {
        try vault.file("file", bytes(9000, 1))
        let handle = try open("file")
        defer { follower.release(handle) }
        try vault.file("new", bytes(7000, 2))
        let rename = {
            try vault.system.rename(
                ascii("new"), in: .root, to: ascii("file"), in: .root, flags: 0, for: .root)
        }
        try rename()
        let old = follower.nodes.id(of: handle.node)
        expect(.staleNFSFileHandle) {
            _ = try follower.open(old, flags: O_RDONLY, for: .root, workspace: workspace)
        }
        #expect(try read(try open("file")) == bytes(7000, 2))
    }

    @Test("Another file under the inode number of an open file is not confused with it")
    func reusedNumber() throws {
        try vault.file("file", bytes(9000, 1))
        try vault.file("other", bytes(9000, 2))
        let handle = try open("file")
        defer { follower.release(handle) }
        let other = try Bytes.of(try vault.backing("other"))
        try FileHandleOnDisk(try vault.backing("file")).write(other, at: 0)
        let id = follower.nodes.id(of: handle.node)
        expect(.staleNFSFileHandle) {
            _ = try follower.open(id, flags: O_RDONLY, for: .root, workspace: workspace)
        }
        #expect(try read(try open("file")) == bytes(9000, 2))
    }

    @Test("A file that the store returns in an older state than before is EIO, and a problem that status names")
    func olderFile() throws {
        try vault.file("file", bytes(9000, 1))
        vault.system.store.durability.sealer.sealAll()
        let former = try Bytes.of(try vault.backing("file"))
        try rewrite("file", bytes(9500, 2))
        vault.system.store.durability.sealer.sealAll()
        let handle = try open("file")
        defer { follower.release(handle) }
        #expect(try read(handle) == bytes(9500, 2))
        #expect(follower.store.problems == [])
        try FileHandleOnDisk(try vault.backing("file")).write(former, at: 0)
        look(handle)
        expect(.ioError) { _ = try read(handle) }
        #expect(follower.store.problems == [StoreFaults.olderFile])
    }

    @Test("A log that the store returns in an older state is a problem that status names; its changes stay those known")
    func olderLog() throws {
        try vault.file("file", bytes(9000, 1))
        let log = vault.system.store.log
        try rewrite("file", bytes(5000, 2))
        let former = try Bytes.of("\(vault.path)/vaultfs.log")
        try log.checkpoint(.sync)
        try rewrite("file", bytes(5000, 3))
        let changes = try #require(follower.store.foundChanges)
        #expect(changes.refreshed(isRetry: true).files.count == 1)
        let current = try Bytes.of("\(vault.path)/vaultfs.log")
        let file = FileHandleOnDisk("\(vault.path)/vaultfs.log")
        try file.write(former, at: 0)
        let found = changes.refreshed(isRetry: true)
        #expect(found.fault == LogRecovery.older && found.files.count == 1)
        #expect(follower.store.problems == [LogRecovery.older])
        try file.write(current, at: 0)
        #expect(changes.refreshed(isRetry: true).fault == nil)
    }

    @Test("New and removed names are noticed; nothing can be changed; the kernel caches nothing for long")
    func names() throws {
        try vault.file("one")
        #expect(try listed() == ["one"])
        try vault.file("two")
        try vault.system.remove(ascii("one"), in: .root, isDirectory: false)
        #expect(try listed() == ["two"])
        expect(.readOnlyFileSystem) { _ = try follower.remove(ascii("two"), in: .root, isDirectory: false) }
        #expect(!follower.ownsSource && vault.system.ownsSource)
        let handle = try open("two")
        defer { follower.release(handle) }
        if case .drop = follower.pageCaching(of: handle) {} else { Issue.record("pages are kept") }
    }

    private func listed() throws -> [String] {
        let handle = try follower.openDirectory(.root)
        defer { follower.release(handle) }
        var names: [String] = []
        try follower.list(handle, from: 0, withAttributes: false) { entry in
            names.append(String(decoding: entry.name, as: UTF8.self))
            return true
        }
        return names.filter { !$0.hasPrefix(".") }
    }
}

/// A backing file, as a writer on another machine reaches it.
private struct FileHandleOnDisk: Sendable {
    private let file: Descriptor

    init(_ path: String) { file = Descriptor(owning: Glibc.open(path, O_RDWR)) }

    func read(_ offset: UInt64, count: Int) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        _ = try bytes.withUnsafeMutableBytes { try file.read(at: offset, into: $0) }
        return bytes
    }

    func write(_ bytes: [UInt8], at offset: UInt64) throws {
        try bytes.withUnsafeBytes { try file.write($0, at: offset) }
    }
}
