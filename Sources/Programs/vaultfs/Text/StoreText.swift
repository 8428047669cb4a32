internal import Daemon
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// The abilities of a vault's store for people.
enum StoreText {
    /// File systems that keep written data on this machine and upload it later. If the upload fails, the data is lost.
    private static let uploading: Set = [
        "fuse.rclone", "fuse.s3fs", "fuse.goofys", "fuse.gcsfuse", "fuse.blobfuse2", "fuse.mount-s3",
    ]

    /// Returns the abilities that the store is known to lack, in one line.
    static func lacks(_ traits: StoreTraits) -> String {
        var lacks: [String] = []
        func add(_ ability: Bool?, _ text: String) { if ability == false { lacks.append(text) } }
        add(traits.overwritesInPlace, "overwriting in place")
        add(traits.replacesOpenFiles, "renaming over open files")
        add(traits.renamesDirectories, "renaming directories")
        if traits.locks == StoreTraits.Locks.none { lacks.append("locks") }
        if traits.locks == .mandatory { lacks.append("reading of locked files") }
        add(traits.keepsModes, "modes")
        add(traits.keepsUserAttributes, "extended attributes")
        add(traits.makesHardLinks, "hard links")
        add(traits.makesSymbolicLinks, "symbolic links")
        add(traits.keepsInodeNumbers, "constant inode numbers")
        if let grain = traits.timeGrain, grain > 1 {
            let shown = grain < 1_000_000 ? "\(grain) ns" : "\(FieldText.rounded(Double(grain) / 1e9)) s"
            lacks.append("times finer than \(shown)")
        }
        if let name = longestName(traits) { lacks.append("names over \(name) bytes") }
        let known = lacks.joined(separator: ", ")
        if traits.overwritesInPlace != nil { return lacks.isEmpty ? "nothing" : known }
        // Reading does not show the rest.
        return (lacks.isEmpty ? "" : known + "; the rest is ") + "unknown without a mount for writing"
    }

    /// Returns the longest name of a vault there, or nil if names of every length can be had.
    private static func longestName(_ traits: StoreTraits) -> Int? {
        let longest = EntryName.longestName(entryLength: traits.longestEntry ?? EntryName.maximumLength)
        return longest < EntryName.maximumLength ? longest : nil
    }

    /// Returns warnings for a user who makes a vault on the store, or mounts it.
    /// - Parameter path: the path of the vault, whose root is open.
    static func warnings(_ traits: StoreTraits, _ root: Descriptor, _ path: FilePath) -> [String] {
        var warnings: [String] = []
        if let longest = longestName(traits), let entry = traits.longestEntry {
            warnings.append(
                "\(path.shown): names of over \(longest) bytes fail here, because the store's can have only \(entry) bytes"
            )
        }
        if let device = try? root.status().st_dev, let mount = (try? MountTable.read())?.entry(of: device),
            uploads(mount)
        {
            warnings.append(
                "\(path.shown) is on \(mount.type), which uploads later and may lose what was written: keep the vault on a "
                    + "local disk, and copy it with 'rclone sync' while it is not mounted (Sync.md)")
        }
        return warnings
    }

    /// Returns true for a file system that uploads later. davfs2 has no type of its own, but a URL as its source.
    private static func uploads(_ mount: MountTable.Entry) -> Bool {
        uploading.contains(mount.type) || mount.type == "fuse" && mount.source.starts(with: Array("http".utf8))
    }
}
