internal import FileSystem
internal import Glibc
internal import LinuxSystem

/// A process, so that others can tell whether it still lives, and that another does not pass for it. Any thread.
struct ProcessIdentity: Equatable {
    let processID: Int32
    /// Clock ticks from the machine's start to the process's (proc_pid_stat(5), starttime); 0 where that is not known.
    let start: UInt64
    /// The inode of its process-id namespace (namespaces(7)); 0 where that is not known.
    let namespace: UInt64

    /// This process. Where /proc is absent, or another namespace's, its start is not known.
    static func own() -> ProcessIdentity {
        let life = Life(of: "self")
        return ProcessIdentity(
            processID: getpid(), start: life?.processID == getpid() ? life?.start ?? 0 : 0, namespace: ownNamespace())
    }

    /// Whether it lives, if it is one of this start of this machine; nil where that cannot be told.
    var isAlive: Bool? {
        guard start != 0, namespace != 0, namespace == Self.ownNamespace() else { return nil }
        if kill(processID, 0) != 0, errno == ESRCH { return false }
        // Unreadable: gone just now, or hidden (proc(5), hidepid).
        guard let life = Life(of: "\(processID)"), life.processID == processID else { return nil }
        return life.start == start && !life.isOver
    }

    private static func ownNamespace() -> UInt64 {
        var status = stat()
        return stat("/proc/self/ns/pid", &status) == 0 ? UInt64(status.st_ino) : 0
    }

    /// What proc_pid_stat(5) says of a process.
    private struct Life {
        let processID: Int32
        let start: UInt64
        /// A zombie. With other threads it is none: one of them may be in a write that does not come back.
        let isOver: Bool

        init?(of process: String) {
            let fd = open("/proc/\(process)/stat", O_RDONLY | O_CLOEXEC)
            guard fd >= 0, let bytes = try? Descriptor(owning: fd).readToEnd(limit: 4096),
                // The command, the second field, is in parentheses, and may be any bytes.
                let commandEnd = bytes.lastIndex(of: UInt8(ascii: ")"))
            else { return nil }
            let fields = bytes[(commandEnd + 1)...].split(separator: UInt8(ascii: " "))
                .map { String(decoding: $0, as: UTF8.self) }
            guard fields.count > 19,
                let processID = Int32(String(decoding: bytes.prefix { $0 != 0x20 }, as: UTF8.self)),
                let threads = Int(fields[17]), let start = UInt64(fields[19])
            else { return nil }
            self.processID = processID
            self.start = start
            isOver = ["Z", "X"].contains(fields[0]) && threads <= 1
        }
    }
}
