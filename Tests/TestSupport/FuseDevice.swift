import Foundation

/// Whether FUSE can be used here.
package enum FuseDevice {
    /// Asked once: /dev/fuse opens for reading and writing (open(2)).
    package static let isUsable: Bool = {
        let descriptor = open("/dev/fuse", O_RDWR)
        guard descriptor >= 0 else { return false }
        close(descriptor)
        return true
    }()
}
