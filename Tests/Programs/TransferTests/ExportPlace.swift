import FileSystem
import Foundation
import LinuxSystem
import Locking
import Logging
import Synchronization
import TestSupport
import Testing
import ViewFileSystem
import ViewFormats

@testable import Transfer
@testable import VaultCrypto

/// A source directory of files in the format `cbc`, and a destination.
final class ExportPlace {
    /// 2021-03-04 05:06:07.123456789 UTC
    static let time = timespec(tv_sec: 1_614_834_367, tv_nsec: 123_456_789)

    let directory: TemporaryDirectory
    let source: String
    let destination: String
    var keyBytes = [UInt8](repeating: 7, count: 16)
    var vector = InitialVector(high: 1, low: 2)
    var padding = CipherChain.Padding.pkcs7
    /// The distance between two points at which a file can be resumed.
    var interval: UInt64 = 4 << 20
    var isReplacing = false
    /// The failures of the last export.
    private(set) var failures: [String: String] = [:]
    /// The number of exported bytes after which the export stops.
    var limit = UInt64.max
    var onBatch: @Sendable (TransferTotals) -> Void = { _ in }

    init() throws {
        directory = try TemporaryDirectory()
        source = directory.appending("source")
        destination = directory.appending("destination")
        try FileManager.default.createDirectory(atPath: source, withIntermediateDirectories: false)
        try FileManager.default.createDirectory(atPath: destination, withIntermediateDirectories: false)
    }

    /// Encrypts this plaintext into a file.
    func write(_ plaintext: [UInt8], to name: String = "file", mode: mode_t = 0o644) throws {
        let path = "\(source)/\(name)"
        let count = 16 - plaintext.count % 16
        let input = plaintext + [UInt8](repeating: UInt8(count), count: count)
        var output = [UInt8](repeating: 0, count: input.count)
        let context = try CipherContext(Library.loaded().aesCBC(keySize: 16), encrypts: true)
        try context.setKey(SecretBytes(copying: keyBytes.withUnsafeBytes { $0 }))
        try context.setVector([UInt8](repeating: 0, count: 7) + [1] + [UInt8](repeating: 0, count: 7) + [2])
        try context.transform(input, into: &output, size: input.count)
        try Data(output).write(to: URL(filePath: path))
        chmod(path, mode)
        try age(path)
    }

    /// Writes a hole of this size, as ciphertext without padding.
    func writeHole(_ size: Int, to name: String = "file") throws {
        let file = open("\(source)/\(name)", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        try #require(file >= 0 && ftruncate(file, size) == 0)
        close(file)
        padding = .none
        try age("\(source)/\(name)")
    }

    func age(_ path: String) throws {
        try #require(utimensat(AT_FDCWD, path, [Self.time, Self.time], AT_SYMLINK_NOFOLLOW) == 0)
    }

    /// Exports the tree, or one file.
    @discardableResult
    func export(_ name: String? = nil, isComparing: Bool = false) throws -> TransferTotals {
        let key = SecretBytes(copying: keyBytes.withUnsafeBytes { $0 })
        let root = try opened(source)
        let viewed = ViewSource(
            root: root, onlyName: name.map { Array($0.utf8) },
            format: ViewFormat(layout: .stream(isVectorInFile: false), vector: vector, padding: padding),
            manifest: nil, keys: KeyStore(KeySources(root: root), shared: KeyMaterial(key: key)),
            hasSharedKey: true)
        let system = try ViewFileSystem(
            source: viewed, secrets: ViewSecrets(.none, secret: nil), gate: LockGate(),
            cacheSize: ViewWorkspace.pageSize, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            isMounted: false)
        defer { system.endDeferred() }
        var options = TransferOptions()
        options.contentsOnly = true
        options.isReplacing = isReplacing
        options.isComparing = isComparing
        options.resumeInterval = interval
        let running = Mutex<TreeTransfer<FileSystemTree<ViewFileSystem>, LocalTree<ViewWorkspace>>?>(nil)
        let failed = Mutex<[String: String]>([:])
        let tree = FileSystemTree(system)
        let transfer = TreeTransfer(
            from: tree, to: LocalTree<ViewWorkspace>(), options,
            failed: { path, text in failed.withLock { $0[String(decoding: path, as: UTF8.self)] = text } },
            damaged: { _, _, _ in },
            isStopped: { [limit, onBatch] in
                guard let totals = running.withLock({ $0?.totals }) else { return false }
                onBatch(totals)
                return totals.bytes >= limit
            })
        running.withLock { $0 = transfer }
        defer {
            running.withLock { $0 = nil }
            failures = failed.withLock { $0 }
        }
        let workspaces = [try system.makeWorkspace()]
        if let name {
            try transfer.transferFile(
                Array(name.utf8), in: tree.root, as: Array(name.utf8), into: opened(destination), workspaces
            ) { _ in }
        } else {
            try transfer.transferTree(
                tree.root, into: opened(destination), isNew: false, workspaces, whileWaiting: { _ in })
        }
        return transfer.totals
    }

    func exported(_ name: String = "file") throws -> [UInt8] {
        Array(try Data(contentsOf: URL(filePath: "\(destination)/\(name)")))
    }

    func status(_ name: String) -> stat? {
        var status = stat()
        return lstat("\(destination)/\(name)", &status) == 0 ? status : nil
    }

    var names: [String] { get throws { try FileManager.default.contentsOfDirectory(atPath: destination).sorted() } }

    /// The incomplete files.
    var partials: [String] { get throws { try names.filter { $0.hasPrefix(".vaultfs-transfer-") } } }
}

/// Opens a directory.
func opened(_ path: String) throws -> Descriptor {
    let fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try #require(fd >= 0)
    return Descriptor(owning: fd)
}

/// Returns bytes that identify their position.
func pattern(_ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: ($0 &* 2_654_435_761) >> 13) }
}
