internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Syncs of files.
extension Descriptor {
    /// True for a file without a name. It ends with its last descriptor, so nothing of it need last.
    var hasNoName: Bool {
        do throws(StoreError) { return try status().st_nlink == 0 } catch {
            // A store that goes by names.
            return error == .system(.noSuchFileOrDirectory)
        }
    }

    /// fsync(2) or fdatasync(2) of a file that may have lost its name. A store that goes by names then has no such file
    /// any more (gocryptfs 2.3: `ENOENT`), which is no failure.
    /// - Throws: `.system` with errno.
    func synchronizeIfNamed(dataOnly: Bool) throws(StoreError) {
        do throws(StoreError) { try synchronize(dataOnly: dataOnly) } catch {
            guard error == .system(.noSuchFileOrDirectory), hasNoName else { throw error }
        }
    }

    /// More files than this are made durable by syncing the whole store.
    private static let fewFiles = 16

    /// Makes the whole store of this root durable if there are many files to sync, because syncs one by one take longer.
    /// - Parameter usesSyncfs: false if the store has no syncfs(2) that can be relied on.
    /// - Returns: false if each file must be synced: there are few, or it is unknown which of them failed.
    func synchronizesTogether(_ files: Int, usesSyncfs: Bool) -> Bool {
        usesSyncfs && files > Self.fewFiles && linux_syncfs(fd) == 0
    }
}
