internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Settings of the kernel for one mount: its directory in /sys/class/bdi (sysfs-class-bdi, in the kernel's documentation). Only
/// root may set them.
struct KernelSettings {
    private let directory: FilePath

    /// - Parameter device: `st_dev` of the mount.
    init(device: dev_t) {
        directory = FilePath("/sys/class/bdi/\(linux_major(UInt64(device))):\(linux_minor(UInt64(device)))")
    }

    /// Sets the read-ahead. Only after the connection's start, which sets it too (process_init_reply in fs/fuse/inode.c).
    func setReadAhead(bytes: Int) throws(StoreError) { try write(bytes >> 10, to: "read_ahead_kb") }

    private func write(_ value: Int, to name: String) throws(StoreError) {
        let file = try Descriptor(path: directory.appending(name), flags: O_WRONLY)
        try writeAll(Array("\(value)".utf8), to: file.fd)
    }
}
