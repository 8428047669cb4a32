internal import CLinux
internal import LinuxSystem

/// Syncs of many files.
extension Descriptor {
    /// More files than this are made durable by syncing the whole store.
    private static let fewFiles = 16

    /// Makes the whole store of this root durable if there are many files to sync, because syncs one by one take longer.
    /// - Parameter usesSyncfs: false if the store has no syncfs(2) that can be relied on.
    /// - Returns: false if each file must be synced: there are few, or it is unknown which of them failed.
    func synchronizesTogether(_ files: Int, usesSyncfs: Bool) -> Bool {
        usesSyncfs && files > Self.fewFiles && linux_syncfs(fd) == 0
    }
}
