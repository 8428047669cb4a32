internal import CLinux
internal import Glibc
package import LinuxSystem
package import VaultFormat

/// The distinction between a damaged name and another program's, for entries without an authentic name. The mount and
/// `verify` both use it (FileFormat, Store-13).
package enum HiddenName {
    /// Maximum number of objects checked below a directory without a record, because each listing repeats this.
    private static let mostBelow = 100

    /// Returns true if the entry is the vault's, so that its name is damaged. Returns false for another program's file
    /// or directory, which the vault ignores.
    /// - Parameter keys: the directory's keys, or nil if its record does not authenticate.
    package static func isDamaged(
        _ entry: Component, in directory: Descriptor, keys: DirectoryKeys?, _ keyRing: KeyRing
    ) -> Bool {
        // A conflict copy that is not shown may be another program's file, or its original has lost its name.
        let isCopy = EntryName.kind(of: entry.bytes) == .conflictCopy
        guard EntryName.isObject(entry.bytes) || isCopy else { return false }
        if EntryName.canBeEncrypted(entry.bytes) { return true }
        // Sync clients and desktops give such names to their own files, and perhaps to copies of encrypted files.
        if entry.first == UInt8(ascii: ".") { return false }
        if isCopy, let keys, directory.conflictName(of: entry, keys) != nil { return false }
        if LostObject.find(entry, in: directory, keyRing) != nil { return true }
        let below = try? Descriptor(at: directory, entry, flags: linux_O_PATH | O_DIRECTORY)
        return below.map { holdsOurs($0, atMost: mostBelow, keyRing) } ?? false
    }

    /// Returns true if anything below a directory authenticates itself. Checks at most `most` objects.
    package static func holdsOurs(_ directory: Descriptor, atMost most: Int = .max, _ keyRing: KeyRing) -> Bool {
        guard let root = try? directory.openedForReading() else { return false }
        var walk = BackingWalk(root)
        var count = 0
        while count < most, let found = walk.nextEntry(onFailure: { _, _, _ in }) {
            if LostObject.find(found.entry, in: found.directory, keyRing) != nil { return true }
            count += 1
        }
        return false
    }
}
