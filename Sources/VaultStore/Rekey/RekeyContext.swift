internal import Glibc
internal import LinuxSystem
internal import VaultFormat

/// Steps of a rekey at which a test can inspect the vault or inject a failure.
enum RekeyPoint: CaseIterable, Sendable {
    case makeObject, fillObject, replaceEntry
    case writeIntent, renameIntent, removeIntent
    case linkName, renameLink
    case writeSidecar, renameName, removeSidecar
    case removeAttribute, setAttribute
    case writeRecord, renameRecord
    case finish
}

/// Called before each step that changes the vault. An error that it throws is the failure of that step. Any thread.
typealias RekeyHook = @Sendable (RekeyPoint) throws(StoreError) -> Void

/// The vault being rekeyed, as far as its steps need it. Any thread.
struct RekeyContext: Sendable {
    let root: Descriptor
    let keyRing: KeyRing
    let before: RekeyHook

    static func temporaryEntry() throws(StoreError) -> [UInt8] { try VaultDirectory.temporaryEntry() }

    /// Gives `entry` to a new file of these bytes, which is durable. The directory is not synchronized.
    /// - Parameters:
    ///   - status: owner and mode of the file.
    ///   - writing, renaming: passed to `before` ahead of the file's creation and of its rename.
    func install(
        _ bytes: [UInt8], as entry: [UInt8], in directory: Descriptor, like status: stat, writing: RekeyPoint,
        renaming: RekeyPoint? = nil
    ) throws(StoreError) {
        let temporary = try Self.temporaryEntry()
        try before(writing)
        do throws(StoreError) {
            try directory.makeFile(temporary, of: bytes, like: status)
            if let renaming { try before(renaming) }
            try OpenDirectory.rename(temporary, from: directory.fd, to: directory.fd, as: entry, flags: 0)
        } catch {
            directory.removeQuietly(temporary)
            throw error
        }
    }
}
