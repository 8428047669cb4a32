import FileSystem
import FoundationEssentials
import Glibc
import LinuxSystem
import Locking
import SystemPackage
import Testing
import VaultCrypto
import VaultFormat
import VaultStore

@testable import VaultFileSystem

/// A vault's directory, and the file system over it, driven as by a kernel. The directory is removed with the object.
final class MountedVault {
    let path: String
    let masterKey: SecretBytes
    let keyRing: KeyRing
    private let lock: LockOptions
    private(set) var system: VaultFileSystem
    private(set) var workspace: Workspace
    let caller = Caller(uid: geteuid(), gid: getegid())

    init(lock: LockOptions = LockOptions()) throws {
        self.lock = lock
        masterKey = try SecretBytes.random(count: 32)
        let secret = try SlotSecret.keyfile([UInt8](repeating: 7, count: 32))
        let configuration = try VaultConfiguration.make(
            chunkSize: 4096, masterKey: masterKey, slots: [SlotRequest(secret: secret)],
            created: "2026-01-01T00:00:00Z")
        keyRing = try KeyRing(masterKey: masterKey, configuration: configuration)
        path = FileManager.default.temporaryDirectory.appending(path: "vaultfs-system-" + UUID().uuidString).path
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        let record = try DirectoryRecord.make(
            .complete, isRoot: true, classCipher: keyRing.classCipher(.complete), vault: keyRing.vault)
        try Data(record.bytes).write(to: URL(filePath: path + "/vaultfs.dir"))
        (system, workspace) = try Self.mount(path, keyRing, lock, isReadOnly: false)
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path)
    }

    private static func mount(
        _ path: String, _ keyRing: KeyRing, _ lock: LockOptions, isReadOnly: Bool
    ) throws -> (VaultFileSystem, Workspace) {
        let root = try FileDescriptor.open(FilePath(path), .readOnly, options: .directory)
        defer { try? root.close() }
        let store = try Store(root: root, keyRing: keyRing, cacheSize: 1 << 20, isReadOnly: isReadOnly)
        return (try VaultFileSystem(store: store, gate: LockGate(lock)), try Workspace(layout: store.layout))
    }

    func remount(isReadOnly: Bool = false) throws {
        system.shutDown()
        (system, workspace) = try Self.mount(path, keyRing, lock, isReadOnly: isReadOnly)
    }

    /// Makes a file with this content, closed. Counts as one lookup.
    @discardableResult
    func file(_ name: String, in parent: NodeID = .root, _ content: [UInt8] = []) throws -> NodeEntry {
        let (entry, handle) = try system.create(ascii(name), in: parent, mode: 0o644, flags: O_RDWR, for: caller)
        try write(handle, content)
        system.release(handle)
        return entry
    }

    /// Opens a file of the root for reading and writing. Counts as one lookup.
    func opened(_ name: String) throws -> FileHandle {
        let id = try system.lookUp(ascii(name), in: .root).id
        return try system.open(id, flags: O_RDWR, for: caller, workspace: workspace)
    }

    func directory(_ name: String, in parent: NodeID = .root) throws -> NodeID {
        try system.make(ascii(name), in: parent, .directory(mode: 0o755), for: caller).id
    }

    func write(_ handle: FileHandle, _ bytes: [UInt8], at offset: UInt64 = 0) throws {
        let count = try bytes.withUnsafeBytes {
            try system.write(handle, $0, at: offset, workspace: workspace)
        }
        #expect(count == bytes.count)
    }

    func read(_ handle: FileHandle, _ other: VaultFileSystem? = nil) throws -> [UInt8] {
        let system = other ?? system
        var bytes = [UInt8](repeating: 0, count: 1 << 17)
        let count = try bytes.withUnsafeMutableBytes { try system.read(handle, at: 0, into: $0, workspace: workspace) }
        return Array(bytes[..<count])
    }

    func content(_ id: NodeID) throws -> [UInt8] {
        let handle = try system.open(id, flags: O_RDONLY, for: .root, workspace: workspace)
        defer { system.release(handle) }
        return try read(handle)
    }

    /// Returns the content of the file at a path, and undoes every lookup by a forget.
    func content(_ path: String...) throws -> [UInt8] {
        var id = NodeID.root
        var seen: [NodeID] = []
        defer { for id in seen { system.forget(id, count: 1) } }
        for name in path {
            id = try system.lookUp(ascii(name), in: id).id
            seen.append(id)
        }
        return try content(id)
    }

    /// All names except the dots, `replySize` at a time.
    func names(_ id: NodeID = .root, replySize: Int = .max, withAttributes: Bool = false) throws -> [String] {
        let handle = try system.openDirectory(id)
        var names: [String] = []
        var offset: Int64 = 0
        while true {
            var taken = 0
            var ids: [NodeID] = []
            try system.list(handle, from: offset, withAttributes: withAttributes) { listed in
                if taken == replySize { return false }
                taken += 1
                offset = listed.nextOffset
                names.append(String(decoding: listed.name, as: UTF8.self))
                if let id = listed.id { ids.append(id) }
                return true
            }
            for id in ids { system.forget(id, count: 1) }
            if taken == 0 { return names.filter { $0 != "." && $0 != ".." } }
        }
    }

    /// The backing path of a name in the root.
    func backing(_ name: String) throws -> String {
        path + "/" + String(decoding: try system.rootDirectory.encode(ascii(name)).entry, as: UTF8.self)
    }

    var nodes: Int {
        // Files awaiting their seal keep their nodes, so seal them first.
        system.store.durability.sealer.sealAll()
        return system.statistics().nodes ?? 0
    }
}

func ascii(_ text: String) -> [UInt8] { Array(text.utf8) }

/// Expects this error, as a program would get it.
func expect(
    _ errno: Errno, _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation,
    _ body: () throws -> Void
) {
    do {
        try body()
        Issue.record(comment ?? "no error", sourceLocation: sourceLocation)
    } catch let error as StoreError {
        #expect(error.errno == errno, comment, sourceLocation: sourceLocation)
    } catch {
        Issue.record(error, comment, sourceLocation: sourceLocation)
    }
}

extension Caller {
    /// A caller with all rights.
    static var root: Self { Self(uid: 0, gid: 0) }
}

extension VaultFileSystem {
    func open(_ id: NodeID, flags: Int32, for caller: Caller, workspace: Workspace) throws(StoreError) -> FileHandle {
        switch try beginOpening(id, flags: flags, for: caller, workspace: workspace) {
        case .opened(let handle): handle
        case .deferred(_, let finish): try finish()
        }
    }
}
