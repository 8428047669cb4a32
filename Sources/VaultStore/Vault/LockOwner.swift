internal import FileSystem
internal import Glibc
internal import LinuxSystem
package import SystemPackage

/// The process that has a vault locked.
package struct LockOwner: Equatable, Sendable, CustomStringConvertible {
    package let processID: Int32
    /// The program's name (`/proc/PID/comm`), nil where it cannot be read.
    package let command: String?
    /// The machine's name where it is another, or may be; nil where the process is one that this machine's commands reach.
    package let host: String?

    package init(processID: Int32, command: String?, host: String? = nil) {
        self.processID = processID
        self.command = command
        self.host = host
    }

    /// As a note on the store says; nil where its process has ended.
    init?(_ note: WriterRecord) {
        switch note.isOfLivingOther {
        case true?: self.init(processID: note.processID)
        case false?: return nil
        case nil: self.init(processID: note.processID, command: nil, host: note.host)
        }
    }

    /// A process that this one sees.
    private init(processID: Int32) {
        let command = Self.text(of: "/proc/\(processID)/comm").filter { !$0.isNewline }
        self.init(processID: processID, command: command.isEmpty ? nil : command)
    }

    package var description: String {
        "process \(processID)" + (command.map { " (\($0))" } ?? "") + (host.map { " on \($0)" } ?? "")
    }

    /// Who holds an flock on the open directory `descriptor`, from `/proc/locks`; nil where nobody does, or where the
    /// holder is outside this process-id namespace. Any thread.
    package static func find(descriptor: FileDescriptor) -> LockOwner? {
        var status = stat()
        guard fstat(descriptor.rawValue, &status) == 0 else { return nil }
        let devices = superblockDevices(of: descriptor, status: status)
        let lines = text(of: "/proc/locks").split(separator: "\n")
        guard
            let processID = lines.lazy.compactMap({ holder(line: $0, devices: devices, inode: UInt64(status.st_ino)) })
                .first
        else { return nil }
        return LockOwner(processID: processID)
    }

    /// The process id of one line of `/proc/locks`, if it is an flock held on the inode
    /// (proc_locks(5): `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`; a waiter's line has `->` after the number).
    private static func holder(line: Substring, devices: Set<String>, inode: UInt64) -> Int32? {
        let fields = line.split(separator: " ")
        guard fields.count >= 6, fields[1] == "FLOCK", let processID = Int32(fields[4]), processID > 0 else {
            return nil
        }
        let place = fields[5].split(separator: ":")
        guard place.count == 3, UInt64(place[2]) == inode, devices.contains("\(place[0]):\(place[1])") else {
            return nil
        }
        return processID
    }

    /// How `/proc/locks` may spell the directory's device: by stat(2), and, because that differs on btrfs and overlayfs,
    /// by the superblock that mountinfo names for the descriptor's mount.
    private static func superblockDevices(of descriptor: FileDescriptor, status: stat) -> Set<String> {
        let device = UInt64(status.st_dev)
        let major = (device >> 8) & 0xFFF | (device >> 32) & ~0xFFF
        let minor = device & 0xFF | (device >> 12) & ~0xFF
        var devices: Set = [spelled(major: major, minor: minor)]
        let mountLine = text(of: "/proc/self/fdinfo/\(descriptor.rawValue)").split(separator: "\n")
            .first { $0.hasPrefix("mnt_id:") }
        guard let mount = mountLine?.split(whereSeparator: \.isWhitespace).last else { return devices }
        for line in text(of: "/proc/self/mountinfo").split(separator: "\n") {
            let fields = line.split(separator: " ", maxSplits: 3)
            guard fields.count == 4, fields[0] == mount else { continue }
            let numbers = fields[2].split(separator: ":").compactMap { UInt64($0) }
            if numbers.count == 2 { devices.insert(spelled(major: numbers[0], minor: numbers[1])) }
        }
        return devices
    }

    /// `%02x:%02x`, as fs/locks.c prints it.
    private static func spelled(major: UInt64, minor: UInt64) -> String {
        [major, minor].map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined(separator: ":")
    }

    private static func text(of path: String) -> String {
        // Only for a message: where /proc cannot be read, the holder stays unnamed.
        guard let fd = try? retrying({ open(path, O_RDONLY | O_CLOEXEC) }),
            let bytes = try? Descriptor(owning: fd).readToEnd(limit: 1 << 24)
        else { return "" }
        return String(decoding: bytes, as: UTF8.self)
    }
}
