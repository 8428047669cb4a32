import CLinux
import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// A separate vault to damage on disk, removed with the object: a copy of a vault of test vectors, or a new one.
final class VerifierVault {
    static let vectors = ["vault-4096", "vault-16384"]
    private static let passphrase = Array("correct horse".utf8)

    let path: String
    let keyRing: KeyRing
    let masterKey: SecretBytes
    var layout: ChunkLayout { keyRing.layout }
    var chunkSize: UInt64 { UInt64(layout.chunkSize) }
    private let base: URL

    /// Copies a vault of test vectors.
    init(copying name: String) throws {
        base = try Self.makeDirectory()
        path = base.path + "/vault"
        try FileManager.default.copyItem(atPath: "\(Products.support)/Vectors/\(name)", toPath: path)
        try Self.restoreLinks(below: path)
        (masterKey, keyRing) = try Self.unlock(path)
    }

    /// Makes a new vault, written by the store.
    init(chunkSize: Int = 4096, _ fill: (VerifierVaultWriter) throws -> Void) throws {
        base = try Self.makeDirectory()
        path = base.path + "/vault"
        let request = SlotRequest(
            secret: try .passphrase(Self.passphrase), cost: try ScryptCost(logN: 10, r: 8, p: 1))
        try VaultCreation.create(at: FilePath(path), chunkSize: chunkSize, slots: [request])
        (masterKey, keyRing) = try Self.unlock(path)
        try write(fill)
    }

    deinit {
        try? FileManager.default.removeItem(at: base)
    }

    /// Changes the vault by the store's own means.
    func write(_ fill: (VerifierVaultWriter) throws -> Void) throws {
        let writer = try VerifierVaultWriter(VaultDirectory.open(FilePath(path)), keyRing)
        try fill(writer)
        writer.store.durability.sealer.sealAll()
        try writer.store.log.checkpoint(.end)
    }

    /// Opens the store as a mount does.
    func openStore() throws -> Store {
        let root = try FileDescriptor.open(FilePath(path), .readOnly, options: .directory)
        defer { try? root.close() }
        return try Store(root: root, keyRing: keyRing, cacheSize: 1 << 20, isReadOnly: false)
    }

    /// Overwrites the first bytes of files. The changes stay in the log, as after a kill.
    func logChanges(_ bytes: [UInt8], of plaintextPaths: [String]) throws {
        let store = try openStore()
        for path in plaintextPaths {
            let reader = try Descriptor(path: FilePath(bytes: Array(backing(path).utf8)), flags: O_RDONLY)
            try FileOpening(reader, in: store).open().put(bytes, at: 0)
        }
        #expect(store.log.usedSize > 0)
    }

    /// Returns a verifier's findings and totals.
    /// - Parameter isInUse: true as while a daemon has the vault.
    func findings(isInUse: Bool = false) throws -> (findings: [VerifierFinding], totals: VerifierTotals) {
        var findings: [VerifierFinding] = []
        let verifier = try Verifier(
            directory: VaultDirectory.open(FilePath(path)), masterKey: masterKey, isInUse: isInUse)
        let totals = try verifier.run(onFinding: { findings.append($0) })
        return (findings, totals)
    }

    /// Returns a verifier's findings, each as `kind path@offset+count`, sorted.
    func found() throws -> [String] {
        try findings().findings.map(Self.text).sorted()
    }

    static func text(_ finding: VerifierFinding) -> String {
        let attribute = finding.attribute.map { ":" + String(decoding: $0, as: UTF8.self) } ?? ""
        let place = finding.plaintextOffset.map { "@\($0)" } ?? ""
        let count = finding.plaintextCount.map { "+\($0)" } ?? ""
        return "\(finding.kind) \(String(decoding: finding.path, as: UTF8.self))\(attribute)\(place)\(count)"
    }

    /// Returns the backing path of an object by its plaintext path. "" is the root.
    func backing(_ plaintextPath: String) throws -> String {
        try plaintextPath.split(separator: "/").reduce(path) { directory, name in
            let encoded = try EntryName.encode(Array(name.utf8), keys: keys(ofDirectory: directory))
            return directory + "/" + String(decoding: encoded.entry, as: UTF8.self)
        }
    }

    func entry(_ plaintextPath: String) throws -> String {
        URL(filePath: try backing(plaintextPath)).lastPathComponent
    }

    func keys(ofDirectory directory: String) throws -> DirectoryKeys {
        let record = try DirectoryRecord.parse(Self.contents(directory + "/vaultfs.dir"))
        return try record.unwrapKeys(classCipher: keyRing.classCipher(record.protectionClass), vault: keyRing.vault)
    }

    static func contents(_ path: String) throws -> [UInt8] {
        [UInt8](try Data(contentsOf: URL(filePath: path)))
    }

