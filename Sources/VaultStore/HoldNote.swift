internal import BackingStore
internal import Glibc
internal import SystemPackage
internal import VaultCrypto

/// Who has a vault open for writing, as `vaultfs.lock` tells other machines (FileFormat, The lock file): one line,
/// `<id> <boot id> <process id> <host>`.
struct HoldNote: Equatable {
    /// What is read of the file at most.
    static let maximumSize = 512

    /// New with every hold.
    let id: String
    /// The kernel's boot id: processes that share it are on one machine, between two of its starts.
    let boot: String
    let processID: Int32
    let host: String

    init(id: String, boot: String, processID: Int32, host: String) {
        (self.id, self.boot, self.processID, self.host) = (id, boot, processID, host)
    }

    /// This process's.
    static func own() throws(StoreError) -> HoldNote {
        let id: UInt64
        do { id = try SecureRandom.integer() } catch { throw StoreError(error) }
        return HoldNote(id: String(id, radix: 16), boot: ownBoot(), processID: getpid(), host: ownHost())
    }

    /// Nil where that is no note: an empty file, or anybody's bytes.
    init?(parsing bytes: [UInt8]) {
        guard bytes.count <= Self.maximumSize, bytes.last == UInt8(ascii: "\n") else { return nil }
        let words = bytes.dropLast().split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard words.count == 4, words.allSatisfy({ !$0.isEmpty && $0.allSatisfy(Self.isPrintable) }) else { return nil }
        let texts = words.map { String(decoding: $0, as: UTF8.self) }
        guard let processID = Int32(texts[2]), processID > 0 else { return nil }
        self.init(id: texts[0], boot: texts[1], processID: processID, host: texts[3])
    }

    var bytes: [UInt8] { Array("\(id) \(boot) \(processID) \(host)\n".utf8) }

    var isOfThisMachine: Bool { boot == Self.ownBoot() }

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
