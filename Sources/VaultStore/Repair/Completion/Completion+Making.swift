internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension OpenDirectory {
    /// Makes the record of a directory that has none, with a new secret, durably. Owner, mode and times stay.
    /// - Parameter mode: of the record. It belongs to the owner of its directory, which only root can set.
    static func makeRecord(
        of pin: Descriptor, class protectionClass: ProtectionClass, isRoot: Bool = false, mode: mode_t = 0o644,
        in store: Store
    ) throws(StoreError) {
        try store.admitChange()
        let bytes = try store.keyRing.makeRecord(protectionClass, isRoot: isRoot).bytes
        let directory = try pin.openedForReading()
        let before = try directory.status()
        try directory.install(
            bytes, as: recordEntry, by: try temporaryEntry(in: store),
            owner: geteuid() == 0 ? Owner(before) : nil, mode: mode)
        // Best effort: a user who can write to the directory, but does not own it, may not set its times.
        futimens(directory.fd, [before.st_atim, before.st_mtim])
        try directory.synchronize(dataOnly: false)
    }
}

extension EncryptedFile {
    /// Writes the first header of a file that has none, durably. Owner, mode and times stay. The header is sealed, at
    /// length 0. It takes one write, and a later open finds the file closed and empty.
    static func makeHeader(
        of pin: Descriptor, class protectionClass: ProtectionClass, in store: Store
    ) throws(StoreError) {
        try store.admitChange()
        let before = try pin.status()
        var (header, keys) = try store.keyRing.makeHeader(protectionClass)
        header.isSealed = true
        let bytes = try StoreError.ofFormat(header.serialized(keys: keys))
        let writer = try pin.reopenedForWriting()
        let capability = capability(of: writer)
        try writer.write(bytes, at: 0)
        try restore(writer, before, capability)
        try writer.synchronize(dataOnly: false)
    }
}
