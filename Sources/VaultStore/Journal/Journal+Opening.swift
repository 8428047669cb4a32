internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

extension Journal {
    /// Nil where there is none.
    static func openToRead(_ root: Int32) throws(StoreError) -> Descriptor? {
        do throws(StoreError) {
            // Pinned first: to open a device may do something, and a fifo waits.
            let pin = try Descriptor(at: root, entry, flags: linux_O_PATH)
            let status = try pin.status()
            if status.st_mode & S_IFMT != S_IFREG, let fault = fault(of: status) {
                throw StoreError.damaged("vaultfs.journal is \(fault), and not used")
            }
            return try pin.reopened(flags: O_RDONLY)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    static func openToWrite(_ root: Int32) throws(StoreError) -> Descriptor {
        do throws(StoreError) {
            let pin = try Descriptor(at: root, entry, flags: linux_O_PATH)
            if let fault = fault(of: try pin.status()) {
                throw StoreError.damaged(
                    "vaultfs.journal is \(fault), so the vault is not written: 'vaultfs verify --repair' puts that right; "
                        + "until then it can be mounted with -o ro")
            }
            return try pin.reopened(flags: O_RDWR)
        } catch .system(.noSuchFileOrDirectory) {
            return try Descriptor(at: root, entry, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        }
    }

    /// What is wrong with what has the journal's name; nil for a file of its own.
    static func fault(of status: stat) -> String? {
        switch status.st_mode & S_IFMT {
        case S_IFREG: status.st_nlink == 1 ? nil : "a file with \(status.st_nlink) names"
        case S_IFDIR: "a directory"
        case S_IFLNK: "a symbolic link"
        case S_IFIFO: "a fifo"
        case S_IFSOCK: "a socket"
        default: "a device"
        }
    }
}
