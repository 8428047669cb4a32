internal import Glibc
package import SystemPackage

/// The process that holds a lock, for messages.
package struct LockOwner: Equatable, Sendable, CustomStringConvertible {
    package let processID: Int32
    /// The program's name (`/proc/PID/comm`). Nil if unknown.
    package var command: String?
    /// The machine's name. Nil for a process within reach of commands on this machine.
    package var host: String?

    package var description: String {
        "process \(processID)" + (command.map { " (\($0))" } ?? "") + (host.map { " on \($0)" } ?? "")
    }
}

extension LockOwner {
    /// Makes the owner from a vault's writer record. Nil if its process has ended, or has the original of this copy.
    init?(_ record: WriterRecord, in vault: RootIdentity) {
        switch record.isOfLivingOther(in: vault) {
        case true?: self.init(visible: record.processID)
        case false?: return nil
        case nil: self.init(processID: record.processID, host: record.host)
        }
    }

    /// Makes the owner from a process visible to this one.
    private init(visible processID: Int32) {
        let command = Self.text(of: "\(processID)/comm").filter { !$0.isNewline }
        self.init(processID: processID, command: command.isEmpty ? nil : command)
    }

    /// Finds the process that holds an flock on an open file or directory, in `/proc/locks`. Nil if there is none, or
    /// if it is outside this process-id namespace. Any thread.
    package static func find(descriptor: FileDescriptor) -> LockOwner? {
        var status = stat()
        guard fstat(descriptor.rawValue, &status) == 0 else { return nil }
        let devices = superblockDevices(of: descriptor, status: status)
        return text(of: "locks").split(separator: "\n").lazy
            .compactMap { processID(ofLine: $0, devices: devices, inode: UInt64(status.st_ino)) }
            .first.map { LockOwner(visible: $0) }
    }

    /// Returns the process id of one line of `/proc/locks`, if it is an flock held on the inode (proc_locks(5)). A line
    /// has the form `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`. A waiter's has `->` after the number.
    private static func processID(ofLine line: Substring, devices: Set<String>, inode: UInt64) -> Int32? {
        let fields = line.split(separator: " ")
        guard fields.count >= 6, fields[1] == "FLOCK", let processID = Int32(fields[4]), processID > 0 else {
            return nil
        }
        let file = fields[5].split(separator: ":")
        guard file.count == 3, UInt64(file[2]) == inode, devices.contains("\(file[0]):\(file[1])") else { return nil }
        return processID
    }

    /// Returns the possible names of a file's device in `/proc/locks`: the device of stat(2) and the superblock's
    /// device in mountinfo, because the two differ on btrfs and overlayfs.
    private static func superblockDevices(of descriptor: FileDescriptor, status: stat) -> Set<String> {
        let device = UInt64(status.st_dev)
        let major = (device >> 8) & 0xFFF | (device >> 32) & ~0xFFF
        let minor = device & 0xFF | (device >> 12) & ~0xFF
        var devices: Set = [name(major: major, minor: minor)]
        let mountLine = text(of: "self/fdinfo/\(descriptor.rawValue)").split(separator: "\n")
            .first { $0.hasPrefix("mnt_id:") }
        guard let mount = mountLine?.split(whereSeparator: \.isWhitespace).last else { return devices }
        for line in text(of: "self/mountinfo").split(separator: "\n") {
            let fields = line.split(separator: " ", maxSplits: 3)
            guard fields.count == 4, fields[0] == mount else { continue }
            let numbers = fields[2].split(separator: ":").compactMap { UInt64($0) }
            if numbers.count == 2 { devices.insert(name(major: numbers[0], minor: numbers[1])) }
        }
        return devices
    }

    /// Returns `%02x:%02x`, as fs/locks.c prints it.
    private static func name(major: UInt64, minor: UInt64) -> String {
        [major, minor].map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined(separator: ":")
    }

    /// Returns a file of /proc as text. Empty if it is unreadable, and then the owner stays unnamed.
    private static func text(of path: String) -> String {
        String(decoding: procFile(path, limit: 1 << 24) ?? [], as: UTF8.self)
    }
}
