import FileSystem
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import VaultFileSystem
@testable import VaultStore

/// The attributes of files as shown by a read-only store after the daemon was killed: with changes in the log, or with
/// a torn tail.
@Suite struct FoundChangesTests {
    private let vault: MountedVault

    init() throws { vault = try MountedVault() }

    private func read() throws -> VaultFileSystem {
        let root = try Descriptor(path: FilePath(bytes: ascii(vault.path)), flags: O_RDONLY | O_DIRECTORY)
        return try VaultFileSystem(
            store: Store(
                root: FileDescriptor(rawValue: root.fd), keyRing: vault.keyRing, cacheSize: 1 << 20, isReadOnly: true))
    }

    /// Expects the same attributes by lookup, by listing, while the file is open and afterwards, and returns them.
    private func expectSame(_ name: String) throws -> stat {
        let system = try read()
        let entry = try system.lookUp(ascii(name), in: .root)
        let before = entry.attributes
        let handle = try system.open(entry.id, flags: O_RDONLY, for: vault.caller, workspace: vault.workspace)
        let open = try system.attributes(entry.id)
        system.release(handle)
        let after = try system.attributes(entry.id)
        for status in [open, after] {
            #expect(FileStamp(status) == FileStamp(before))
            #expect(status.st_size == before.st_size)
            #expect((status.st_mtim.tv_sec, status.st_mtim.tv_nsec) == (before.st_mtim.tv_sec, before.st_mtim.tv_nsec))
        }
        return before
    }

    @Test("a file with changes in the log has the same size and times before and after it is opened")
    func logged() throws {
        for name in ["changed", "other"] { try vault.file(name, pattern(10_000)) }
        vault.system.store.durability.sealer.sealAll()
        let old = [timespec(tv_sec: 1_000_000_000, tv_nsec: 0), timespec(tv_sec: 1_000_000_000, tv_nsec: 7)]
        for name in ["changed", "other"] { #expect(utimensat(AT_FDCWD, try vault.backing(name), old, 0) == 0) }
        let id = try vault.system.lookUp(ascii("changed"), in: .root).id
        let handle = try vault.system.open(id, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)
        try vault.write(handle, pattern(100, seed: 2), at: 50)
        // From here on the test behaves as if the daemon had been killed.
        let shown = try vault.system.attributes(id)
        let found = try expectSame("changed")
        #expect(found.st_mtim.tv_sec == shown.st_mtim.tv_sec && found.st_mtim.tv_nsec == shown.st_mtim.tv_nsec)
        #expect(found.st_mtim.tv_sec > 1_000_000_000 && found.st_size == 10_000)
        let other = try expectSame("other")
        #expect(other.st_mtim.tv_sec == 1_000_000_000 && other.st_mtim.tv_nsec == 7)
    }

    @Test("Store-6: a file whose end was torn has the same size before and after it is opened")
    func torn() throws {
        let (_, handle) = try vault.system.create(
            ascii("torn"), in: .root, mode: 0o644, flags: O_RDWR, for: vault.caller)
        try vault.write(handle, pattern(8192))
        // Simulates a power cut: the second record's data is gone, but its space remains.
        let backing = try vault.backing("torn")
        #expect(truncate(backing, 128 + 4128) == 0 && truncate(backing, 128 + 2 * 4128) == 0)
        try Bytes.put(ascii("1 another 1 here 1 1\n"), at: vault.path + "/vaultfs.lock")
        #expect(try expectSame("torn").st_size == 4096)
    }

    @Test("without found changes no file is opened for its attributes")
    func cost() throws {
        try vault.file("file", pattern(100))
        vault.system.shutDown()
        try Bytes.put(ascii("\n"), at: vault.path + "/vaultfs.lock")
        let system = try read()
        #expect(!system.store.opensForAttributes)
        #expect(try system.lookUp(ascii("file"), in: .root).attributes.st_size == 100)
    }
}
