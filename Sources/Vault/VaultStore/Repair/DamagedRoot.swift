internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Repairs of the vault's root: a lost record, and an object under the log's name that is no log. The damaged objects
/// get another name, until `LostAndFound` keeps them.
package enum DamagedRoot {
    /// The prefix of a damaged record's name.
    package static let recordPrefix: Component = "vaultfs.dir.damaged"
    /// The prefix of the new name of an object that had the log's.
    package static let logPrefix: Component = "vaultfs.log.damaged"

    /// Makes a new record for the root, durably.
    /// - Throws: `.system` with errno. Until the new record is there, the old one may have only its other name.
    package static func renewRecord(in store: Store) throws(StoreError) {
        try stepAside(OpenDirectory.recordEntry, as: recordPrefix, in: store.root)
        try OpenDirectory.makeRecord(of: store.root, class: .complete, isRoot: true, mode: 0o600, in: store)
    }

    /// Renames the log, durably.
    static func setLogAside(in root: Descriptor) throws(StoreError) {
        try keepLog(RedoLog.fileName, in: root)
        try root.synchronize(dataOnly: false)
    }

    /// Renames a file that was the log, or had its name. Removes it instead if it has no entries, or if an equal copy
    /// is kept, because a sync client may put the same file there again and again.
    static func keepLog(_ entry: Component, in root: Descriptor) throws(StoreError) {
        if let file = openFile(entry, in: root), isEmptyLog(file) || hasCopy(of: file, in: root) {
            return try root.remove(entry)
        }
        try stepAside(entry, as: logPrefix, in: root)
    }

    /// Returns nil for anything but a regular file.
    private static func openFile(_ entry: Component, in root: Descriptor) -> Descriptor? {
        guard let file = try? Descriptor(at: root, entry, flags: O_RDONLY | O_NONBLOCK),
            (try? file.status().st_mode & S_IFMT) == S_IFREG
        else { return nil }
        return file
    }

    private static func isEmptyLog(_ file: Descriptor) -> Bool {
        guard let size = try? file.status().st_size, size <= off_t(LogHeader.areaSize) else { return false }
        return (try? file.read(at: 0, count: LogHeader.magic.count)) == LogHeader.magic
    }

    private static func hasCopy(of file: Descriptor, in root: Descriptor) -> Bool {
        guard let size = try? file.status().st_size, size <= off_t(LogHeader.logSizes.upperBound) else { return false }
        let kept = ((try? root.allEntries()) ?? []).filter { $0.starts(with: logPrefix) }
        return kept.contains { entry in
            guard let other = openFile(entry, in: root), (try? other.status().st_size) == size else { return false }
            return (try? file.hasSameBytes { (at) throws(StoreError) in try other.read(at: at, count: 1 << 16) })
                == true
        }
    }

    /// Renames an entry, if it exists, to a name with this prefix.
    static func stepAside(_ entry: Component, as prefix: Component, in directory: Descriptor) throws(StoreError) {
        for name in LostAndFound.names(prefix.bytes) {
            do throws(StoreError) {
                return try directory.rename(entry, as: Component(name), flags: linux_RENAME_NOREPLACE)
            } catch .system(.noSuchFileOrDirectory) {
                return
            } catch .system(.fileExists) { continue }
        }
        throw .system(.fileExists)
    }
}
