internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

extension Descriptor {
    /// True for a file without a name. It ends with its last descriptor, so its data need not last.
    var hasNoName: Bool {
        do throws(StoreError) { return try status().st_nlink == 0 } catch {
            // A path-based store returns this.
            return error == .system(.noSuchFileOrDirectory)
        }
    }

    /// fsync(2) or fdatasync(2) of a file that may have lost its name. A path-based store then no longer has the file
    /// (gocryptfs 2.3: `ENOENT`), which is not a failure.
    /// - Throws: `.system` with errno.
    func synchronizeIfNamed(dataOnly: Bool) throws(StoreError) {
        do throws(StoreError) { try synchronize(dataOnly: dataOnly) } catch {
            guard error == .system(.noSuchFileOrDirectory), hasNoName else { throw error }
        }
    }

    /// Maximum number of files to sync one by one. If there are more, sync the whole store.
    private static let fewFiles = 16

    /// Syncs the whole store of this root if there are many files to sync, because syncs one by one take longer.
    /// - Parameter usesSyncfs: false if the store has no reliable syncfs(2).
    /// - Returns: false if each file must be synced: there are few, or it is unknown which of them failed.
    func synchronizesTogether(_ files: Int, usesSyncfs: Bool) -> Bool {
        usesSyncfs && files > Self.fewFiles && linux_syncfs(fd) == 0
    }
}
