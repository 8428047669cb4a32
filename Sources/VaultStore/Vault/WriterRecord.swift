internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto

/// Who has a vault open for writing, as `vaultfs.lock` tells others (FileFormat, The lock file): one line,
/// `<id> <boot id> <process id> <host> <process start> <process-id namespace>`.
struct WriterRecord: Equatable {
    /// What is read of the file at most.
    static let maximumSize = 512

    /// New with every hold.
    let id: String
    /// The kernel's boot id: processes that share it are on one machine, between two of its starts.
    let boot: String
    let process: ProcessIdentity
    let host: String

    var processID: Int32 { process.processID }

    init(id: String, boot: String, process: ProcessIdentity, host: String) {
        (self.id, self.boot, self.process, self.host) = (id, boot, process, host)
    }

    /// This process's.
    static func own() throws(StoreError) -> WriterRecord {
        let id: UInt64
        do { id = try SecureRandom.integer() } catch { throw StoreError(error) }
        return WriterRecord(id: String(id, radix: 16), boot: ownBoot(), process: .own(), host: ownHost())
    }

    /// Nil where that is no note: an empty file, or anybody's bytes. The last two words may be absent.
    init?(parsing bytes: [UInt8]) {
        guard bytes.count <= Self.maximumSize, bytes.last == UInt8(ascii: "\n") else { return nil }
        let words = bytes.dropLast().split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard [4, 6].contains(words.count), words.allSatisfy({ !$0.isEmpty && $0.allSatisfy(Self.isPrintable) }) else {
            return nil
        }
        var texts = words.map { String(decoding: $0, as: UTF8.self) }
        if texts.count == 4 { texts += ["0", "0"] }
        guard let processID = Int32(texts[2]), processID > 0, let start = UInt64(texts[4]),
            let namespace = UInt64(texts[5])
        else { return nil }
        let process = ProcessIdentity(processID: processID, start: start, namespace: namespace)
        self.init(id: texts[0], boot: texts[1], process: process, host: texts[3])
    }

    var bytes: [UInt8] {
        Array("\(id) \(boot) \(processID) \(host) \(process.start) \(process.namespace)\n".utf8)
    }

    var isOfThisMachine: Bool { boot == Self.ownBoot() }

    /// Whether its process may still write: false for this process, which is not to keep itself out. Nil where that cannot
    /// be told, as of another machine's.
    var isOfLivingOther: Bool? {
        guard isOfThisMachine else { return nil }
        return process == .own() ? false : process.isAlive
    }

    private static func isPrintable(_ byte: UInt8) -> Bool { (0x21...0x7E).contains(byte) }

    private static func ownBoot() -> String {
        let fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)
        let bytes = fd < 0 ? nil : try? Descriptor(owning: fd).readToEnd(limit: 64)
        // Without /proc every machine is another.
        return word(bytes ?? Array("\(getpid())".utf8))
    }

    private static func ownHost() -> String {
        var name = [UInt8](repeating: 0, count: 65)
        name.withUnsafeMutableBytes { bytes in
            guard let start = bytes.assumingMemoryBound(to: CChar.self).baseAddress else { return }
            _ = gethostname(start, bytes.count - 1)
        }
        return word(name)
    }

    /// The printable part; never empty.
    private static func word(_ bytes: [UInt8]) -> String {
        let printable = bytes.filter(isPrintable)
        return printable.isEmpty ? "-" : String(decoding: printable, as: UTF8.self)
    }
}
