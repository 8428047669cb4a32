internal import Glibc
package import LinuxSystem

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

    private init(visible processID: Int32) {
        let command = Self.text(of: "\(processID)/comm").filter { !$0.isNewline }
        self.init(processID: processID, command: command.isEmpty ? nil : command)
    }

    /// Finds the process that holds an flock on an open file or directory, in `/proc/locks`. Nil if there is none, or
    /// if it is outside this process-id namespace. Any thread.
    package static func find(descriptor: Descriptor) -> LockOwner? {
        guard let inode = try? descriptor.status().st_ino, let device = device(of: descriptor) else { return nil }
        return text(of: "locks").split(separator: "\n").lazy
            .compactMap { processID(ofLine: $0, file: "\(device):\(inode)") }
            .first.map { LockOwner(visible: $0) }
    }

    /// Returns the process id of one line of `/proc/locks`, if it is an flock held on the file (proc_locks(5)). A line
    /// has the form `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`. A waiter's has `->` after the number.
    private static func processID(ofLine line: Substring, file: String) -> Int32? {
        let fields = line.split(separator: " ")
        guard fields.count >= 6, fields[1] == "FLOCK", fields[5] == file, let processID = Int32(fields[4]),
            processID > 0
        else { return nil }
        return processID
    }

    /// Returns the name of a file's device in `/proc/locks`, `%02x:%02x` (fs/locks.c): the superblock's device, as in
    /// mountinfo. That of stat(2) is another one on btrfs and overlayfs.
    private static func device(of descriptor: Descriptor) -> String? {
        let mount = text(of: "self/fdinfo/\(descriptor.fd)").split(separator: "\n")
            .first { $0.hasPrefix("mnt_id:") }?.split(whereSeparator: \.isWhitespace).last
        let mounts = text(of: "self/mountinfo").split(separator: "\n").map { $0.split(separator: " ", maxSplits: 3) }
        return mounts.first { $0.count == 4 && $0[0] == mount }?[2].split(separator: ":").compactMap { UInt64($0) }
            .map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined(separator: ":")
    }

    /// Returns a file of /proc as text. Empty if it is unreadable, and then the owner stays unnamed.
    private static func text(of path: String) -> String {
        String(decoding: procFile(path, limit: 1 << 24) ?? [], as: UTF8.self)
    }
}
