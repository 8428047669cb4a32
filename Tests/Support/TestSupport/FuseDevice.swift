import Foundation

/// Availability of FUSE on this machine.
package enum FuseDevice {
    /// Checked once: /dev/fuse can be opened for reading and writing (open(2)).
    package static let isUsable: Bool = {
        let descriptor = open("/dev/fuse", O_RDWR)
        guard descriptor >= 0 else { return false }
        close(descriptor)
        return true
    }()
}
