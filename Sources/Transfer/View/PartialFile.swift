internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// A file at the destination that is not whole yet. One thread, and one process: it is locked with flock(2).
struct PartialFile {
    private let directory: Descriptor
    private let name: [UInt8]
    let descriptor: Descriptor
    /// Bytes that were there when it was opened.
    let size: UInt64
    /// After so many bytes they are made durable. So of a file that goes beyond a multiple of this, all bytes before are on
    /// disk, whatever ended the process or the machine.
    private let interval: UInt64

    /// Opens it or makes it.
    /// - Throws: `damaged` where it is not this user's alone, or written by another process.
    init(_ name: [UInt8], in directory: Descriptor, interval: UInt64) throws(StoreError) {
        self.directory = directory
        self.interval = interval
        self.name = name
        descriptor = try Self.open(name, in: directory)
        let status = try descriptor.status()
        guard Self.isOwn(status) else {
            throw .damaged("'\(String(decoding: name, as: UTF8.self))' at the destination is not from an export")
        }
        let busy = StoreError.damaged("another export is writing it")
        do throws(StoreError) {
            try retrying { [descriptor] in flock(descriptor.fd, LOCK_EX | LOCK_NB) }
        } catch .system(.wouldBlock) {
            throw busy
        }
        // The other may have just finished.
        guard let named = try? directory.status(of: name), named.st_ino == status.st_ino, named.st_dev == status.st_dev
        else { throw busy }
        size = UInt64(max(0, try descriptor.status().st_size))
    }

    private static func open(_ name: [UInt8], in directory: Descriptor) throws(StoreError) -> Descriptor {
        let flags = O_RDWR | O_NONBLOCK | O_NOCTTY
        do throws(StoreError) {
            return try Descriptor(at: directory.fd, name, flags: flags | O_CREAT, mode: 0o600)
        } catch .system(.permissionDenied) {
            // One that had only to get its name has its source's mode, which may deny that to its owner.
            guard let pin = try? Descriptor(at: directory.fd, name, flags: linux_O_PATH),
                let status = try? pin.status(), isOwn(status)
            else { throw .system(.permissionDenied) }
            // Of what is pinned, by the kernel's own link to it, which is no path on disk.
            try retrying { chmod("/proc/self/fd/\(pin.fd)", 0o600) }
            return try pin.reopened(flags: flags)
        }
    }

    private static func isOwn(_ status: stat) -> Bool {
        status.st_mode & S_IFMT == S_IFREG && status.st_uid == geteuid() && status.st_nlink <= 1
    }

    /// How many of its bytes are known to be on disk.
    var durableSize: UInt64 { size == 0 ? 0 : (size - 1) / interval * interval }

    /// Writes the next bytes. Those of one interval come in calls of their own.
    func write(_ bytes: UnsafeRawBufferPointer, at plaintextOffset: UInt64) throws(StoreError) {
        try descriptor.write(bytes, at: plaintextOffset)
        if (plaintextOffset + UInt64(bytes.count)) % interval == 0 {
            try descriptor.synchronize(dataOnly: true)
        } else {
            // The disk is at work while the next are decrypted. Where it cannot be told, it begins later.
            _ = linux_start_writing(descriptor.fd, Int64(plaintextOffset), Int64(bytes.count))
        }
    }

    /// Begins anew.
    func empty() throws(StoreError) {
        try descriptor.truncate(to: 0)
    }

    /// Gives the whole file its name, durable but for the name.
    /// - Throws: `fileExists` where something else has the name.
    func finish(as file: [UInt8], mode: mode_t, modified: timespec) throws(StoreError) {
        try descriptor.setModified(modified)
        try descriptor.synchronize(dataOnly: false)
        // Last: it may close it to its owner, who is to go on with it where this ends early.
        try retrying { fchmod(descriptor.fd, mode) }
        do throws(StoreError) {
            try rename(to: file)
        } catch .system(.invalidArgument) {
            // A file system that cannot rename without replacing (NFS) may know links.
            try withCString(name) { (old) throws(StoreError) in
                try withCString(file) { (new) throws(StoreError) in
                    _ = try retrying { linkat(directory.fd, old, directory.fd, new, 0) }
                }
            }
            remove()
        }
    }

    private func rename(to file: [UInt8]) throws(StoreError) {
        try withCString(name) { (old) throws(StoreError) in
            try withCString(file) { (new) throws(StoreError) in
                _ = try retrying { linux_renameat2(directory.fd, old, directory.fd, new, linux_RENAME_NOREPLACE) }
            }
        }
    }

    func remove() {
        withCString(name) { name in _ = unlinkat(directory.fd, name, 0) }
    }
}

extension Descriptor {
    /// futimens(2), the time of access left alone.
    func setModified(_ time: timespec) throws(StoreError) {
        try retrying { futimens(fd, [timespec(tv_sec: 0, tv_nsec: linux_UTIME_OMIT), time]) }
    }
}
