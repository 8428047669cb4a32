internal import CLinux
internal import Glibc
package import LinuxSystem
package import VaultFormat

/// The difference between a damaged name and another program's, among entries whose name does not authenticate. The mount
/// and `verify` both ask this (FileFormat, Store-13).
package enum HiddenName {
    /// Number of objects that are looked at below a directory without a record. The mount asks at every listing.
    private static let mostBelow = 100

    /// Returns true if the entry is the vault's, so that its name is damaged. Returns false for another program's file or
    /// directory, which the vault ignores.
    /// - Parameter keys: of the directory. Nil if its record does not authenticate.
    package static func isDamaged(
        _ entry: Component, in directory: Descriptor, keys: DirectoryKeys?, _ keyRing: KeyRing
    ) -> Bool {
        // A conflict copy that is not shown may be another program's file, or the twin's name is lost.
        let isCopy = EntryName.kind(of: entry.bytes) == .conflictCopy
        guard EntryName.isObject(entry.bytes) || isCopy else { return false }
        if EntryName.canBeEncrypted(entry.bytes) { return true }
        // The names that sync clients and desktops give their own files. They may keep copies of encrypted files there.
        if entry.first == UInt8(ascii: ".") { return false }
        if isCopy, let keys, directory.conflictName(of: entry, keys) != nil { return false }
        if LostObject.find(entry, in: directory, keyRing) != nil { return true }
        let below = try? Descriptor(at: directory, entry, flags: linux_O_PATH | O_DIRECTORY)
        return below.map { holdsOurs($0, atMost: mostBelow, keyRing) } ?? false
    }

    /// Returns true if anything below a directory authenticates itself.
    /// - Parameter most: number of objects to look at. Nil for all.
    package static func holdsOurs(_ directory: Descriptor, atMost most: Int? = nil, _ keyRing: KeyRing) -> Bool {
        guard let root = try? directory.openedForReading() else { return false }
        var walk = BackingWalk(root)
        var count = 0
        while most.map({ count < $0 }) ?? true, let found = walk.nextEntry(onFailure: { _, _, _ in }) {
            if LostObject.find(found.entry, in: found.directory, keyRing) != nil { return true }
            count += 1
        }
        return false
    }
}
