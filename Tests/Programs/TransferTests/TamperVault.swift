import CLinux
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultCrypto
import VaultFileSystem
import VaultFormat
import VaultStore

@testable import Transfer

/// A vault of one chunk size with files of every kind, each in two known states. The directory is removed with the
/// object.
final class TamperVault {
    /// A plan of a file: the contents of its first and second state.
    private struct Plan {
        let name: String
        /// The lengths in chunks. A fraction stands for a partial last chunk.
        let lengths: (Double, Double)
        /// The chunks in a hole in the second state.
        var hole: Range<Int>?
        /// The second state ends with a hole of this many chunks, or of 1 MiB if that is more.
        var hollowEnd = 0
        var isSealed = true
    }

    private static let plans = [
        Plan(name: "dense", lengths: (2.5, 3.3)), Plan(name: "dense whole", lengths: (4, 3)),
        Plan(name: "dense open", lengths: (1.2, 3.7), isSealed: false),
        Plan(name: "dense whole open", lengths: (2, 4), isSealed: false),
        Plan(name: "sparse", lengths: (2, 6.2), hole: 2..<5), Plan(name: "sparse whole", lengths: (5, 6), hole: 1..<3),
        Plan(name: "sparse end", lengths: (1.5, 2.5), hollowEnd: 2),
        Plan(name: "sparse open", lengths: (1, 5.4), hole: 1..<4, isSealed: false),
        Plan(name: "sparse end open", lengths: (1, 2), hollowEnd: 1, isSealed: false),
        Plan(name: "tiny", lengths: (0.001, 0.002)), Plan(name: "empty", lengths: (0.1, 0)),
    ]

    let path: String
    let chunkSize: Int
    let keyRing: KeyRing
    let model: TamperModel
    /// The content of each file, to check `model`.
    let expected: [FileModel]
    let names: [[UInt8]]
    /// The path of each file in the vault's directory, and a copy of its last state.
    let backing: [String]
    let originals: [String]
    let workspace: Workspace
    private let root: FileDescriptor

    init(chunkSize: Int, seed: UInt64) throws {
        self.chunkSize = chunkSize
        path = "/dev/shm/vaultfs-tamper-" + UUID().uuidString
        let vault = path + "/vault"
        for directory in [vault, path + "/originals", path + "/out"] {
            try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        }
        let masterKey = try SecretBytes.random(count: 32)
        let secret = try SlotSecret.keyfile([UInt8](repeating: 7, count: 32))
        let configuration = try VaultConfiguration.make(
            chunkSize: chunkSize, masterKey: masterKey, slots: [SlotRequest(secret: secret)],
            created: "2026-01-01T00:00:00Z")
        let keyRing = try KeyRing(masterKey: masterKey, configuration: configuration)
        self.keyRing = keyRing
        let record = try DirectoryRecord.make(
            .complete, isRoot: true, classCipher: keyRing.classCipher(.complete), vault: keyRing.vault)
        try Data(record.bytes).write(to: URL(filePath: vault + "/vaultfs.dir"))
        root = try FileDescriptor.open(FilePath(vault), .readOnly, options: .directory)
        let workspace = try Workspace(layout: keyRing.layout)
        self.workspace = workspace
        let plans = Self.plans
        names = plans.map { Array($0.name.utf8) }

        var random = SeededGenerator(seed: seed)
        let expected = plans.map { plan in
            FileModel(random.bytes(Int(plan.lengths.0 * Double(chunkSize))), chunkSize: chunkSize)
        }
        self.expected = expected
        var states = [[TamperState]](repeating: [], count: plans.count)
        let store = { [root] in try Store(root: root, keyRing: keyRing, cacheSize: 0, isReadOnly: false) }
        var open = try store()
        let directory = try OpenDirectory.open(
            try open.root.openedAgain(flags: linux_O_PATH | O_DIRECTORY), isRoot: true,
            in: open)
        let backing = try names.map { vault + "/" + String(decoding: try directory.encode($0).entry, as: UTF8.self) }
        self.backing = backing
        func note(_ index: Int) throws {
            let bytes = [UInt8](try Data(contentsOf: URL(filePath: backing[index])))
            states[index].append(TamperState(backing: bytes, plaintext: expected[index].bytes))
        }
        var tree = VaultTree(try VaultFileSystem(store: open))
        for index in plans.indices {
            let (_, content) = try tree.makeFile(names[index], in: tree.root)
            try Self.write(expected[index].bytes, at: 0, to: content, tree, workspace)
        }
        open.durability.sealer.sealAll()
        for index in plans.indices { try note(index) }

        // Write the second state. Files that stay unsealed come last, because closing any file seals the others too.
        open = try store()
        tree = VaultTree(try VaultFileSystem(store: open))
        for isSealed in [true, false] {
            for index in plans.indices where plans[index].isSealed == isSealed {
                let item = try #require(try tree.find(names[index], in: tree.root))
                try Self.change(expected[index], plans[index], &random, item, tree, workspace)
            }
            if isSealed { open.durability.sealer.sealAll() }
        }
        // Empty the log, because the test changes the backing files.
        try open.log.checkpoint(.end)
        for index in plans.indices { try note(index) }
        model = TamperModel(layout: keyRing.layout, files: states)
        originals = plans.indices.map { [path] in "\(path)/originals/\($0)" }
        for index in plans.indices {
            try #require(states[index][1].isSealed == plans[index].isSealed, "\(plans[index].name)")
            try #require(states[index][1].isSparse == (plans[index].hole != nil || plans[index].hollowEnd > 0))
            try Self.copy(backing[index], to: originals[index])
        }
    }

