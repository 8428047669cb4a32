import Foundation
import LinuxSystem
import TestSupport
import VaultCrypto
import VaultFormat

/// A complete reader of test vectors, with only this target's parsers. It makes an entry for each object, written as in
/// the expected lists (kind, class, size, SHA-256 or target, path, with tabs between).
struct VectorReader {
    struct Damaged: Error {
        let what: String
    }

    static let folder = URL(filePath: "\(Products.support)/Vectors")

    let root: URL
    let configuration: VaultConfiguration
    let vault: TestVault
    let layout: ChunkLayout

    init(name: String, passphrase: String) throws {
        root = Self.folder.appending(path: name)
        configuration = try VaultConfiguration.parse(Self.contents(root.appending(path: "vaultfs.json")))
        guard let opened = try configuration.unwrapMasterKey(with: try SlotSecret.passphrase(ascii(passphrase))) else {
            throw Damaged(what: "no slot opens")
        }
        vault = TestVault(id: configuration.vault, masterKey: opened.masterKey)
        layout = ChunkLayout(chunkSize: configuration.chunkSize)
    }

    /// Every line of the vault, sorted.
    func lines() throws -> [String] { try walk(root, path: "", isRoot: true).lines.sorted() }

    private func walk(_ directory: URL, path: String, isRoot: Bool) throws -> (classNumber: UInt8, lines: [String]) {
        let record = try DirectoryRecord.parse(Self.contents(directory.appending(path: "vaultfs.dir")))
        guard record.isRoot == isRoot else { throw Damaged(what: "root flag") }
        let keys = try record.unwrapKeys(classCipher: try vault.classCipher(record.protectionClass), vault: vault.id)
        var lines: [String] = []
        for url in try FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil) {
            let entry = ascii(url.lastPathComponent)
            var blob: [UInt8]?
            switch EntryName.kind(of: entry) {
            case .name: break
            case .longName:
                blob = try Self.contents(directory.appending(path: text(EntryName.sidecar(of: Component(entry)).bytes)))
            case .sidecar, .conflictCopy, .temporary, .reserved: continue
            }
            guard let name = EntryName.decode(entry, sidecarBlob: blob, keys: keys) else { throw Damaged(what: "name") }
            let encoded = try EntryName.encode(name, keys: keys)
            guard encoded.entry.bytes == entry, encoded.sidecarBlob == blob else {
                throw Damaged(what: "re-encoded name")
            }
            lines += try object(at: url, path: path + text(name))
        }
        return (record.protectionClass.rawValue, lines)
    }

    private func object(at url: URL, path: String) throws -> [String] {
        let manager = FileManager.default
        switch try manager.attributesOfItem(atPath: url.path)[.type] as? FileAttributeType {
        case .typeDirectory:
            let (classNumber, lines) = try walk(url, path: path + "/", isRoot: false)
            return ["dir\t\(classNumber)\t0\t-\t\(path)"] + lines
        case .typeSymbolicLink:
            return [try link(ascii(try manager.destinationOfSymbolicLink(atPath: url.path)), path: path)]
        default:
            let bytes = try Self.contents(url)
            // A checkout without symbolic links (git's core.symlinks) leaves the target in a regular file.
            if LinkTarget.protectionClass(ofStored: bytes) != nil { return [try link(bytes, path: path)] }
            let (header, plaintext) = try file(bytes)
            let digest = try Sha256.digest(plaintext).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
            return ["file\t\(header.protectionClass.rawValue)\t\(plaintext.count)\t\(digest)\t\(path)"]
        }
    }

    private func link(_ stored: [UInt8], path: String) throws -> String {
        guard let protectionClass = LinkTarget.protectionClass(ofStored: stored) else { throw Damaged(what: "link") }
        let target = try LinkTarget.decode(stored, linkCipher: try vault.linkCipher(protectionClass))
        let size = LinkTarget.length(ofStoredLength: stored.count)
        return "link\t\(protectionClass.rawValue)\t\(size)\t\(text(target))\t\(path)"
    }

    /// The header and the whole plaintext of a backing file's bytes.
    func file(_ backing: [UInt8]) throws -> (header: FileHeader, plaintext: [UInt8]) {
        let header = try FileHeader.parse(Array(backing.prefix(FileHeader.size)))
        let keys = try header.unwrapKeys(classCipher: try vault.classCipher(header.protectionClass), vault: vault.id)
        let length = layout.plaintextLength(ofBackingSize: UInt64(backing.count))
        guard !header.isSealed || header.length == length else { throw Damaged(what: "length") }
        guard layout.backingSize(ofPlaintextLength: length) == UInt64(backing.count) else {
            throw Damaged(what: "size")
        }
        let cipher = try ChunkCipher()
        var plaintext = [UInt8](repeating: 0xAA, count: Int(length))
        for index in 0..<layout.chunkCount(ofLength: length) {
            let size = layout.plaintextSize(ofChunk: index, length: length)
            let start = Int(layout.recordOffset(ofChunk: index))
            let record = backing[start..<start + size + ChunkLayout.recordOverhead]
            let target = Int(layout.plaintextOffset(ofChunk: index))
            if header.isSparse, record.allSatisfy({ $0 == 0 }) {
                for position in target..<target + size { plaintext[position] = 0 }
                continue
            }
            let opened = try plaintext.withUnsafeMutableBytes { plaintext in
                try record.withUnsafeBytes { record in
                    try cipher.decrypt(
                        record, firstChunkIndex: index, chunkSize: layout.chunkSize, keys: keys.chunk,
                        into: UnsafeMutableRawBufferPointer(rebasing: plaintext[target..<target + size]))
                }
            }
            guard opened == 1 else { throw Damaged(what: "chunk \(index): tag does not verify") }
        }
        return (header, plaintext)
    }

    static func contents(_ url: URL) throws -> [UInt8] { [UInt8](try Data(contentsOf: url)) }
}