    func edit(_ backingPath: String, _ change: (inout [UInt8]) throws -> Void) throws {
        var bytes = try Self.contents(backingPath)
        try change(&bytes)
        try Data(bytes).write(to: URL(filePath: backingPath))
    }

    /// Returns the range of record `chunk` in a file with these bytes.
    func record(_ chunk: UInt64, in bytes: [UInt8]) -> Range<Int> {
        let start = Int(layout.recordOffset(ofChunk: chunk))
        return start..<min(bytes.count, start + layout.recordSize)
    }

    /// Returns the path of the vault's directory, and every path below it.
    func everything() throws -> [String] {
        [path] + (try FileManager.default.subpathsOfDirectory(atPath: path).map { path + "/" + $0 })
    }

    private static func makeDirectory() throws -> URL {
        let url = URL(filePath: TemporaryDirectory.memory).appending(path: "vaultfs-verifier-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
        return url
    }

    /// Makes links of the vectors' regular files with a stored target.
    private static func restoreLinks(below path: String) throws {
        for entry in try FileManager.default.subpathsOfDirectory(atPath: path).map({ path + "/" + $0 }) {
            let type = try FileManager.default.attributesOfItem(atPath: entry)[.type] as? FileAttributeType
            guard type == .typeRegular, let bytes = try? contents(entry),
                LinkTarget.protectionClass(ofStored: bytes) != nil
            else { continue }
            try FileManager.default.removeItem(atPath: entry)
            try FileManager.default.createSymbolicLink(
                atPath: entry, withDestinationPath: String(decoding: bytes, as: UTF8.self))
        }
    }

    private static func unlock(_ path: String) throws -> (SecretBytes, KeyRing) {
        let directory = try VaultDirectory.open(FilePath(path))
        let masterKey = try directory.openSlot(with: .passphrase(passphrase)).masterKey
        return (masterKey, try KeyRing(masterKey: masterKey, configuration: directory.configuration))
    }
}

/// Writes into a vault with the store's own API.
final class VerifierVaultWriter {
    let store: Store
    let root: OpenDirectory
    private let directory: VaultDirectory
    private let workspace: Workspace

    init(_ directory: VaultDirectory, _ keyRing: KeyRing) throws {
        self.directory = directory
        store = try Store(root: directory.root, keyRing: keyRing, cacheSize: 1 << 20, isReadOnly: false)
        workspace = try Workspace(layout: keyRing.layout)
        let descriptor = try directory.descriptor.openedAgain(flags: linux_O_PATH | O_DIRECTORY)
        root = try OpenDirectory.open(descriptor, isRoot: true, in: store)
    }

    /// Makes a directory and opens it.
    func directory(_ name: String, in parent: OpenDirectory? = nil) throws -> OpenDirectory {
        let parent = parent ?? root
        try parent.makeDirectory(Array(name.utf8), mode: 0o755, owner: nil)
        let descriptor = try Descriptor(
            at: parent.descriptor, parent.encode(Array(name.utf8)).entry, flags: linux_O_PATH | O_DIRECTORY)
        return try OpenDirectory.open(descriptor, isRoot: false, in: store)
    }

    /// Makes a file of `count` bytes. The writer seals it at its end, unless the caller asks otherwise.
    @discardableResult
    func file(
        _ name: String, count: Int, in parent: OpenDirectory? = nil, isSealed: Bool = true
    ) throws -> EncryptedFile {
        let file = try (parent ?? root).createFile(Array(name.utf8), mode: 0o644, owner: nil)
        try write(count, to: file, at: 0)
        if isSealed { store.durability.sealer.add(file) }
        return file
    }

    func write(_ count: Int, to file: EncryptedFile, at offset: UInt64) throws {
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ 7) }
        var done = 0
        while done < count {
            done += try bytes[done...].withUnsafeBytes {
                try file.write($0, at: offset + UInt64(done), workspace: workspace)
            }
        }
    }

    func setLength(_ length: UInt64, of file: EncryptedFile) throws {
        try file.setLength(length, workspace: workspace)
    }

    func setAttribute(_ name: String, _ value: String, key: SecretBytes, on descriptor: Descriptor) throws {
        let codec = try AttributeCodec(key: key)
        let name = Array(name.utf8)
        try ExtendedAttributes(descriptor).set(
            codec.storedName(of: name), codec.encrypt(value: Array(value.utf8), name: name), flags: 0)
    }

    /// Gives an object a pack of attributes.
    func setPack(_ values: [String: String], key: SecretBytes, on descriptor: Descriptor) throws {
        var pack = AttributePack()
        for (name, value) in values { pack[Array(name.utf8)] = Array(value.utf8) }
        let sealed = try #require(try AttributeCodec(key: key).encrypt(pack: pack))
        try ExtendedAttributes(descriptor).set(AttributeCodec.packName, sealed, flags: 0)
    }
}
