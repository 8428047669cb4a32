import Foundation
import SystemPackage
import TestSupport
import VaultFormat

/// An empty directory for one test, removed with the object.
final class VaultTestDirectory {
    let path: FilePath

    init() throws {
        let name = "vaultfs-store-tests-" + String(UInt64.random(in: 0 ... .max), radix: 16)
        path = FilePath(NSTemporaryDirectory()).appending(name)
        try FileManager.default.createDirectory(atPath: path.string, withIntermediateDirectories: true)
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path.string)
    }

    func write(_ text: String, to name: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path.appending(name).string))
    }

    func entries(of name: String = ".") throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: path.appending(name).string).sorted()
    }
}

/// Secrets and vaults that are quick to open.
enum VaultFixture {
    static func passphrase(_ text: String = "correct horse") throws -> SlotSecret {
        try .passphrase(Array(text.utf8))
    }

    static func slot(_ secret: SlotSecret, expires: String? = nil) throws -> SlotRequest {
        SlotRequest(secret: secret, cost: try ScryptCost(logN: 10, r: 8, p: 1), expires: expires)
    }

    /// Returns the path of a vault made by the independent implementation. Its passphrase is `correct horse`.
    static func vector(_ name: String) -> FilePath {
        FilePath(Products.support).appending("Vectors").appending(name)
    }

    static func configurationText(_ vault: FilePath) throws -> String {
        try String(contentsOfFile: vault.appending("vaultfs.json").string, encoding: .utf8)
    }
}
