internal import LinuxSystem
internal import VaultFormat

/// The bodies of entries before their sync. If it fails, the kernel may have dropped them (NFS with `soft` does), so
/// the new log gets them from here. Guarded by `RedoLog.writing`.
struct UnsyncedEntries {
    /// Bytes kept, of the first entries after a sync. A program that syncs its writes rarely has more.
    private static let capacity = 1 << 20

    /// Allocated for the first entry.
    private var bytes: [UInt8] = []
    private var used = 0
    private var kept: [(sequence: UInt64, range: Range<Int>)] = []

    /// Keeps the body of the last appended entry, if there is room.
    /// - Parameter durable: number of the last durable entry.
    mutating func append(_ entry: LogEntry, _ body: UnsafeRawBufferPointer, durable: UInt64) {
        if let last = kept.last, last.sequence <= durable { forget() }
        guard entry.bodySize > 0, used + body.count <= Self.capacity else { return }
        if bytes.isEmpty { bytes = [UInt8](repeating: 0, count: Self.capacity) }
        let range = used..<(used + body.count)
        bytes.withMutableBytes { $0.slice(range).copyMemory(from: body) }
        kept.append((entry.sequence, range))
        used = range.upperBound
    }

    /// Copies the body of an entry. Returns false if it is not kept.
    func copy(_ entry: LogEntry, into body: UnsafeMutableRawBufferPointer) -> Bool {
        guard let found = kept.first(where: { $0.sequence == entry.sequence }), found.range.count == body.count else {
            return false
        }
        bytes.withBytes { body.copyMemory(from: $0.slice(found.range)) }
        return true
    }

    mutating func forget() {
        kept.removeAll(keepingCapacity: true)
        used = 0
    }
}
