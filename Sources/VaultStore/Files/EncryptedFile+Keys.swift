internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension EncryptedFile {
    /// False from `forgetKeys` until `restoreKeys`.
    package var hasKeys: Bool { !keys.isForgotten }

    /// Wipes the keys of a file that stays open. Waits for a writer or a seal at work.
    package func forgetKeys() {
        writing.withLock { _ in keys.forget() }
    }

    /// Derives the keys again, from the header as it is on disk: the secret in it is the one of before, or does not
    /// authenticate.
    /// - Throws: `.locked` while the class key is not here; `.damaged`.
    package func restoreKeys() throws(StoreError) {
        try writing.withLock { (_) throws(StoreError) in
            if hasKeys { return }
            let (header, fresh, _) = try Self.readHeader(of: reader, keyRing: store.keyRing)
            guard header.fileID == fileID else { throw .damaged("header: of another file") }
            keys.refill(from: fresh)
        }
    }
}

extension OpenDirectory {
    /// Derives the keys again that `keys.forget` has wiped, from the record as it is on disk. Nothing where they are here.
    /// - Throws: `.locked` while the class key is not here; `.damaged`.
    package func restoreKeys() throws(StoreError) {
        // Another opening of the directory may share them.
        try sharedClass.update { () throws(StoreError) -> (ProtectionClass, Void) in
            guard keys.isForgotten else { return (protectionClass, ()) }
            let bytes = try Self.readRecord(of: descriptor).bytes
            let record: DirectoryRecord
            do throws(FormatError) {
                record = try DirectoryRecord.parse(bytes, epochs: store.keyRing.epochs)
            } catch {
                throw StoreError(error)
            }
            let cipher = try store.keyRing.classCipher(record.protectionClass, epoch: record.epoch)
            do throws(FormatError) {
                try record.restore(keys, classCipher: cipher, vault: store.keyRing.vault)
            } catch {
                throw StoreError(error)
            }
            return (record.protectionClass, ())
        }
    }
}
