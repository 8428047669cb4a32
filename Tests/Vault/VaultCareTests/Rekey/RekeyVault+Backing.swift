import Foundation
import Glibc
import LinuxSystem
import Testing
import VaultFormat

@testable import VaultStore
@testable import VaultStoreTests

extension RekeyVault {
    /// Returns the backing path of an object by its plaintext path, in any epoch.
    static func backing(_ plaintextPath: String, in vault: String) throws -> String {
        let (directory, masterKey, _) = try open(vault)
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        return try plaintextPath.split(separator: "/").reduce(vault) { backing, name in
            let bytes = try VerifierVault.contents(backing + "/vaultfs.dir")
            let keys = try DirectoryRecord.parse(bytes, epochs: keyRing.epochs).unwrapKeys(keyRing)
            let encoded = try EntryName.encode(Array(name.utf8), keys: keys)
            return backing + "/" + String(decoding: encoded.entry, as: UTF8.self)
        }
    }

}
