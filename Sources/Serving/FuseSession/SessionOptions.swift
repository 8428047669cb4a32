package import SystemPackage

/// The place and options of a mount.
package struct SessionOptions: Sendable {
    package var mountpoint: FilePath
    /// Checked options for `-o` of fuse(8) and mount(8), such as `allow_other`, `noexec`, `ro`.
    package var fuseOptions: [String]
    /// The source shown by mount(8).
    package var sourceName: String
    /// True to read and write every file without the kernel's page cache (FOPEN_DIRECT_IO).
    package var bypassesKernelCache: Bool
    /// The newest method of dropping names to try.
    package var dropsNames = NameDropping.byFreeingInodes

    package init(
        mountpoint: FilePath, fuseOptions: [String], sourceName: String, bypassesKernelCache: Bool = false
    ) {
        (self.mountpoint, self.fuseOptions) = (mountpoint, fuseOptions)
        (self.sourceName, self.bypassesKernelCache) = (sourceName, bypassesKernelCache)
    }

    /// The value of `max_read=N` in the options, in bytes. 0 if it is absent. The last one counts, as in libfuse.
    var maximumRead: UInt32 {
        fuseOptions.last { $0.hasPrefix("max_read=") }.flatMap { UInt32($0.dropFirst("max_read=".count)) } ?? 0
    }

    /// Escapes commas and backslashes in a value, as fuse(8) requires.
    package static func escaped(_ value: String) -> String {
        value.unicodeScalars.map { "\\,".unicodeScalars.contains($0) ? "\\\($0)" : "\($0)" }.joined()
    }

    /// True if the kernel admits only the daemon's user (fuse_allow_current_process in fs/fuse/dir.c). The kernel need
    /// not check each access then, unless that user is root, because the store checks the user's rights anyway. Without
    /// its checks the kernel asks for fewer attributes, and a store with owners of another machine (sshfs) works.
    package var isPrivate: Bool {
        !fuseOptions.contains { ["allow_other", "allow_root", "default_permissions"].contains($0) }
    }

    /// Returns one `-o` argument for libfuse.
    /// - Parameter kernelChecks: true to let the kernel check modes and ACLs.
    func argument(kernelChecks: Bool) -> String {
        let given = fuseOptions.contains { $0.hasPrefix("fsname=") } ? [] : ["fsname=\(Self.escaped(sourceName))"]
        let checks = kernelChecks && !fuseOptions.contains("default_permissions") ? ["default_permissions"] : []
        return (given + ["subtype=vaultfs"] + checks + fuseOptions).joined(separator: ",")
    }
}

/// The method by which the kernel drops its names.
package enum NameDropping: Int, Comparable, Sendable {
    /// One name at a time. The kernel removes the name from its tree (any kernel).
    case invalidating
    /// One name at a time. The kernel looks the name up again before it uses it (kernels from 6.2 on).
    case expiring
    /// All at once (kernels from 6.16 on). Names of closed files are also dropped one at a time, which frees their
    /// inodes.
    case byEpoch
    /// All at once, and the kernel frees unused inodes (kernels from 6.18 on).
    case byFreeingInodes

    package static func < (left: NameDropping, right: NameDropping) -> Bool { left.rawValue < right.rawValue }
}

/// The reason of a failed mount or unmount: one line for the user.
package struct MountError: Error, Equatable {
    /// The kind. The raw values are exit codes of the daemon.
    package enum Kind: Int32, CaseIterable, Sendable {
        case failure = 1
        /// Another mount is already there, or programs use the mount.
        case inUse = 5
        /// The mountpoint cannot be used.
        case mountpoint = 6
        /// FUSE is unavailable, or mounting failed.
        case cannotMount = 7
        /// The mount has ended, but written data may be lost, or is not in place.
        case notDurable = 15
    }

    package let kind: Kind
    package let reason: String

    package init(_ kind: Kind = .cannotMount, reason: String) { (self.kind, self.reason) = (kind, reason) }
}
