import Foundation

/// Availability of FUSE on this machine.
package enum FuseDevice {
    /// True if open(2) of /dev/fuse for reading and writing succeeds. Checked once.
    package static let isUsable: Bool = {
        let descriptor = open("/dev/fuse", O_RDWR)
        guard descriptor >= 0 else { return false }
        close(descriptor)
        return true
    }()
}
