internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import VaultCrypto

extension Descriptor {
    /// Makes a durable file of these bytes in this directory, with the owner and mode of `status`. A part of it may be there
    /// after a failure: `EEXIST`, `EPERM` where the owner cannot be had, `ENOSPC`.
    func makeFile(_ entry: [UInt8], of bytes: [UInt8], like status: stat) throws(StoreError) {
        try makeFile(
            entry, of: bytes, owner: Owner(uid: status.st_uid, gid: status.st_gid), mode: status.st_mode & 0o7777)
    }

    /// The same with this owner and mode. If no owner is given, the file belongs to this process's user.
    func makeFile(_ entry: [UInt8], of bytes: [UInt8], owner: Owner?, mode: mode_t) throws(StoreError) {
        let file = try Descriptor(at: fd, entry, flags: O_CREAT | O_EXCL | O_WRONLY, mode: 0o600)
        let made = try file.status()
        if let owner, made.st_uid != owner.uid || made.st_gid != owner.gid {
            try retrying { fchown(file.fd, owner.uid, owner.gid) }
        }
        try retrying { fchmod(file.fd, mode) }
        try bytes.withBytes { (bytes) throws(StoreError) in try file.write(bytes, at: 0) }
        try file.synchronize(dataOnly: false)
    }
}
