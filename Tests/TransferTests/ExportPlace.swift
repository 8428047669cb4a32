import FileSystem
import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import ViewFormats

@testable import Transfer
@testable import VaultCrypto

/// A source directory of files in the format `cbc`, and a destination.
final class ExportPlace {
    /// 2021-03-04 05:06:07.123456789 UTC
    static let time = timespec(tv_sec: 1_614_834_367, tv_nsec: 123_456_789)

    static let interval: UInt64 = 4 << 20

    let directory: TemporaryDirectory
    let source: String
    let destination: String
    var keyBytes = [UInt8](repeating: 7, count: 16)
    var vector = InitialVector(high: 1, low: 2)
    var padding = CipherChain.Padding.pkcs7
    /// What was reported, and after how many bytes of an export to stop.
    private(set) var failures: [String: String] = [:]
    var limit = UInt64.max
    var onBatch: (ExportTotals) -> Void = { _ in }

    init() throws {
        directory = try TemporaryDirectory()
        source = directory.appending("source")
        destination = directory.appending("destination")
        try FileManager.default.createDirectory(atPath: source, withIntermediateDirectories: false)
        try FileManager.default.createDirectory(atPath: destination, withIntermediateDirectories: false)
    }

    /// A file of this plaintext, encrypted.
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

    /// A hole of this size: ciphertext without padding.
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
    func export(_ name: String? = nil) throws -> ExportTotals {
        failures = [:]
        let key = SecretBytes(copying: keyBytes.withUnsafeBytes { $0 })
        let root = try opened(source)
        let viewed = try ViewSource(
            root: root, onlyName: name.map { Array($0.utf8) },
            format: ViewFormat(layout: .stream(isVectorInFile: false), vector: vector, padding: padding),
            manifest: nil, keys: KeyStore(KeySources(root: root, notice: { _ in }), shared: KeyMaterial(key: key)),
            hasSharedKey: true)
        let observer = ExportObserver(
            failed: { [self] in failures[String(decoding: $0, as: UTF8.self)] = $1 },
            goesOn: { [self] in
                onBatch($0)
                return $0.bytes < limit
            })
        let exporter = try ViewExporter(source: viewed, observer: observer, interval: Self.interval)
        if let name {
            try exporter.exportFile(as: Array(name.utf8), into: opened(destination))
        } else {
            try exporter.exportTree(into: opened(destination))
        }
        return exporter.totals
    }

    func opened(_ path: String) throws -> Descriptor {
        let fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        try #require(fd >= 0)
        return Descriptor(owning: fd)
    }

    func exported(_ name: String = "file") throws -> [UInt8] {
        Array(try Data(contentsOf: URL(filePath: "\(destination)/\(name)")))
    }

    func status(_ name: String) -> stat? {
        var status = stat()
        return lstat("\(destination)/\(name)", &status) == 0 ? status : nil
    }

    var names: [String] { get throws { try FileManager.default.contentsOfDirectory(atPath: destination).sorted() } }

    /// The files that are not whole.
    var partials: [String] { get throws { try names.filter { $0.hasPrefix(".vaultfs-export-") } } }
}

/// Bytes that tell where they are from.
func pattern(_ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: ($0 &* 2_654_435_761) >> 13) }
}
