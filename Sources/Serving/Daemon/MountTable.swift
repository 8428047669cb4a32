internal import CLinux
package import FuseSession
package import Glibc
internal import LinuxSystem
internal import SystemPackage

/// The mounts of this mount namespace, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
package struct MountTable: Sendable {
    package struct Entry: Equatable, Sendable {
        package let mountpoint: [UInt8]
        /// `st_dev` of the file system's files.
        package let device: dev_t?
        /// The type, such as `fuse.vaultfs`.
        package let type: String
        /// The source. For FUSE it is the value of `fsname`, the path of the mounted vault or view.
        package let source: [UInt8]
        /// The file system's own options, such as `user_id=1000`.
        let options: [String]

        package var isOurs: Bool { type == "fuse.vaultfs" }
        package var isReadOnly: Bool { options.contains("ro") }
        /// The user whose daemon serves a FUSE mount.
        package var userID: UInt32? { number("user_id=") }
        package var groupID: UInt32? { number("group_id=") }

        private func number(_ prefix: String) -> UInt32? {
            options.lazy.compactMap { $0.hasPrefix(prefix) ? UInt32($0.dropFirst(prefix.count)) : nil }.first
        }
    }

    /// The mounts, the oldest first.
    package let entries: [Entry]

    /// - Throws: kind `failure`.
    package static func read() throws(MountError) -> MountTable {
        let path = "/proc/self/mountinfo"
        do throws(StoreError) {
            guard let bytes = try Descriptor(path: FilePath(path), flags: O_RDONLY).readToEnd(limit: 1 << 24) else {
                throw .system(.fileTooLarge)
            }
            return MountTable(parsing: bytes)
        } catch {
            throw MountError(.failure, reason: "cannot read \(path): \(error.errno)")
        }
    }

    /// Parses the text of the file. Leaves out invalid lines.
    package init(parsing bytes: [UInt8]) { entries = bytes.split(separator: UInt8(ascii: "\n")).compactMap(Self.entry) }

    /// Returns the topmost mount at `mountpoint`, an absolute path without links.
    package func entry(at mountpoint: [UInt8]) -> Entry? { entries.last { $0.mountpoint == mountpoint } }

    /// Returns true for an NFS mount whose calls end with an error if the server does not answer (nfs(5)).
    /// - Parameter device: `st_dev` of its files.
    package func isSoft(_ device: dev_t) -> Bool {
        entries.contains { entry in
            entry.device == device && entry.type.hasPrefix("nfs")
                && entry.options.contains { ["soft", "softerr"].contains($0) }
        }
    }

    /// Returns the topmost mount of the file system with these files.
    /// - Parameter device: `st_dev` of the files.
    package func entry(of device: dev_t) -> Entry? { entries.last { $0.device == device } }

    /// Returns our mounts of a source, given by its absolute path without links. Leaves out covered mounts. Any user
    /// can mount something with this path as its source, so check `userID` before you trust one.
    package func mounts(from source: [UInt8]) -> [Entry] {
        entries.filter { $0.isOurs && $0.source == source && $0 == entry(at: $0.mountpoint) }
    }

    /// Returns the mounts that keep the one at `mountpoint` in use: those below it, and ours of a source in it.
    package func mounts(above mountpoint: [UInt8]) -> [Entry] {
        entries.filter { entry in
            entry.mountpoint != mountpoint
                && (entry.mountpoint.isPath(in: mountpoint) || entry.isOurs && entry.source.isPath(in: mountpoint))
        }
    }

    /// Our mounts of concern to this user: their own, or for root all users'.
    package var mountsOfThisUser: [Entry] {
        let isRoot = geteuid() == 0
        return entries.filter { $0.isOurs && (isRoot || $0.userID == geteuid()) }
    }

    /// Returns `st_dev` of the topmost mount at `mountpoint`. Nil if unknown.
    static func device(at mountpoint: FilePath) -> dev_t? { try? read().entry(at: mountpoint.bytes)?.device }

    /// Parses a line: `36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/root rw,errors=continue`
    private static func entry(_ line: ArraySlice<UInt8>) -> Entry? {
        let fields = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard fields.count >= 10, let separator = fields[6...].firstIndex(of: [UInt8(ascii: "-")]),
            fields.count > separator + 3
        else { return nil }
        let options = String(decoding: fields[separator + 3], as: UTF8.self)
        return Entry(
            mountpoint: unescaped(fields[4]), device: device(fields[2]),
            type: String(decoding: fields[separator + 1], as: UTF8.self),
            source: unescaped(fields[separator + 2]), options: options.split(separator: ",").map(String.init))
    }

    /// Parses major and minor number: `98:0`
    private static func device(_ field: ArraySlice<UInt8>) -> dev_t? {
        let numbers = field.split(separator: UInt8(ascii: ":")).compactMap {
            UInt32(String(decoding: $0, as: UTF8.self))
        }
        return numbers.count == 2 ? dev_t(linux_makedev(numbers[0], numbers[1])) : nil
    }

    /// Decodes the kernel's spelling of space, tab, LF and backslash: `\` and three octal digits.
    private static func unescaped(_ field: ArraySlice<UInt8>) -> [UInt8] {
        var result: [UInt8] = []
        var rest = field
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            if byte == UInt8(ascii: "\\"), digits.count == 3,
                let value = UInt8(String(decoding: digits, as: UTF8.self), radix: 8)
            {
                result.append(value)
                rest = rest.dropFirst(3)
            } else {
                result.append(byte)
            }
        }
        return result
    }
}

extension [UInt8] {
    /// Returns true for the path of a directory, and for those below it.
    func isPath(in directory: [UInt8]) -> Bool {
        starts(with: directory) && (count == directory.count || self[directory.count] == UInt8(ascii: "/"))
    }
}

extension MountTable.Entry {
    /// The time in which a daemon must answer, in seconds.
    private static let probeTimeout = 2

    /// Returns true if the daemon has died: the mount then stays in the table without keys. Returns false if the daemon
    /// does not answer.
    package func isDead() -> Bool {
        let answer = Monitor<Bool?>(nil)
        // Do not join the thread, because it may hang in the mount. It then ends with this process.
        let thread = try? BackgroundThread {
            let isDead = openFails()
            answer.update { $0 = isDead }
        }
        thread?.detach()
        return thread != nil && answer.wait(until: .now + .seconds(Self.probeTimeout)) { $0 } ?? false
    }

    /// Probes the mount on a thread of its own. The thread takes the identity of the mount's user, because the kernel
    /// admits only this user to a FUSE mount, and refuses even root (fuse(8), allow_other).
    private func openFails() -> Bool {
        if geteuid() == 0, let userID, let groupID, userID != 0 {
            guard linux_become_user_on_thread(userID, groupID) == 0 else { return false }
        }
        // Use open(2), which asks the daemon, because the kernel may answer stat(2) from its cache.
        do throws(StoreError) {
            _ = try Descriptor(path: FilePath(bytes: mountpoint), flags: O_RDONLY | O_DIRECTORY)
        } catch {
            // A request that was waiting when the daemon died gets ECONNABORTED.
            return [.system(.socketNotConnected), .system(.connectionAbort)].contains(error)
        }
        return false
    }
}
