internal import Glibc
internal import LinuxSystem

/// The process that has a vault open for writing, as recorded in `vaultfs.lock` (FileFormat, The lock file). One line:
/// `<id> <boot id> <process id> <host> <process start> <process-id namespace> <root's device> <root's inode>`.
struct WriterRecord: Equatable {
    static let maximumSize = 512

    /// Drawn anew for each claim of a lock.
    let id: String
    /// The kernel's boot id. Two processes with the same boot id run on one machine, between two of its starts.
    let boot: String
    let process: ProcessIdentity
    let host: String
    /// The root of the vault, as the process sees it.
    var root = RootIdentity.unknown

    var processID: Int32 { process.processID }

    static func own(root: RootIdentity = .unknown) throws(StoreError) -> WriterRecord {
        WriterRecord(
            id: String(decoding: try VaultDirectory.randomDigits(), as: UTF8.self), boot: ownBoot(), process: .own(),
            host: word(procFile("sys/kernel/hostname", limit: 256) ?? []), root: root)
    }

    var bytes: [UInt8] {
        let numbers = [process.start, process.namespace, root.device, root.inode].map { "\($0)" }
        return Array("\(([id, boot, "\(processID)", host] + numbers).joined(separator: " "))\n".utf8)
    }

    var isOfThisMachine: Bool { boot == Self.ownBoot() }

    /// Returns true if another process of this machine wrote the record for this vault and still runs. False for this
    /// process, which must not lock itself out, and for a copied vault with the record of the original's writer. Nil if
    /// unknown, as for another machine's process.
    func isOfLivingOther(in vault: RootIdentity) -> Bool? {
        guard isOfThisMachine else { return nil }
        return process == .own() || root.isCertainlyOther(than: vault) ? false : process.isAlive
    }

    private static func isPrintable(_ byte: UInt8) -> Bool { (0x21...0x7E).contains(byte) }

    private static func ownBoot() -> String {
        // Without /proc, every process counts as another machine's.
        word(procFile("sys/kernel/random/boot_id", limit: 64) ?? Array("\(getpid())".utf8))
    }

    /// Returns the printable bytes, or "-" if there are none.
    private static func word(_ bytes: [UInt8]) -> String {
        let printable = bytes.filter(isPrintable)
        return printable.isEmpty ? "-" : String(decoding: printable, as: UTF8.self)
    }
}

extension WriterRecord {
    /// Returns nil for an empty file and for anything else but a record. The last two or four words may be absent.
    init?(parsing bytes: [UInt8]) {
        guard bytes.count <= Self.maximumSize, bytes.last == UInt8(ascii: "\n") else { return nil }
        let words = bytes.dropLast().split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard [4, 6, 8].contains(words.count), words.allSatisfy({ !$0.isEmpty && $0.allSatisfy(Self.isPrintable) })
        else {
            return nil
        }
        var texts = words.map { String(decoding: $0, as: UTF8.self) }
        texts += Array(repeating: "0", count: 8 - texts.count)
        guard let processID = Int32(texts[2]), processID > 0, let start = UInt64(texts[4]),
            let namespace = UInt64(texts[5]), let device = UInt64(texts[6]), let inode = UInt64(texts[7])
        else { return nil }
        let process = ProcessIdentity(processID: processID, start: start, namespace: namespace)
        self.init(
            id: texts[0], boot: texts[1], process: process, host: texts[3],
            root: RootIdentity(device: device, inode: inode))
    }
}

/// A process, distinct from a later one with the same id. Any thread.
struct ProcessIdentity: Equatable {
    let processID: Int32
    /// Start time in clock ticks since the machine's start (proc_pid_stat(5), starttime). 0 if unknown.
    let start: UInt64
    /// Inode number of the process-id namespace (namespaces(7)). 0 if unknown.
    let namespace: UInt64

    /// Returns this process. Its start is unknown if /proc is absent or belongs to another namespace.
    static func own() -> ProcessIdentity {
        let life = Self.life(of: "self")
        return ProcessIdentity(
            processID: getpid(), start: life?.processID == getpid() ? life?.start ?? 0 : 0, namespace: ownNamespace())
    }

    /// True if a process of this machine still runs. Nil if unknown.
    var isAlive: Bool? {
        guard start != 0, namespace != 0, namespace == Self.ownNamespace() else { return nil }
        if kill(processID, 0) != 0, errno == ESRCH { return false }
        // The file is unreadable because the process has just ended, or is hidden (proc(5), hidepid).
        guard let life = Self.life(of: "\(processID)"), life.processID == processID else { return nil }
        return life.start == start && !life.isOver
    }

    private static func ownNamespace() -> UInt64 {
        var status = stat()
        return stat("/proc/self/ns/pid", &status) == 0 ? UInt64(status.st_ino) : 0
    }

    /// Returns the necessary fields of proc_pid_stat(5). `isOver` is true for a zombie without other threads, because a
    /// remaining thread may be in a write that does not return.
    private static func life(of process: String) -> (processID: Int32, start: UInt64, isOver: Bool)? {
        guard let bytes = procFile("\(process)/stat", limit: 4096),
            // Skip the second field, the command, which is in parentheses and may contain any bytes.
            let commandEnd = bytes.lastIndex(of: UInt8(ascii: ")"))
        else { return nil }
        let fields = bytes[(commandEnd + 1)...].split(separator: UInt8(ascii: " "))
            .map { String(decoding: $0, as: UTF8.self) }
        guard fields.count > 19, let processID = Int32(String(decoding: bytes.prefix { $0 != 0x20 }, as: UTF8.self)),
            let threads = Int(fields[17]), let start = UInt64(fields[19])
        else { return nil }
        return (processID, start, isOver: ["Z", "X"].contains(fields[0]) && threads <= 1)
    }
}

/// Returns the contents of a file of /proc. Nil if it is unreadable or larger than `limit` bytes.
func procFile(_ path: String, limit: Int) -> [UInt8]? {
    guard let fd = try? retrying({ open("/proc/\(path)", O_RDONLY | O_CLOEXEC) }) else { return nil }
    return try? Descriptor(owning: fd).readToEnd(limit: limit)
}
