import FileSystem
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import Testing
import VaultFormat

@testable import VaultStore

extension RekeyVault {
    /// The backing path of the object with this plaintext path, of any epoch.
    static func backing(_ plaintextPath: String, in vault: String) throws -> String {
        let (directory, masterKey, _) = try open(vault)
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        return try plaintextPath.split(separator: "/").reduce(vault) { backing, name in
            let bytes = try VerifierVault.contents(backing + "/vaultfs.dir")
            let keys = try DirectoryRecord.parse(bytes, epochs: keyRing.epochs).openKeys(keyRing)
            let encoded = try EntryName.encode(Array(name.utf8), keys: keys)
            return backing + "/" + String(decoding: encoded.entry, as: UTF8.self)
        }
    }

    /// Begins a rekey, and makes a file of the new epoch with its own record in the journal, which must stay there.
    static func beginWithJournaledFile(_ path: String, mode: mode_t = 0o600) throws {
        try begin(path)
        let (directory, masterKey, _) = try open(path)
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        try withExtendedLifetime(directory) {
            let writer = try VerifierVaultWriter(directory, keyRing)
            let made = try writer.file("made meanwhile", count: 5000)
            try writer.retain(made.fileID)
            writer.store.sealer.sealAll()
            #expect(fchmod(made.anyDescriptor.fd, mode) == 0)
        }
    }

    static func expectRetained(_ path: String) throws {
        #expect(
            try VerifierVault.contents(path + "/vaultfs.journal").count { $0 == VerifierVaultWriter.retained } >= 4096)
    }
}

extension VerifierVaultWriter {
    /// The byte that fills the record that `retain` puts into the journal.
    static let retained: UInt8 = 0xAA

    func retain(_ fileID: UInt64) throws {
        let record = [UInt8](repeating: Self.retained, count: store.layout.recordSize)
        _ = try record.withUnsafeBytes {
            try store.journal.write(fileID: fileID, firstChunk: 0, records: $0, recordSize: record.count, count: 1)
        }
    }
}
