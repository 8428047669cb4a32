internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// `vaultfs.journal`: where a record's new bytes lie while they replace the old ones in place (FileFormat.md,
/// "The journal"). Written with pwrite(2) everywhere: a write to the page cache outlives the daemon as a mapping does,
/// and someone who cuts the file short cannot kill us with SIGBUS. Any thread.
package final class Journal: Sendable {
    /// One chunk of one file.
    struct Address: Hashable {
        var fileID: UInt64
        var chunk: UInt64
    }

    /// A slot that held a record at mount, or that holds the only good copy of one.
    struct Retained {
        var slot: Int
        var recordSize: Int
    }

    static let entry = Array("vaultfs.journal".utf8)
    let descriptor: Descriptor?
    /// Why there is something and it is not read.
    private let fault: String?
    private let isReadOnly: Bool
    private let chunkSize: Int
    private let pool = SlotPool()
    let retained = Mutex<[Address: [Retained]]>([:])
    /// Told, once, when a write was refused for want of slots.
    let onExhausted = Mutex<(@Sendable (String) -> Void)?>(nil)
    /// Spares every open file a look at the table, which is empty but after a crash.
    private let hasRetained = Atomic<Bool>(false)

    var slotSize: Int { JournalSlot.size(chunkSize: chunkSize) }

    /// A journal that holds nothing.
    init(emptyWithChunkSize chunkSize: Int) {
        self.chunkSize = chunkSize
        (descriptor, fault, isReadOnly) = (nil, nil, true)
    }

    /// Opens the journal in the vault's root, makes and preallocates it where it may be written, and notes the slots
    /// that are in use. What has its name and is no file is not opened: who only reads goes on without a journal.
    /// - Throws: `.damaged` for that, where it may be written.
    init(root: Int32, chunkSize: Int, isReadOnly: Bool) throws(StoreError) {
        self.chunkSize = chunkSize
        self.isReadOnly = isReadOnly
        do throws(StoreError) {
            descriptor = isReadOnly ? try Self.openToRead(root) : try Self.openToWrite(root)
            fault = nil
        } catch {
            guard isReadOnly, case .damaged(let reason) = error else { throw error }
            descriptor = nil
            fault = reason
        }
        guard let descriptor else { return }
        let size = JournalSlot.journalSize(chunkSize: chunkSize)
        if !isReadOnly { try giveToOwner(of: root, descriptor, try descriptor.status()) }
        if !isReadOnly && linux_fallocate(descriptor.fd, 0, 0, Int64(size)) != 0 {
            // Not to be had here (full, or a store without fallocate): slots are then allocated as they are written.
        }
        try findSlotsInUse(descriptor)
    }

    /// A journal that root's mount has made must not keep the vault's owner out.
    private func giveToOwner(of root: Int32, _ opened: Descriptor, _ status: stat) throws(StoreError) {
        var directory = stat()
        try retrying { fstat(root, &directory) }
        guard geteuid() == 0, status.st_uid != directory.st_uid || status.st_gid != directory.st_gid else { return }
        try retrying { fchown(opened.fd, directory.st_uid, directory.st_gid) }
    }

    private func findSlotsInUse(_ descriptor: Descriptor) throws(StoreError) {
        let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: slotSize, alignment: 16)
        defer { bytes.deallocate() }
        for slot in 0..<JournalSlot.count {
            bytes.initializeMemory(as: UInt8.self, repeating: 0)
            _ = try descriptor.read(at: UInt64(slot * slotSize), into: bytes)
            guard let found = JournalSlot.parse(UnsafeRawBufferPointer(bytes), chunkSize: chunkSize) else { continue }
            remember(Address(fileID: found.fileID, chunk: found.chunkIndex), slot: slot, recordSize: found.recordSize)
        }
    }

    private func remember(_ address: Address, slot: Int, recordSize: Int) {
        // There can be two for one record: the daemon died while it wrote the newer, before it freed the older. Which of
        // them counts, their tags tell.
        pool.retain(1 << UInt64(slot))
        retained.withLock { table in
            table[address, default: []].append(Retained(slot: slot, recordSize: recordSize))
            hasRetained.store(true, ordering: .releasing)
        }
    }

    /// How many records one batch may replace.
    func batchLimit() throws(StoreError) -> Int {
        let reach = pool.reach
        guard reach > 0 else { throw exhausted() }
        return reach
    }

    private func exhausted() -> StoreError {
        let said = problem ?? "vaultfs.journal: too many of its slots hold records"
        // Once is enough: programs try again.
        onExhausted.withLock { $0.take() }?(said)
        return .damaged(said)
    }

    /// What keeps the journal from doing its work, for people; nil where nothing does.
    var problem: String? {
        if let fault { return fault }
        // Who only reads, reads them there.
        guard isHoldingRecords, !isReadOnly else { return nil }
        let count = JournalSlot.count - pool.reach
        return "vaultfs.journal: \(count) of \(JournalSlot.count) slots hold records that could not be put in place"
            + (count == JournalSlot.count ? ", and nothing can be overwritten" : "")
            + "; unmount, and 'vaultfs verify --repair' frees them"
    }

    /// Puts the new records of consecutive chunks into slots; returns the slots taken, in the chunks' order by number.
    /// - Parameter records: `count` contiguous records, all but the last of `recordSize` bytes.
    func write(
        fileID: UInt64, firstChunk: UInt64, records: UnsafeRawBufferPointer, recordSize: Int, count: Int
    ) throws(StoreError) -> UInt64 {
        guard let descriptor else { throw .system(.readOnlyFileSystem) }
        let slots = pool.take(count)
        if slots.nonzeroBitCount < count {
            // Slots were retained since `batchLimit`: never wait for more while holding some.
            pool.put(slots)
            throw exhausted()
        }
        do {
            try fill(slots, of: descriptor, fileID: fileID, firstChunk: firstChunk, records: records, recordSize)
        } catch {
            release(slots)
            throw error
        }
        if hasRetained.load(ordering: .acquiring) { supersede(fileID: fileID, firstChunk: firstChunk, count: count) }
        return slots
    }

    private func fill(
        _ slots: UInt64, of descriptor: Descriptor, fileID: UInt64, firstChunk: UInt64,
        records: UnsafeRawBufferPointer, _ recordSize: Int
    ) throws(StoreError) {
        var left = slots
        var chunk = firstChunk
        var start = 0
        while left != 0 {
            let slot = left.trailingZeroBitCount
            let end = min(start + recordSize, records.count)
            let record = UnsafeRawBufferPointer(rebasing: records[start..<end])
            try Self.writeSlot(
                descriptor, at: UInt64(slot * slotSize), fileID: fileID, chunk: chunk, record: record)
            left &= left - 1
            chunk += 1
            start = end
        }
    }

    /// File id, chunk, size and record in one pwritev(2).
    private static func writeSlot(
        _ descriptor: Descriptor, at offset: UInt64, fileID: UInt64, chunk: UInt64, record: UnsafeRawBufferPointer
    ) throws(StoreError) {
        var head = (fileID.littleEndian, chunk.littleEndian, UInt64(record.count).littleEndian)
        let written = try withUnsafeMutableBytes(of: &head) { (head) throws(StoreError) -> Int in
            var parts = (
                iovec(iov_base: head.baseAddress, iov_len: head.count),
                iovec(iov_base: UnsafeMutableRawPointer(mutating: record.baseAddress), iov_len: record.count)
            )
            return try withUnsafeMutablePointer(to: &parts) { (parts) throws(StoreError) -> Int in
                try parts.withMemoryRebound(to: iovec.self, capacity: 2) { (parts) throws(StoreError) -> Int in
                    try retrying { pwritev(descriptor.fd, parts, 2, off_t(offset)) }
                }
            }
        }
        // A slot cut short does not verify, so nothing relies on it; but then the record must not be touched.
        guard written == JournalSlot.recordOffset + record.count else { throw .system(.noSpace) }
    }

    /// Zeroes the slots' file ids and gives them back: their records are in place.
    func release(_ slots: UInt64) {
        var left = slots
        while left != 0 {
            clear(slot: left.trailingZeroBitCount)
            left &= left - 1
        }
        pool.put(slots)
    }

    private func clear(slot: Int) {
        guard let descriptor else { return }
        var zero: UInt64 = 0
        // Best effort: a slot left behind by an I/O error verifies as its record does, and is ignored.
        _ = pwrite(descriptor.fd, &zero, MemoryLayout<UInt64>.size, off_t(slot * slotSize))
    }

    /// Keeps the slots: the records could not be put in place, so the slots are the records.
    func keep(
        _ slots: UInt64, fileID: UInt64, firstChunk: UInt64, recordSize: Int, totalSize: Int
    ) {
        var left = slots
        var chunk = firstChunk
        var start = 0
        while left != 0 {
            remember(
                Address(fileID: fileID, chunk: chunk), slot: left.trailingZeroBitCount,
                recordSize: min(recordSize, totalSize - start))
            start += recordSize
            chunk += 1
            left &= left - 1
        }
    }

    /// A newer slot holds these chunks now: the older ones must go before the record is touched, lest both verify.
    private func supersede(fileID: UInt64, firstChunk: UInt64, count: Int) {
        for chunk in firstChunk..<(firstChunk + UInt64(count)) {
            forget(Address(fileID: fileID, chunk: chunk))
        }
    }

    /// Frees the slots retained for a record that is in place again.
    func forget(_ address: Address) {
        let found = retained.withLock { table in
            let found = table.removeValue(forKey: address)
            if table.isEmpty { hasRetained.store(false, ordering: .releasing) }
            return found
        }
        if let found { release(found.reduce(0) { $0 | 1 << UInt64($1.slot) }) }
    }

    /// A retained slot as it is on disk; nil where it is not retained.
    func contents(ofRetained slot: Int) throws(StoreError) -> [UInt8]? {
        guard let descriptor, let found = retainedSlot(slot) else { return nil }
        var bytes = [UInt8](repeating: 0, count: JournalSlot.recordOffset + found.slot.recordSize)
        let count = try bytes.withMutableBytes { (buffer) throws(StoreError) -> Int in
            try descriptor.read(at: UInt64(slot * slotSize), into: buffer)
        }
        return Array(bytes[..<count])
    }

    /// Frees one retained slot.
    func free(retained slot: Int) {
        guard let found = retainedSlot(slot) else { return }
        retained.withLock { table in
            table[found.address]?.removeAll { $0.slot == slot }
            if table[found.address]?.isEmpty == true { table.removeValue(forKey: found.address) }
            if table.isEmpty { hasRetained.store(false, ordering: .releasing) }
        }
        release(1 << UInt64(slot))
    }

    private func retainedSlot(_ slot: Int) -> (address: Address, slot: Retained)? {
        retained.withLock { table in
            for (address, slots) in table {
                if let found = slots.first(where: { $0.slot == slot }) { return (address, found) }
            }
            return nil
        }
    }

    /// The retained slots of one file, by chunk; a chunk's by number.
    func retainedSlots(of fileID: UInt64) -> [(address: Address, slots: [Retained])] {
        guard hasRetained.load(ordering: .acquiring) else { return [] }
        let found = retained.withLock { table in
            table.filter { $0.key.fileID == fileID }.map { (address: $0.key, slots: $0.value) }
        }
        return found.sorted { $0.address.chunk < $1.address.chunk }
    }

    /// The files that slots are retained for.
    var retainedFiles: Set<UInt64> { Set(retained.withLock { $0.keys.map(\.fileID) }) }

    /// Frees the slots of a file that is gone.
    func forget(file fileID: UInt64) {
        for (address, _) in retainedSlots(of: fileID) { forget(address) }
    }

    /// True while some slot holds a record that may be needed.
    var isHoldingRecords: Bool { hasRetained.load(ordering: .acquiring) }

    /// Reads a retained record; nil where the slot has been cut short.
    func record(in slot: Retained) throws(StoreError) -> [UInt8]? {
        guard let descriptor else { return nil }
        var bytes = [UInt8](repeating: 0, count: slot.recordSize)
        let offset = UInt64(slot.slot * slotSize + JournalSlot.recordOffset)
        let count = try bytes.withMutableBytes { (buffer) throws(StoreError) -> Int in
            try descriptor.read(at: offset, into: buffer)
        }
        return count == slot.recordSize ? bytes : nil
    }
}
