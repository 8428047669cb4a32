import FileSystem
import FoundationEssentials
import Glibc
import LinuxSystem
import SystemPackage
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultCare
@testable import VaultFileSystem
@testable import VaultStore

/// A read-only file system over a vault during its rekey: a directory never looks empty by mistake (FileFormat,
/// Store-27).
@Suite(.timeLimit(.minutes(60))) struct FollowedRekeyTests {
    private static let names = ["directory", "file"]
    private let path = FileManager.default.temporaryDirectory.path() + "/vaultfs-followed-" + UUID().uuidString
    private let secret: SlotSecret

    init() throws {
        secret = try SlotSecret.keyfile([UInt8](repeating: 7, count: 32))
        try VaultCreation.create(at: FilePath(path), chunkSize: 4096, slots: [SlotRequest(secret: secret)])
        let (system, directory) = try mount()
        let caller = Caller(uid: geteuid(), gid: getegid())
        let inner = try system.make(ascii("directory"), in: .root, .directory(mode: 0o755), for: caller).id
        for parent in [.root, inner] {
            let (_, handle) = try system.create(ascii("file"), in: parent, mode: 0o644, flags: O_RDWR, for: caller)
            system.release(handle)
        }
        withExtendedLifetime(directory) { system.shutDown() }
    }

    private func opened() throws -> (VaultDirectory, SecretBytes, KeySlot) {
        let directory = try VaultDirectory.open(FilePath(path))
        let opened = try directory.openSlot(with: secret)
        return (directory, opened.masterKey, opened.slot)
    }

    private func mount(following: Bool = false) throws -> (VaultFileSystem, VaultDirectory) {
        let (directory, masterKey, _) = try opened()
        let store = try Store(
            root: directory.root, keyRing: try KeyRing(masterKey: masterKey, configuration: directory.configuration),
            cacheSize: 1 << 20, isReadOnly: following, followsWriter: following)
        return (try VaultFileSystem(store: store), directory)
    }

    private func begin() throws {
        let (directory, masterKey, slot) = try opened()
        _ = try RekeyStart.begin(directory, keeping: slot, secret: secret, masterKey: masterKey)
    }

    /// Runs the rekey to its end, or until `before` throws.
    private func rekey(before: @escaping RekeyHook = { _ in }) throws {
        let (directory, masterKey, _) = try opened()
        let rekeyer = try Rekeyer(directory: directory, masterKey: masterKey, before: before)
        _ = try rekeyer.run(workspaces: [try Workspace(layout: ChunkLayout(chunkSize: 4096))])
    }

    private func list(_ handle: DirectoryHandle, _ system: VaultFileSystem) throws -> [String] {
        var names: [String] = []
        try system.list(handle, from: 0, withAttributes: false) { entry in
            names.append(String(decoding: entry.name, as: UTF8.self))
            return true
        }
        return names.filter { !$0.hasPrefix(".") }.sorted()
    }

    private func list(_ system: VaultFileSystem, _ id: NodeID = .root) throws -> [String] {
        let handle = try system.openDirectory(id)
        defer { system.release(handle) }
        return try list(handle, system)
    }

    @Test(
        "Store-27: after a rekey nothing looks empty or missing: it is stale, status has the reason, and a new mount works"
    )
    func finished() throws {
        defer { try? FileManager.default.removeItem(atPath: path) }
        let (follower, directory) = try mount(following: true)
        #expect(try list(follower) == Self.names)
        let inner = try follower.lookUp(ascii("directory"), in: .root).id
        let handle = try follower.openDirectory(.root)
        let innerHandle = try follower.openDirectory(inner)
        try begin()
        try rekey()
        expect(.staleNFSFileHandle) { _ = try list(innerHandle, follower) }
        expect(.staleNFSFileHandle) { _ = try list(handle, follower) }
        expect(.staleNFSFileHandle) { _ = try list(follower) }
        expect(.staleNFSFileHandle) { _ = try follower.lookUp(ascii("file"), in: .root) }
        #expect(follower.store.problems.count == 1 && follower.store.problems[0].contains("rekeyed"))
        let (again, newDirectory) = try mount(following: true)
        #expect(try list(again) == Self.names && again.store.problems.isEmpty)
        withExtendedLifetime((directory, newDirectory)) {}
    }

    @Test(
        "Store-27: a mount made during an unfinished rekey still reads, but not in the middle of a step, nor with old keys"
    )
    func unfinished() throws {
        defer { try? FileManager.default.removeItem(atPath: path) }
        try begin()
        let (follower, directory) = try mount(following: true)
        let inner = try follower.lookUp(ascii("directory"), in: .root).id
        let innerHandle = try follower.openDirectory(inner)
        #expect(try list(innerHandle, follower) == ["file"])
        // The first step concerns the inner directory: it leaves new names and the old record.
        #expect(throws: VaultError.self) {
            // The undo of the step would need memory too, so it does not happen.
            try rekey { (point) throws(StoreError) in if point == .writeRecord { throw .system(.noMemory) } }
        }
        expect(.ioError) { _ = try list(innerHandle, follower) }
        expect(.ioError) { _ = try list(follower) }
        #expect(follower.store.problems.count == 1)
        #expect(throws: StoreError.self) { _ = try mount(following: true) }
        // This rekey finishes the step, and fails before it begins another.
        #expect(throws: VaultError.self) {
            try rekey { (point) throws(StoreError) in if point == .writeIntent { throw .system(.noSpace) } }
        }
        expect(.staleNFSFileHandle) { _ = try list(innerHandle, follower) }
        #expect(try list(follower) == Self.names && follower.store.problems.isEmpty)
        // The root's only opening is the mount's, so it is stale once the rekey has replaced its record.
        try rekey()
        expect(.staleNFSFileHandle) { _ = try list(follower) }
        withExtendedLifetime(directory) {}
    }
}
