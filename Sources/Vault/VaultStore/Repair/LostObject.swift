internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// An entry with a lost name, but authentic content. It can be read under another name.
package struct LostObject {
    /// The plaintext name for `lost+found`: the id of a file, digits derived from the entry of others.
    package let name: [UInt8]
    let status: stat

    /// Returns nil if the entry does not authenticate or is unreadable, and for fifos, sockets and devices.
    package static func find(_ entry: Component, in directory: Descriptor, _ keyRing: KeyRing) -> LostObject? {
        try? identify(entry, in: directory, keyRing)
    }

    /// Does the same as `find`, but throws for an unreadable entry, to distinguish it from a foreign one.
    /// - Throws: `system`, `crypto`.
    static func identify(
        _ entry: Component, in directory: Descriptor, _ keyRing: KeyRing
    ) throws(StoreError) -> LostObject? {
        do throws(StoreError) {
            let pin = try Descriptor(at: directory, entry, flags: linux_O_PATH)
            let status = try pin.status()
            let name: String
            switch status.st_mode & S_IFMT {
            case S_IFREG:
                let file = try pin.reopened(flags: O_RDONLY | O_NONBLOCK)
                name = Hexadecimal.encode(try StoredHeader(of: file, keyRing: keyRing).header.fileID)
            case S_IFDIR:
                let opened = try Descriptor(at: directory, entry, flags: linux_O_PATH | O_DIRECTORY)
                if try OpenDirectory.openRecord(of: opened, keyRing).record.isRoot { return nil }
                name = "directory-\(try digits(of: entry))"
            case S_IFLNK:
                _ = try keyRing.linkTarget(ofStored: try directory.linkTarget(of: entry))
                name = "link-\(try digits(of: entry))"
            default: return nil
            }
            return LostObject(name: Array(name.utf8), status: status)
        } catch .damaged {
            return nil
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    /// Returns digits for an object without an id, always the same. The entry itself may be too long for a name.
    static func digits(of entry: Component) throws(StoreError) -> String {
        Hexadecimal.encode(try StoreError.ofCrypto(Sha256.digest(entry.bytes)).prefix(8))
    }
}
