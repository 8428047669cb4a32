import Foundation

/// The directory that contains a test's vault. Its mounts end with the object.
package final class BackingStore {
    package enum Kind: String, Sendable, CaseIterable {
        case tmpfs, ext4
        /// The working disk, with any file system.
        case disk
        /// A tmpfs of 24 MiB. Root only.
        case smallTmpfs
        /// An overlayfs on a tmpfs, like that of a container. Root only.
        case overlay
    }

    package let kind: Kind
    /// A directory on the store.
    package let path: String
    private let directory: TemporaryDirectory
    private let mounted: Bool

    /// Makes the store. tmpfs is /dev/shm. ext4 is a loop-back image, root only.
    package init(_ kind: Kind) throws {
        self.kind = kind
        directory = try TemporaryDirectory(in: kind == .tmpfs ? "/dev/shm" : nil)
        let point = directory.appending("store")
        try Command(["mkdir", point]).run().succeeded()
        switch kind {
        case .tmpfs, .disk: mounted = false
        case .smallTmpfs:
            try Command(["mount", "-t", "tmpfs", "-o", "size=24m,mode=755", "none", point]).run().succeeded()
            mounted = true
        case .overlay:
            let layers = directory.appending("layers")
            let script = """
                set -e; mkdir $1; mount -t tmpfs none $1; mkdir $1/lower $1/upper $1/work
                mount -t overlay -o lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work none $2; umount -l $1
                """
            try Command(["sh", "-c", script, "sh", layers, point]).run().succeeded()
            mounted = true
        case .ext4:
            try Self.mountImage(directory.appending("image"), at: point)
            mounted = true
        }
        path = point
    }

    deinit {
        guard mounted else { return }
        if (try? Command(["umount", path]).run())?.exitCode != 0 { _ = try? Command(["umount", "-l", path]).run() }
    }

    private static func mountImage(_ image: String, at point: String) throws {
        try Command(["truncate", "-s", "1G", image]).run().succeeded()
        try Command(["mkfs.ext4", "-q", "-F", image]).run().succeeded()
        try Command(["mount", "-o", "loop", image, point]).run().succeeded()
    }
}