    deinit {
        try? root.close()
        try? FileManager.default.removeItem(atPath: path)
    }

    private static func write(
        _ bytes: [UInt8], at offset: Int, to content: VaultTree.Content, _ tree: VaultTree, _ workspace: Workspace
    ) throws {
        try bytes.withUnsafeBytes { try tree.write($0, to: content, at: UInt64(offset), workspace) }
    }

    /// Overwrites the first chunk, changes the length, and makes holes.
    private static func change(
        _ expected: FileModel, _ plan: Plan, _ random: inout SeededGenerator,
        _ item: VaultTree.Item, _ tree: VaultTree, _ workspace: Workspace
    ) throws {
        let chunkSize = expected.chunkSize
        let length = Int(plan.lengths.1 * Double(chunkSize))
        let content = try tree.open(item, flags: O_RDWR, workspace)
        let rewritten = random.bytes(min(chunkSize, length))
        try write(rewritten, at: 0, to: content, tree, workspace)
        expected.write(rewritten, at: 0)
        if length > expected.length {
            let added = random.bytes(length - expected.length)
            try write(added, at: expected.length, to: content, tree, workspace)
            expected.write(added, at: expected.length)
        } else {
            try tree.setLength(UInt64(length), of: content, workspace)
            expected.setLength(length)
        }
        if let hole = plan.hole {
            let range = (hole.lowerBound * chunkSize)..<(hole.upperBound * chunkSize)
            try content.handle.file.punchHole(UInt64(range.lowerBound)..<UInt64(range.upperBound), workspace: workspace)
            expected.clear(range)
        }
        if plan.hollowEnd > 0 {
            let added = max(plan.hollowEnd * chunkSize, 1 << 20)
            expected.setLength(expected.length + added)
            try tree.setLength(UInt64(expected.length), of: content, workspace)
        }
    }

    // MARK: Backing files

    /// Copies a file with its holes.
    static func copy(_ source: String, to target: String) throws {
        let from = try Descriptor(path: FilePath(bytes: Array(source.utf8)), flags: O_RDONLY)
        let to = try Descriptor(
            path: FilePath(bytes: Array(target.utf8)), flags: O_RDWR | O_CREAT | O_TRUNC, mode: 0o600)
        let size = try from.status().st_size
        var offset = lseek(from.fd, 0, linux_SEEK_DATA)
        while offset >= 0 {
            let end = lseek(from.fd, offset, linux_SEEK_HOLE)
            var bytes = [UInt8](repeating: 0, count: Int(end - offset))
            _ = try bytes.withUnsafeMutableBytes { try from.read(at: UInt64(offset), into: $0) }
            try bytes.withUnsafeBytes { try to.write($0, at: UInt64(offset)) }
            offset = lseek(from.fd, end, linux_SEEK_DATA)
        }
        try to.truncate(to: UInt64(size))
    }

    /// Restores a file's last state.
    func restore(_ index: Int) throws {
        try Self.copy(originals[index], to: backing[index])
    }

    /// Returns the vault's files as a read-only mount sees them.
    func mount() throws -> VaultTree {
        VaultTree(
            try VaultFileSystem(store: try Store(root: root, keyRing: keyRing, cacheSize: 0, isReadOnly: true)))
    }
}

typealias VaultTree = FileSystemTree<VaultFileSystem>
