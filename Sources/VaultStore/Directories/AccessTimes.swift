package import BackingStore
internal import CLinux
internal import Glibc

/// The backing objects whose access times a mount's reads do not move (`-o noatime`, `nodiratime`).
package struct AccessTimes: Sendable, Equatable {
    package var keepsFiles: Bool
    package var keepsDirectories: Bool

    package init(keepsFiles: Bool = false, keepsDirectories: Bool = false) {
        self.keepsFiles = keepsFiles
        self.keepsDirectories = keepsDirectories
    }

    /// Prepares a descriptor of a file, before it is read.
    package func prepare(file: Descriptor) { if keepsFiles { Self.keep(file) } }

    /// Prepares a descriptor of a directory, before it is read.
    package func prepare(directory: Descriptor) { if keepsDirectories { Self.keep(directory) } }

    /// fcntl(2) rather than open(2), which would have to be tried twice: only the owner and CAP_FOWNER may set O_NOATIME.
    private static func keep(_ descriptor: Descriptor) {
        let flags = fcntl(descriptor.fd, F_GETFL)
        if flags >= 0 { _ = fcntl(descriptor.fd, F_SETFL, flags | linux_O_NOATIME) }
    }
}
