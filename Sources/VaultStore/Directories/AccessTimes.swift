internal import CLinux
internal import Glibc
package import LinuxSystem

/// The backing objects whose access times stay when a mount reads them (`-o noatime`, `nodiratime`).
package struct AccessTimes: Codable, Sendable, Equatable {
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

    /// Sets O_NOATIME by fcntl(2). An open(2) with it might need a second try, because only the owner and CAP_FOWNER
    /// may set it.
    private static func keep(_ descriptor: Descriptor) {
        let flags = fcntl(descriptor.fd, F_GETFL)
        if flags >= 0 { _ = fcntl(descriptor.fd, F_SETFL, flags | linux_O_NOATIME) }
    }
}
