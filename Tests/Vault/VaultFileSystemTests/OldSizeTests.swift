import FileSystem
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import VaultFileSystem
@testable import VaultStore

/// Files cut to their authenticated length at the open, while the kernel has their old size.
@Suite struct OldSizeTests {
    private let vault: MountedVault
    private let notified = Monitor<[UInt64]>([])

    init() throws {
        vault = try MountedVault()
        try vault.file("f", pattern(8192))
        vault.system.shutDown()
        try extend()
    }

    /// Appends to the backing file.
    private func extend() throws {
        let backing = try vault.backing("f")
        try Bytes.put(Bytes.of(backing) + pattern(10_000), at: backing)
    }

    /// The vault after an unclean end, without the background thread.
    private func mountAfterKill(isReadOnly: Bool = false) throws -> VaultFileSystem {
        let record = WriterRecord(
            id: "1", boot: "another", process: ProcessIdentity(processID: 1, start: 1, namespace: 1), host: "here")
        try Bytes.put(record.bytes, at: vault.path + "/vaultfs.lock")
        let root = try Descriptor(path: FilePath(bytes: ascii(vault.path)), flags: O_RDONLY | O_DIRECTORY)
        let lock =
            isReadOnly ? nil : try WriterLock.acquire(root: root, .exclusive, wait: .seconds(60), isRemote: false)
        return try VaultFileSystem(
            store: try Store(
                root: FileDescriptor(rawValue: root.fd), keyRing: vault.keyRing, cacheSize: 1 << 20,
                isReadOnly: isReadOnly, writerLock: lock))
    }

    /// Opens and closes the file. Returns how the kernel may use its page cache for that opening.
    private func caching(_ id: NodeID, _ flags: Int32, _ system: VaultFileSystem) throws -> PageCaching {
        let handle = try system.open(id, flags: flags, for: .root, workspace: vault.workspace)
        defer { system.release(handle) }
        return system.pageCaching(of: handle)
    }

    /// Expects one notification of the kernel, which then must look the file up once.
    private func expectOnce(_ entry: NodeEntry, _ flags: Int32, _ system: VaultFileSystem) throws {
        #expect(try caching(entry.id, flags, system) == .outdated)
        #expect(notified.access { $0 } == [entry.id.rawValue])
        #expect(try system.lookUp(ascii("f"), in: .root).attributes.st_size == 8192)
        #expect(try caching(entry.id, flags, system) == .keep)
        #expect(notified.access { $0 } == [entry.id.rawValue])
    }

    private func observe(_ system: VaultFileSystem) {
        system.setAttributeObserver { [notified] id in notified.access { $0.append(id) } }
    }

    @Test("Store-3: a sealed file that is longer is looked up again when it is opened for writing")
    func sealed() throws {
        try vault.remount()
        observe(vault.system)
        let entry = try vault.system.lookUp(ascii("f"), in: .root)
        #expect(entry.attributes.st_size > 8192)
        #expect(try caching(entry.id, O_RDONLY, vault.system) == .bypass)
        try expectOnce(entry, O_RDWR, vault.system)
    }

    @Test("Store-3: the kernel itself sets the size of one that is truncated")
    func truncated() throws {
        try vault.remount()
        let entry = try vault.system.lookUp(ascii("f"), in: .root)
        #expect(try caching(entry.id, O_RDWR | O_TRUNC, vault.system) == .keep)
        #expect(try caching(entry.id, O_RDWR, vault.system) == .keep)
    }

    @Test("Store-6: after an unclean end one is looked up again when it is opened", arguments: [O_RDONLY, O_RDWR])
    func torn(flags: Int32) throws {
        let system = try mountAfterKill()
        observe(system)
        let entry = try system.lookUp(ascii("f"), in: .root)
        #expect(entry.attributes.st_size > 8192)
        try expectOnce(entry, flags, system)
        system.shutDown()
    }

    @Test("Store-6: the same if the walk in the background has cut it, or the reading of an attribute")
    func cutBefore() throws {
        for byWalk in [true, false] {
            let system = try mountAfterKill()
            observe(system)
            let entry = try system.lookUp(ascii("f"), in: .root)
            if byWalk {
                system.completeEverything()
            } else {
                expect(.noData) { _ = try system.attribute(entry.id, ascii("user.none")) }
            }
            #expect(notified.access { $0 } == [entry.id.rawValue])
            try expectOnce(entry, O_RDONLY, system)
            system.shutDown()
            notified.access { $0 = [] }
            try extend()
        }
    }

    @Test("Store-6: a read-only mount shows the shorter length from the start")
    func readOnly() throws {
        let system = try mountAfterKill(isReadOnly: true)
        observe(system)
        let entry = try system.lookUp(ascii("f"), in: .root)
        #expect(entry.attributes.st_size == 8192)
        #expect(try caching(entry.id, O_RDONLY, system) == .keep)
        #expect(notified.access { $0 } == [])
    }
}
