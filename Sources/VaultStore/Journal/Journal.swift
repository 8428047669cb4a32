internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// `vaultfs.journal`: holds the new bytes of records while they replace the old ones in place (FileFormat, The journal).
/// Written with pwrite(2). Like a mapping, the page cache outlives the daemon, but a file that somebody cuts short
/// cannot kill the daemon with SIGBUS. Any thread.
package final class Journal: Sendable {
    /// One chunk of one file.
    struct Address: Hashable {
        var fileID, chunk: UInt64
    }

    /// A slot that had a record at mount, or that has the only good copy of one.
    struct Retained {
        var slot, recordSize: Int
    }

    static let entry = Array("vaultfs.journal".utf8)
    let descriptor: Descriptor?
    /// The reason why an existing journal is not read.
    private let fault: String?
    private let isReadOnly: Bool
    private let chunkSize: Int
    private let pool = SlotPool()
    let retained = Mutex<[Address: [Retained]]>([:])
    /// Called once, when a write was refused because no slot was free.
    let onExhausted = Mutex<(@Sendable (String) -> Void)?>(nil)
    /// Saves a look at the table, which is empty except after a crash.
    private let hasRetained = Atomic<Bool>(false)

    var slotSize: Int { JournalSlot.size(chunkSize: chunkSize) }

    /// A journal that holds nothing.
    init(emptyWithChunkSize chunkSize: Int) {
        self.chunkSize = chunkSize
        (descriptor, fault, isReadOnly) = (nil, nil, true)
    }

    /// Opens the journal in the vault's root and notes the slots in use. A writer also makes and preallocates it.
    /// Anything of its name that is not a regular file is not opened. A reader then continues without a journal.
    /// - Throws: `.damaged` in that case, for a writer.
    init(root: Descriptor, chunkSize: Int, isReadOnly: Bool) throws(StoreError) {
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
        // A journal made by root's mount must not lock out the vault's owner.
        if !isReadOnly { try descriptor.giveToOwner(of: root) }
        if !isReadOnly && linux_fallocate(descriptor.fd, 0, 0, Int64(size)) != 0 {
            // The store is full, or has no fallocate(2). Slots are then allocated when they are written.
        }
        try findSlotsInUse(descriptor)
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
        // One record can have two slots, if the daemon died while it wrote the newer one. Their tags show which is valid.
        pool.retain(1 << UInt64(slot))
        retained.withLock { table in
            table[address, default: []].append(Retained(slot: slot, recordSize: recordSize))
            hasRetained.store(true, ordering: .releasing)
        }
    }

    /// Maximum number of records that one batch may replace.
    func batchLimit() throws(StoreError) -> Int {
        let reach = pool.reach
        guard reach > 0 else { throw exhausted() }
        return reach
    }

    private func exhausted() -> StoreError {
        let text = problem ?? "vaultfs.journal: too many of its slots hold records"
        // Only once, because programs try again.
        onExhausted.withLock { $0.take() }?(text)
        return .damaged(text)
    }

    /// The reason why the journal does not work, as text for the user. Nil if it does.
    var problem: String? {
        if let fault { return fault }
        // A reader reads the records from their slots.
        guard isHoldingRecords, !isReadOnly else { return nil }
        let count = JournalSlot.count - pool.reach
        return "vaultfs.journal: \(count) of \(JournalSlot.count) slots hold records that could not be put in place"
            + (count == JournalSlot.count ? ", and nothing can be overwritten" : "")
            + "; unmount, then 'vaultfs verify --repair' frees them"
    }

    /// Writes the new records of consecutive chunks to slots. Returns the slots, which are in the chunks' order by number.
    /// - Parameter records: `count` adjacent records, all of `recordSize` bytes except for the last.
    func write(
        fileID: UInt64, firstChunk: UInt64, records: UnsafeRawBufferPointer, recordSize: Int, count: Int
    ) throws(StoreError) -> UInt64 {
        guard let descriptor else { throw .system(.readOnlyFileSystem) }
        let slots = pool.take(count)
        if slots.nonzeroBitCount < count {
            // Slots were retained since `batchLimit`. Do not wait for others while some are taken.
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
            let record = records.slice(start..<end)
            try Self.writeSlot(descriptor, at: UInt64(slot * slotSize), fileID: fileID, chunk: chunk, record: record)
            left &= left - 1
            chunk += 1
            start = end
        }
    }

    /// Writes file id, chunk, size and record with one pwritev(2).
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
        // A slot that was cut short does not verify, so nothing relies on it. The record must not be replaced then.
        guard written == JournalSlot.recordOffset + record.count else { throw .system(.noSpace) }
    }

    /// Zeroes the slots' file ids and frees them, because their records are in place.
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
        // Best effort: a slot left by an I/O error verifies like its record, and is ignored.
        _ = pwrite(descriptor.fd, &zero, MemoryLayout<UInt64>.size, off_t(slot * slotSize))
    }

    /// Retains the slots of records that could not be put in place. The slots are the records from now on.
    func keep(_ slots: UInt64, fileID: UInt64, firstChunk: UInt64, recordSize: Int, totalSize: Int) {
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

    /// Frees older slots of chunks that have a newer one, before the record is replaced. Else both would verify.
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

    /// The content of a retained slot. Nil if it is not retained.
    func contents(ofRetained slot: Int) throws(StoreError) -> [UInt8]? {
        guard let descriptor, let found = retainedSlot(slot) else { return nil }
        return try descriptor.read(at: UInt64(slot * slotSize), count: JournalSlot.recordOffset + found.slot.recordSize)
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

    /// The retained slots of one file, in the order of chunks and slot numbers.
    func retainedSlots(of fileID: UInt64) -> [(address: Address, slots: [Retained])] {
        guard hasRetained.load(ordering: .acquiring) else { return [] }
        let found = retained.withLock { table in
            table.filter { $0.key.fileID == fileID }.map { (address: $0.key, slots: $0.value) }
        }
        return found.sorted { $0.address.chunk < $1.address.chunk }
    }

    /// The files with retained slots.
    var retainedFiles: Set<UInt64> { Set(retained.withLock { $0.keys.map(\.fileID) }) }

    /// Frees the slots of a file that no longer exists.
    func forget(file fileID: UInt64) {
        for (address, _) in retainedSlots(of: fileID) { forget(address) }
    }

    /// True while a slot has a record that may be needed.
    var isHoldingRecords: Bool { hasRetained.load(ordering: .acquiring) }

    /// Reads a retained record. Nil if the slot has been cut short.
    func record(in slot: Retained) throws(StoreError) -> [UInt8]? {
        guard let descriptor else { return nil }
        let bytes = try descriptor.read(
            at: UInt64(slot.slot * slotSize + JournalSlot.recordOffset), count: slot.recordSize)
        return bytes.count == slot.recordSize ? bytes : nil
    }

    /// Zeroes every slot that is not retained, durably. A freed slot loses only its file id and keeps the ciphertext.
    /// Called while nobody else writes. Does nothing to a journal that is read-only.
    func wipeFreeSlots() throws(StoreError) {
        guard let descriptor else { return }
        let kept = retained.withLock { Set($0.values.joined().map(\.slot)) }
        for slot in 0..<JournalSlot.count where !kept.contains(slot) {
            let offset = UInt64(slot * slotSize)
            let bytes = try descriptor.read(at: offset, count: slotSize)
            // A hole stays one, because there may be no space for it.
            guard bytes.contains(where: { $0 != 0 }) else { continue }
            try descriptor.write([UInt8](repeating: 0, count: bytes.count), at: offset)
        }
        try descriptor.synchronize(dataOnly: true)
    }
}

extension Journal {
    /// Opens the file for reading. Nil if it is absent.
    private static func openToRead(_ root: Descriptor) throws(StoreError) -> Descriptor? {
        do throws(StoreError) {
            // Pin it first, because opening a device can have effects, and opening a FIFO waits.
            let pin = try Descriptor(at: root.fd, entry, flags: linux_O_PATH)
            let status = try pin.status()
            if status.st_mode & S_IFMT != S_IFREG, let fault = fault(of: status) {
                throw StoreError.damaged("vaultfs.journal is \(fault), and is not used")
            }
            return try pin.reopened(flags: O_RDONLY)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    private static func openToWrite(_ root: Descriptor) throws(StoreError) -> Descriptor {
        do throws(StoreError) {
            let pin = try Descriptor(at: root.fd, entry, flags: linux_O_PATH)
            if let fault = fault(of: try pin.status()) {
                throw StoreError.damaged(
                    "vaultfs.journal is \(fault), so the vault is not written: 'vaultfs verify --repair' corrects that; "
                        + "until then it can be mounted with -o ro")
            }
            return try pin.reopened(flags: O_RDWR)
        } catch .system(.noSuchFileOrDirectory) {
            return try Descriptor(at: root.fd, entry, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        }
    }

    /// The reason why a file of the journal's name cannot be used. Nil for a regular file with one name.
    static func fault(of status: stat) -> String? {
        switch status.st_mode & S_IFMT {
        case S_IFREG: status.st_nlink == 1 ? nil : "a file with \(status.st_nlink) names"
        case S_IFDIR: "a directory"
        case S_IFLNK: "a symbolic link"
        case S_IFIFO: "a fifo"
        case S_IFSOCK: "a socket"
        default: "a device"
        }
    }
}

/// The free slots of the journal's 64, as bits. Any thread.
final class SlotPool: Sendable {
    private struct State {
        var free: UInt64 = .max
        var retained: UInt64 = 0
        var reach: Int { 64 - retained.nonzeroBitCount }
    }

    private let state = Monitor(State())

    /// Number of slots that are not retained. A batch can get as many.
    var reach: Int { state.access { $0.reach } }

    /// Takes `count` slots and waits for them. They are adjacent if there is such a run. Takes fewer only if so many
    /// slots are retained that there can never be `count`.
    func take(_ count: Int) -> UInt64 {
        state.wait { state in
            let wanted = min(count, state.reach)
            guard state.free.nonzeroBitCount >= wanted else { return nil }
            let slots = Self.pick(wanted, from: state.free)
            state.free &= ~slots
            return slots
        }
    }

    func put(_ slots: UInt64) {
        state.update { state in
            state.free |= slots
            state.retained &= ~slots
        }
    }

    /// Marks slots as holding the only good copy of a record.
    func retain(_ slots: UInt64) {
        state.update { state in
            state.free &= ~slots
            state.retained |= slots
        }
    }

    private static func pick(_ count: Int, from free: UInt64) -> UInt64 {
        let run: UInt64 = count == 64 ? .max : (1 << UInt64(count)) - 1
        for start in 0...(64 - count) where free & (run << UInt64(start)) == run << UInt64(start) {
            return run << UInt64(start)
        }
        var result: UInt64 = 0
        var left = free
        for _ in 0..<count {
            result |= left & (~left &+ 1)
            left &= left &- 1
        }
        return result
    }
}
