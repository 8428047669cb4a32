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
        /// Such as `fuse.vaultfs`.
        package let type: String
        /// For FUSE the value of `fsname`: the path that is mounted.
        package let source: [UInt8]
        /// The file system's own options, such as `user_id=1000`.
        let options: [String]

        package var isOurs: Bool { type == "fuse.vaultfs" }
        package var isReadOnly: Bool { options.contains("ro") }
        /// The user whose daemon serves a FUSE mount.
        package var userID: UInt32? { number("user_id=") }
        /// The daemon's group.
        package var groupID: UInt32? { number("group_id=") }

        private func number(_ prefix: String) -> UInt32? {
            options.lazy.compactMap { $0.hasPrefix(prefix) ? UInt32($0.dropFirst(prefix.count)) : nil }.first
        }
    }

    /// The oldest first.
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

    /// Leaves out invalid lines.
    package init(parsing bytes: [UInt8]) { entries = bytes.split(separator: UInt8(ascii: "\n")).compactMap(Self.entry) }

    /// The topmost mount at `mountpoint`, an absolute path without links.
    package func entry(at mountpoint: [UInt8]) -> Entry? { entries.last { $0.mountpoint == mountpoint } }

    /// True for an NFS mount whose calls end with an error if the server does not answer (nfs(5)).
    /// - Parameter device: `st_dev` of its files.
    package func isSoft(_ device: dev_t) -> Bool {
        entries.contains { entry in
            entry.device == device && entry.type.hasPrefix("nfs")
                && entry.options.contains { ["soft", "softerr"].contains($0) }
        }
    }

    /// The topmost mount of the file system with these files.
    /// - Parameter device: `st_dev` of the files.
    package func entry(of device: dev_t) -> Entry? { entries.last { $0.device == device } }

    /// Our mounts of a source, by its absolute path without links. Leaves out those that another mount
    /// covers. Any user can mount something with this path as its source: look at `userID` before you trust one.
    package func mounts(from source: [UInt8]) -> [Entry] {
        entries.filter { $0.isOurs && $0.source == source && $0 == entry(at: $0.mountpoint) }
    }

    /// The mounts that keep the one at `mountpoint` in use: those below it, and ours of a source in it.
    package func mounts(above mountpoint: [UInt8]) -> [Entry] {
        entries.filter { entry in
            entry.mountpoint != mountpoint
                && (entry.mountpoint.isPath(in: mountpoint) || entry.isOurs && entry.source.isPath(in: mountpoint))
        }
    }

    /// Our mounts that concern this user: their own, or for root all users'.
    package var mountsOfThisUser: [Entry] {
        let isRoot = geteuid() == 0
        return entries.filter { $0.isOurs && (isRoot || $0.userID == geteuid()) }
    }

    /// `st_dev` of the topmost mount at `mountpoint`. Nil if unknown.
    static func device(at mountpoint: FilePath) -> dev_t? { try? read().entry(at: mountpoint.bytes)?.device }

    /// `36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/root rw,errors=continue`
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

    /// `98:0`, major and minor number.
    private static func device(_ field: ArraySlice<UInt8>) -> dev_t? {
        let numbers = field.split(separator: UInt8(ascii: ":")).compactMap {
            UInt32(String(decoding: $0, as: UTF8.self))
        }
        return numbers.count == 2 ? dev_t(linux_makedev(numbers[0], numbers[1])) : nil
    }

    /// The kernel writes space, tab, LF and backslash as `\` and three octal digits.
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
    /// True for the path of a directory, and for those below it.
    func isPath(in directory: [UInt8]) -> Bool {
        starts(with: directory) && (count == directory.count || self[directory.count] == UInt8(ascii: "/"))
    }
}

extension MountTable.Entry {
    /// The longest time that a daemon may take to answer, in seconds.
    private static let probeTimeout = 2

    /// Returns true if the daemon has died: the mount stays in the table without keys. Returns false if the daemon does not
    /// answer.
    package func isDead() -> Bool {
        let answer = Monitor<Bool?>(nil)
        // Not joined: it may hang in the mount, and then ends with this process.
        let thread = try? BackgroundThread {
            let isDead = openFails()
            answer.update { $0 = isDead }
        }
        return thread != nil && answer.wait(until: .now + .seconds(Self.probeTimeout)) { $0 } ?? false
    }

    /// Runs on its own thread, which takes the identity of the mount's user. The kernel admits nobody else to a FUSE mount,
    /// not even root (fuse(8), allow_other).
    private func openFails() -> Bool {
        if geteuid() == 0, let userID, let groupID, userID != 0 {
            guard linux_become_user_on_thread(userID, groupID) == 0 else { return false }
        }
        // The kernel may answer stat(2) from its cache. open(2) asks the daemon.
        do throws(StoreError) {
            _ = try Descriptor(path: FilePath(bytes: mountpoint), flags: O_RDONLY | O_DIRECTORY)
        } catch {
            // ECONNABORTED is the answer to a request that was under way when the daemon died.
            return [.system(.socketNotConnected), .system(.connectionAbort)].contains(error)
        }
        return false
    }
}
