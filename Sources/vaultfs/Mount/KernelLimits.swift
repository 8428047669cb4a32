internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Limits of the kernel for one mount: its directory in /sys/class/bdi (sysfs-class-bdi, in the kernel's documentation). Only
/// root may set them.
struct KernelLimits {
    /// Most bytes of written data that the kernel keeps with `--write-back`, so that a lock need not wait long for them.
    static let mostDirty = 64 << 20

    private let directory: FilePath

    /// - Parameter device: `st_dev` of the mount.
    init(device: dev_t) {
        directory = FilePath("/sys/class/bdi/\(linux_major(UInt64(device))):\(linux_minor(UInt64(device)))")
    }

    /// Sets the read-ahead. Only after the connection's start, which sets it too (process_init_reply in fs/fuse/inode.c).
    func setReadAhead(bytes: Int) throws(StoreError) { try write(bytes >> 10, to: "read_ahead_kb") }

    /// Sets the most bytes that may be dirty (kernels from 6.2 on). The kernel's own limit for a FUSE mount is a hundredth of
    /// that of the machine.
    func setMostDirty(bytes: Int) throws(StoreError) { try write(bytes, to: "max_bytes") }

    private func write(_ value: Int, to name: String) throws(StoreError) {
        let file = try Descriptor(path: directory.appending(name), flags: O_WRONLY)
        try writeAll(Array("\(value)".utf8), to: file.fd)
    }
}
