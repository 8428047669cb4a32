package import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultFormat
internal import VaultStore

/// The space of the store. Deleted files and the log keep theirs until a checkpoint.
extension VaultFileSystem {
    /// statvfs(3).
    package func space() throws(StoreError) -> statvfs {
        var result = statvfs()
        try retrying { fstatvfs(store.root.fd, &result) }
        let entryLength = store.traits.longestEntry ?? EntryName.maximumLength
        result.f_namemax = UInt(EntryName.longestName(entryLength: entryLength))
        return result
    }

    /// Runs a change that may need space. If the store has none, makes a checkpoint, which frees some, and runs the change
    /// once more. So a change that fails must leave nothing that its repetition would fail at. The caller holds no lock.
    @inline(__always)
    func withSpace<Result>(_ change: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        let before = spaceReleases.load(ordering: .acquiring)
        do throws(StoreError) { return try change() } catch {
            guard error.isNoSpace, releasesSpace(since: before) else { throw error }
        }
        return try change()
    }

    /// Makes a checkpoint, if it frees anything. Returns true if it did, or if another thread has made one since.
    private func releasesSpace(since before: Int) -> Bool {
        if store.log.canFreeSpace { spaceReleases.add(1, ordering: .acquiringAndReleasing) }
        // Also waits for the other thread's.
        return (try? store.log.checkpoint(.fullDisk)) != nil && spaceReleases.load(ordering: .acquiring) != before
    }
}
