package import Glibc
package import LinuxSystem
internal import Synchronization

/// The attributes of a backing file, which writes of its header and checkpoints change and restore. Any thread.
package struct BackingAttributes: ~Copyable, Sendable {
    /// Held while they are changed, or while the backing file is written and they must stay.
    let lock = Mutex<Void>(())
    /// Called before and after a write of the header that programs must not notice. First with the backing file's
    /// stat(2), which programs must see until the second call. Then, with the times restored, also with the new one.
    package let onHiddenWrite = Observer<(before: stat, after: stat?)>()

    private static let capabilityName = Array("security.capability".utf8)

    /// Returns the file capability, which a write of the header removes. A file without execute permission may have one
    /// too, because an import sets the mode last.
    static func capability(of writer: Descriptor) -> [UInt8]? {
        try? ExtendedAttributes(writer).value(of: capabilityName)
    }

    /// Restores the attributes that a write of the header changes: times, set-id bits (for an ordinary user's daemon)
    /// and the file capability. ctime cannot be restored.
    static func restore(_ writer: Descriptor, _ before: stat, _ capability: [UInt8]?) throws(StoreError) {
        if before.st_mode & (S_ISUID | S_ISGID) != 0 { try retrying { fchmod(writer.fd, before.st_mode & 0o7777) } }
        if let capability { try ExtendedAttributes(writer).set(capabilityName, capability, flags: 0) }
        let times = [before.st_atim, before.st_mtim]
        try retrying { futimens(writer.fd, times) }
    }
}
