internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// An entry whose name is lost, and that authenticates itself: its content can be read under another name.
struct LostObject {
    /// The plaintext name it gets in `lost+found`: of a file its id, of others digits that follow from the entry.
    let name: [UInt8]
    let status: stat

    /// What `entry` is; nil for what does not authenticate, and for fifos, sockets and devices, of which nothing can; and for
    /// what cannot be read.
    static func find(_ entry: [UInt8], in directory: Descriptor, _ keyRing: KeyRing) -> LostObject? {
        try? look(at: entry, in: directory, keyRing)
    }

    /// The same, for who must not take what cannot be read for somebody else's.
    /// - Throws: `system`, `crypto`.
    static func look(
        at entry: [UInt8], in directory: Descriptor, _ keyRing: KeyRing
    ) throws(StoreError) -> LostObject? {
        do throws(StoreError) {
            let pin = try Descriptor(at: directory.fd, entry, flags: linux_O_PATH)
            let status = try pin.status()
            guard let name = try name(of: entry, in: directory, pin, status, keyRing) else { return nil }
            return LostObject(name: Array(name.utf8), status: status)
        } catch .damaged {
            return nil
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    /// Digits for an object that has none of its own: the same each time, and not the entry, which may be too long.
    static func digits(of entry: [UInt8]) throws(StoreError) -> String {
        do { return Hexadecimal.encode(try Sha256.digest(entry).prefix(8)) } catch { throw StoreError(error) }
    }

    private static func name(
        of entry: [UInt8], in directory: Descriptor, _ pin: Descriptor, _ status: stat, _ keyRing: KeyRing
    ) throws(StoreError) -> String? {
        switch status.st_mode & S_IFMT {
        case S_IFREG:
            let file = try pin.reopened(flags: O_RDONLY | O_NONBLOCK)
            let digits = String(try EncryptedFile.readHeader(of: file, keyRing: keyRing).0.fileID, radix: 16)
            return String(repeating: "0", count: 16 - digits.count) + digits
        case S_IFDIR:
            let opened = try Descriptor(at: directory.fd, entry, flags: linux_O_PATH | O_DIRECTORY)
            let bytes = try OpenDirectory.readRecord(of: opened).bytes
            let record: DirectoryRecord
            do { record = try DirectoryRecord.parse(bytes, epochs: keyRing.epochs) } catch { throw StoreError(error) }
            _ = try record.openKeys(keyRing)
            return record.isRoot ? nil : "directory-\(try digits(of: entry))"
        case S_IFLNK:
            _ = try keyRing.linkTarget(ofStored: try directory.linkTarget(of: entry))
            return "link-\(try digits(of: entry))"
        default:
            return nil
        }
    }
}
