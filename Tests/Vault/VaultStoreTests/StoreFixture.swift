import CLinux
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultStore

/// A vault's directory and its keys, without a mount. `open` does the first steps of a mount. Called again, it returns
/// the state as the next mount would find it. The directory is removed with the object.
final class TestStore: Sendable {
    let path: String
    let masterKey: SecretBytes
    let keyRing: KeyRing
    let root: Descriptor
    private let rootKeys: DirectoryKeys
    var layout: ChunkLayout { keyRing.layout }

    /// - Parameter parent: the directory for the new one, by default the temporary directory.
    init(chunkSize: Int = 4096, in parent: String? = nil) throws {
        masterKey = try SecretBytes.random(count: 32)
        let secret = try SlotSecret.keyfile([UInt8](repeating: 7, count: 32))
        let configuration = try VaultConfiguration.make(
            chunkSize: chunkSize, masterKey: masterKey, slots: [SlotRequest(secret: secret)],
            created: "2026-01-01T00:00:00Z")
        keyRing = try KeyRing(masterKey: masterKey, configuration: configuration)
        let parent = parent.map { URL(filePath: $0) } ?? FileManager.default.temporaryDirectory
        path = parent.appending(path: "vaultfs-store-" + UUID().uuidString).path
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        root = Descriptor(owning: Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
        let record = try DirectoryRecord.make(
            .complete, isRoot: true, classCipher: keyRing.classCipher(.complete), vault: keyRing.vault)
        rootKeys = record.keys
        try write(record.bytes, to: "vaultfs.dir")
    }

    /// Copies the store in its current state, which a kill would leave.
    init(copying other: TestStore) throws {
        (masterKey, keyRing, rootKeys) = (other.masterKey, other.keyRing, other.rootKeys)
        path = other.path + "-copy"
        try FileManager.default.copyItem(atPath: other.path, toPath: path)
        root = Descriptor(owning: Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path)
    }

    /// Opens the store like a new mount.
    func open(cacheSize: Int = 1 << 20, isReadOnly: Bool = false) throws -> Store {
        try Store(
            root: FileDescriptor(rawValue: root.fd), keyRing: keyRing, cacheSize: cacheSize, isReadOnly: isReadOnly)
    }

    /// Opens the root directory as the file system does.
    func openRoot(in store: Store) throws -> OpenDirectory {
        let pinned = try root.openedAgain(flags: linux_O_PATH | O_DIRECTORY)
        return try OpenDirectory.open(pinned, isRoot: true, in: store)
    }

    /// Returns the entry for a name in the root. vaultfs's own names, paths, and entries are returned unchanged.
    func entry(_ name: String) -> String {
        if name.hasPrefix("vaultfs.") || name.contains("/") || name.utf8.count >= 43 { return name }
        guard let encoded = try? EntryName.encode(ascii(name), keys: rootKeys) else { return name }
        return String(decoding: encoded.entry, as: UTF8.self)
    }

    /// The backing path of a name in the root.
    func path(_ name: String) -> String { path + "/" + entry(name) }

    /// Makes a file of this name.
    func create(_ name: String = "file", in store: Store) throws -> EncryptedFile {
        let descriptor = try Descriptor(
            path: FilePath(path(name)), flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        return try FileOpening(descriptor, in: store).create(class: .complete)
    }

    /// Opens the file of this name anew.
    func reopen(_ name: String = "file", in store: Store) throws -> EncryptedFile {
        let reader = try Descriptor(path: FilePath(path(name)), flags: O_RDONLY | O_NONBLOCK | O_NOFOLLOW)
        return try FileOpening(reader, in: store).open()
    }

    /// Makes a file with this content. A mount seals it and ends, unless the caller asks otherwise.
    func make(_ content: [UInt8], entry: String = "file", isSealed: Bool = true) throws {
        let store = try open()
        let file = try create(entry, in: store)
        try file.put(content, at: 0)
        if isSealed { #expect(try file.seal(ifStill: file.lengthMark, isDurable: true)) }
    }

    func bytes(_ name: String = "file") throws -> [UInt8] {
        Array(try Data(contentsOf: URL(filePath: path(name))))
    }

    /// Overwrites the backing file with exactly these bytes, and keeps its inode.
    func write(_ bytes: [UInt8], to name: String = "file") throws {
        let file = try Descriptor(
            path: FilePath(path(name)), flags: O_WRONLY | O_CREAT | O_TRUNC, mode: 0o600)
        try bytes.withBytes { try file.write($0, at: 0) }
    }

    /// Changes some bytes of a backing file in place.
    func change(_ entry: String = "file", _ body: (inout [UInt8]) throws -> Void) throws {
        var bytes = try bytes(entry)
        try body(&bytes)
        try write(bytes, to: entry)
    }

    /// Reads the header on disk, and authenticates it.
    func header(_ entry: String = "file") throws -> FileHeader {
        let header = try FileHeader.parse(Array(bytes(entry)[..<128]))
        _ = try header.unwrapKeys(classCipher: keyRing.classCipher(header.protectionClass), vault: keyRing.vault)
        return header
    }

    /// The record of chunk `index` in the bytes of a backing file.
    func recordRange(_ index: UInt64, length: Int) -> Range<Int> {
        let start = Int(layout.recordOffset(ofChunk: index))
        return start..<(start + layout.plaintextSize(ofChunk: index, length: UInt64(length)) + 32)
    }
}

extension EncryptedFile {
    /// Writes all of `bytes`, in several batches if needed, with its own workspace by default.
    func put(_ bytes: [UInt8], at offset: Int, _ workspace: Workspace? = nil) throws {
        let workspace = try workspace ?? Workspace(layout: layout)
        var done = 0
        while done < bytes.count {
            done += try bytes.withUnsafeBytes { all in
                try write(
                    UnsafeRawBufferPointer(rebasing: all[done...]), at: UInt64(offset + done), workspace: workspace)
            }
        }
    }

    /// Makes one call to write, and returns its size.
    func write(_ bytes: [UInt8], at offset: Int) throws -> Int {
        let workspace = try Workspace(layout: layout)
        return try bytes.withUnsafeBytes { try write($0, at: UInt64(offset), workspace: workspace) }
    }

    /// Reads up to `count` bytes.
    func get(_ count: Int, at offset: Int = 0, _ workspace: Workspace? = nil) throws -> [UInt8] {
        let workspace = try workspace ?? Workspace(layout: layout)
        var bytes = [UInt8](repeating: 0xEE, count: count)
        let had = try bytes.withUnsafeMutableBytes {
            try read(at: UInt64(offset), into: $0, workspace: workspace)
        }
        return Array(bytes[..<had])
    }

    func contents(_ workspace: Workspace? = nil) throws -> [UInt8] {
        try get(Int(length) + 10, at: 0, workspace)
    }

    /// Puts the log's changes in place, and seals the file.
    func sealInPlace() throws -> Bool {
        try store.log.checkpoint(.due)
        return try seal(ifStill: lengthMark, isDurable: true)
    }

    func truncate(to length: Int, _ workspace: Workspace? = nil) throws {
        try setLength(UInt64(length), workspace: try workspace ?? Workspace(layout: layout))
    }
}

func ascii(_ text: String) -> [UInt8] { Array(text.utf8) }

/// Returns the reason of the damage reported by `body`. Nil, and a failed expectation, without such an error.
@discardableResult
func damage(sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void) -> String? {
    do {
        try body()
    } catch StoreError.damaged(let reason) {
        return reason
    } catch {
        Issue.record("not damage: \(error)", sourceLocation: sourceLocation)
        return nil
    }
    Issue.record("no error", sourceLocation: sourceLocation)
    return nil
}

func makeFifo(_ path: String) { #expect(mkfifo(path, 0o600) == 0) }

func makeDirectory(_ path: String) { #expect(mkdir(path, 0o700) == 0) }
