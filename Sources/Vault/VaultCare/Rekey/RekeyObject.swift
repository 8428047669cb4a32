internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import VaultStore

/// A file, link or special file during a rekey.
struct RekeyObject {
    let entry: Component
    let directory: RekeyDirectory
    /// An O_PATH descriptor, so `status` belongs to the object opened later.
    let pin: Descriptor
    let status: stat

    init(_ entry: Component, in directory: RekeyDirectory) throws(StoreError) {
        self.entry = entry
        self.directory = directory
        pin = try Descriptor(at: directory.descriptor, entry, flags: linux_O_PATH)
        status = try pin.currentStatus()
    }

    var identity: FileIdentity { FileIdentity(status) }
    var path: [Component] { directory.path + [entry] }
    var shownPath: [UInt8] { directory.shownPath(of: entry) }
}
