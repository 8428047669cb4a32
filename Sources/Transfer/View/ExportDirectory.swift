internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import SystemPackage

/// A directory at the destination. One thread.
final class ExportDirectory {
    let descriptor: Descriptor
    /// What former exports have not finished.
    private let partials: [PartialName]

    /// - Parameter descriptor: open for reading.
    init(_ descriptor: Descriptor) throws(StoreError) {
        self.descriptor = descriptor
        var reader = DirectoryReader(
            try Descriptor(at: descriptor.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY))
        var found: [PartialName] = []
        while let entry = try reader.next() {
            if let name = PartialName(entry.name) { found.append(name) }
        }
        partials = found
    }

    /// What has this name; nil for nothing.
    func status(of name: [UInt8]) throws(StoreError) -> stat? {
        do throws(StoreError) {
            return try descriptor.status(of: name)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    /// The directory of this name, made where there is none: its plaintext names are for this user alone.
    func enter(_ name: [UInt8]) throws(StoreError) -> ExportDirectory {
        try withCString(name) { (name) throws(StoreError) in
            do throws(StoreError) {
                try retrying { mkdirat(descriptor.fd, name, 0o700) }
            } catch .system(.fileExists) {
                // Opened below, if it is a directory.
            }
        }
        return try ExportDirectory(Descriptor(at: descriptor.fd, name, flags: O_RDONLY | O_DIRECTORY))
    }

    /// - Throws: `fileExists` where something has the name.
    func makeLink(_ name: [UInt8], to target: [UInt8], modified: timespec) throws(StoreError) {
        try withCString(name) { (name) throws(StoreError) in
            try withCString(target) { (target) throws(StoreError) in
                _ = try retrying { symlinkat(target, descriptor.fd, name) }
            }
        }
        try setModified(modified, ofLink: name)
    }

    /// utimensat(2), the time of access left alone.
    func setModified(_ time: timespec, ofLink name: [UInt8]) throws(StoreError) {
        let times = [timespec(tv_sec: 0, tv_nsec: linux_UTIME_OMIT), time]
        try withCString(name) { (name) throws(StoreError) in
            _ = try retrying { utimensat(descriptor.fd, name, times, AT_SYMLINK_NOFOLLOW) }
        }
    }

    /// The file to be written as long as `name` is not whole. Those of the same name of another content, or of the source
    /// as it was before it changed, go.
    func partial(_ name: PartialName, interval: UInt64) throws(StoreError) -> PartialFile {
        for other in partials where other.file == name.file && other.content != name.content {
            guard let status = try status(of: other.bytes), status.st_mode & S_IFMT == S_IFREG,
                status.st_uid == geteuid()
            else { continue }
            withCString(other.bytes) { name in _ = unlinkat(descriptor.fd, name, 0) }
        }
        return try PartialFile(name.bytes, in: descriptor, interval: interval)
    }

    /// Gives it a time, and makes the names in it durable.
    func finish(modified: timespec?) throws(StoreError) {
        // Somebody else's directory keeps its own.
        if let modified { try? descriptor.setModified(modified) }
        try descriptor.synchronize(dataOnly: false)
    }
}

extension Descriptor {
    /// Whether this directory is `other` or somewhere below.
    package func isInside(_ other: Descriptor) throws(StoreError) -> Bool {
        let wanted = try other.status()
        var current = self
        var status = try status()
        while true {
            if status.st_ino == wanted.st_ino && status.st_dev == wanted.st_dev { return true }
            let parent = try Descriptor(at: current.fd, Array("..".utf8), flags: linux_O_PATH | O_DIRECTORY)
            let above = try parent.status()
            if above.st_ino == status.st_ino && above.st_dev == status.st_dev { return false }
            (current, status) = (parent, above)
        }
    }
}
