import FileSystem
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultFileSystem
@testable import VaultStore

/// Copies of backing files, put into a vault's directory by sync clients, backups and people. They have the id of the
/// file, but not its name (FileFormat: Log-5).
@Suite struct ForeignCopyTests {
    private let vault: MountedVault
    private let manager = FileManager.default
    private let old = pattern(40_960)
    private var new: [UInt8] { pattern(4096, seed: 2) + old[4096...] }

    init() throws {
        vault = try MountedVault()
        _ = try vault.directory("sub")
        try vault.file("f", old)
        vault.system.store.durability.sealer.sealAll()
    }

    /// Overwrites the first chunk of a file, durably in the log.
    private func overwrite(_ name: String) throws {
        let id = try vault.system.lookUp(ascii(name), in: .root).id
        let handle = try vault.system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
        try vault.write(handle, pattern(4096, seed: 2))
        try handle.file.synchronize(dataOnly: true)
    }

    /// Copies a backing file, with its times.
    private func copy(_ source: String, to path: String) throws {
        try manager.createDirectory(
            at: URL(filePath: path).deletingLastPathComponent(), withIntermediateDirectories: true)
        try manager.copyItem(atPath: source, toPath: path)
    }

    /// Mounts the vault after a kill.
    private func mountAgain(isReadOnly: Bool = false) throws -> VaultFileSystem {
        let root = try FileDescriptor.open(FilePath(vault.path), .readOnly, options: .directory)
        defer { try? root.close() }
        return try VaultFileSystem(
            store: Store(root: root, keyRing: vault.keyRing, cacheSize: 0, isReadOnly: isReadOnly))
    }

    private func content(_ name: String, _ system: VaultFileSystem) throws -> [UInt8] {
        let entry = try system.lookUp(ascii(name), in: .root)
        let handle = try system.open(entry.id, flags: O_RDONLY, for: .root, workspace: vault.workspace)
        defer { system.release(handle) }
        return try vault.read(handle, system)
    }

    /// Names for a copy: E is the entry of the file, S that of a directory.
    static let names = [
        ".stversions/E~20261126-101010", ".sync.tmp", ".E.Ab12Cd", "notes.bak", "AE", "S/E", "S.bak/E",
        ".snapshots/vault/E", "E.sync-conflict-20261126-101010-ABCDFGH", "E~",
    ]

    @Test("Log-5: the changes of a file are not put into a copy of it", arguments: names, [false, true])
    func copied(name: String, isAfterChange: Bool) throws {
        let source = try vault.backing("f")
        let entry = URL(filePath: source).lastPathComponent
        let sub = URL(filePath: try vault.backing("sub")).lastPathComponent
        let path = vault.path + "/" + name.replacing("E", with: entry).replacing("S", with: sub)
        if name.hasPrefix("S.bak") {
            try manager.copyItem(atPath: vault.backing("sub"), toPath: vault.path + "/\(sub).bak")
        }
        if !isAfterChange { try copy(source, to: path) }
        try overwrite("f")
        if isAfterChange { try copy(source, to: path) }
        let before = try Data(contentsOf: URL(filePath: path))
        #expect(try content("f", mountAgain(isReadOnly: true)) == new)
        let system = try mountAgain()
        #expect(try content("f", system) == new)
        #expect(system.store.problems.isEmpty)
        #expect(try Data(contentsOf: URL(filePath: path)) == before)
        #expect(try Bytes.of(vault.path + "/vaultfs.log").count == 4096)
    }

    @Test("Log-5: an old copy of a removed file stays old")
    func removed() throws {
        let source = try vault.backing("f")
        try copy(source, to: vault.path + "/.stversions/old")
        // A copy counts as old if its time is earlier by more than the kernel's clock may be late (`fileTimeDelay`).
        usleep(60_000)
        try overwrite("f")
        #expect(unlink(source) == 0)
        let system = try mountAgain()
        expect(.noSuchFileOrDirectory) { _ = try system.lookUp(ascii("f"), in: .root) }
        #expect(system.store.problems.isEmpty)
        let copy = try Bytes.of(vault.path + "/.stversions/old")
        #expect(try EncryptedFileHeader.sealedLength(copy) == 40_960)
        // Renamed back, the copy is the file's old version.
        #expect(rename(vault.path + "/.stversions/old", source) == 0)
        #expect(try content("f", mountAgain()) == old)
    }

    @Test("Log-5: the changes of a removed file are dropped, also beside a directory that repeats")
    func removedBesideRepeat() throws {
        try overwrite("f")
        #expect(unlink(try vault.backing("f")) == 0)
        let record = try Bytes.of(vault.path + "/vaultfs.dir")
        try Bytes.put(record, at: try vault.backing("sub") + "/vaultfs.dir")
        #expect(try mountAgain().store.problems.isEmpty)
        #expect(try Bytes.of(vault.path + "/vaultfs.log").count == 4096)
    }

    @Test(
        "Log-5: a file that another program has moved since gets its changes", arguments: ["moved", ".sync.tmp", "E~"])
    func moved(name: String) throws {
        let source = try vault.backing("f")
        try overwrite("f")
        // The move must change the file's ctime, so it must come in a later tick of the kernel's clock.
        usleep(20_000)
        let path = vault.path + "/" + name.replacing("E", with: URL(filePath: source).lastPathComponent)
        #expect(rename(source, path) == 0)
        #expect(try mountAgain().store.problems.isEmpty)
        #expect(rename(path, source) == 0)
        #expect(try content("f", mountAgain()) == new)
    }

    @Test("Log-5: of two files with one id and with names, each gets the changes, and it is reported")
    func ambiguous() throws {
        let (source, other) = (try vault.backing("f"), try vault.backing("g"))
        try vault.system.rename(ascii("f"), in: .root, to: ascii("g"), in: .root, flags: 0, for: .root)
        try copy(other, to: source)
        try overwrite("g")
        let system = try mountAgain()
        #expect(try content("f", system) == new)
        #expect(try content("g", system) == new)
        #expect(system.store.problems == [LogRecovery.ambiguous])
        #expect(try manager.contentsOfDirectory(atPath: vault.path).contains { $0.hasPrefix("vaultfs.log") })
    }

    @Test("Log-5: if the directory's record is lost, a file with the form of an encrypted name gets its changes")
    func unproven() throws {
        let source = try vault.backing("f")
        try copy(source, to: vault.path + "/notes.bak")
        try overwrite("f")
        let record = try Bytes.of(vault.path + "/vaultfs.dir")
        #expect(truncate(vault.path + "/vaultfs.dir", 10) == 0)
        let before = try Bytes.of(vault.path + "/notes.bak")
        let root = try FileDescriptor.open(FilePath(vault.path), .readOnly, options: .directory)
        defer { try? root.close() }
        _ = try Store(root: root, keyRing: vault.keyRing, cacheSize: 0, isReadOnly: false)
        try Bytes.put(record, at: vault.path + "/vaultfs.dir")
        #expect(try Bytes.of(vault.path + "/notes.bak") == before)
        #expect(try content("f", mountAgain()) == new)
    }
}

private enum EncryptedFileHeader {
    static func sealedLength(_ bytes: [UInt8]) throws -> UInt64? {
        let header = try FileHeader.parse(Array(bytes[..<128]))
        return header.isSealed ? header.length : nil
    }
}
