internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

extension EncryptedFile {
    /// Writes the first header of a file that has none, durably. Owner, mode and times stay. The header is sealed, at
    /// length 0. It takes one write, and a later open finds the file closed and empty.
    static func makeHeader(
        of pin: Descriptor, class protectionClass: ProtectionClass, in store: Store
    ) throws(StoreError) {
        try store.admitChange()
        let before = try pin.status()
        let cipher = try store.keyRing.classCipher(protectionClass)
        let bytes: [UInt8]
        do throws(FormatError) {
            var (header, keys) = try FileHeader.make(
                protectionClass, epoch: store.keyRing.epochs.current, classCipher: cipher, vault: store.keyRing.vault)
            header.isSealed = true
            bytes = try header.serialized(keys: keys)
        } catch {
            throw StoreError(error)
        }
        let writer = try pin.reopenedForWriting()
        let capability = capability(of: writer)
        try bytes.withBytes { (bytes) throws(StoreError) in try writer.write(bytes, at: 0) }
        try restore(writer, before, capability)
        try writer.synchronize(dataOnly: false)
    }
}
