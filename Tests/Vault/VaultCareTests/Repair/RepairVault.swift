import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import Testing
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// A vault's content as a mount would show it, and repairs of it.
extension VerifierVault {
    /// Carries out every remedy named by a verifier. Returns the failed ones, each as `path: reason`.
    @discardableResult
    func repair(onStep: @escaping (Int) -> Void = { _ in }) throws -> [String] {
        let findings = try findings().findings
        let repairer = try Repairer(directory: VaultDirectory.open(FilePath(path)), masterKey: masterKey)
        return try repairer.run(findings, onStep: onStep).map {
            "\(String(decoding: $0.finding.path, as: UTF8.self)): \($0.reason)"
        }
    }

    /// The remedies for a verifier's findings, each as `remedy path`, sorted.
    func remedies() throws -> [String] {
        try findings().findings.map {
            "\($0.remedy.map(\.rawValue) ?? "-") \(String(decoding: $0.path, as: UTF8.self))"
        }.sorted()
    }

    /// Returns every file's content, and every link's target, by plaintext path.
    func tree() throws -> [String: [UInt8]] {
        let directory = try VaultDirectory.open(FilePath(path))
        let store = try Store(root: directory.root, keyRing: keyRing, cacheSize: 0, isReadOnly: true)
        var found: [String: [UInt8]] = [:]
        try add(
            try directory.descriptor.openedForReading(), "", store, &found)
        return found
    }

    private func add(
        _ directory: Descriptor, _ prefix: String, _ store: Store, _ found: inout [String: [UInt8]]
    ) throws {
        let opened = try OpenDirectory.open(directory, isRoot: prefix.isEmpty, in: store)
        var reader = DirectoryReader(directory)
        while let entry = try reader.next() {
            guard
                let name = EntryName.decode(
                    entry.bytes, sidecarBlob: opened.descriptor.sidecarBlob(of: entry), keys: opened.keys)
            else { continue }
            let shown = prefix + String(decoding: name, as: UTF8.self)
            switch try directory.status(of: entry).st_mode & S_IFMT {
            case S_IFDIR:
                let inner = try Descriptor(at: directory, entry, flags: O_RDONLY | O_DIRECTORY)
                try add(inner, shown + "/", store, &found)
            case S_IFLNK:
                found[shown] = try store.keyRing.linkTarget(ofStored: directory.linkTarget(of: entry)).target
            case S_IFREG:
                let file = try Descriptor(at: directory, entry, flags: O_RDONLY)
                // A damaged file counts as empty.
                found[shown] = (try? FileOpening(file, in: store).open().contents()) ?? []
            default: break
            }
        }
    }

    /// Returns a file's id in the form of its name in `lost+found`.
    func fileID(ofBacking path: String) throws -> String {
        try Self.contents(path)[8..<16].reversed().map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

}
