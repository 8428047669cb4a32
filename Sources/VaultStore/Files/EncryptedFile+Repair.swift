internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultFormat

extension EncryptedFile {
    /// Decrypts a chunk from the journal. Returns false if no slot has a record of it that verifies.
    func openFromJournal(
        chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let journal = try store.journalForReading()
        for (address, slots) in journal.retainedSlots(of: fileID) where address.chunk == chunk {
            for slot in slots where slot.recordSize == piece.count + ChunkLayout.recordOverhead {
                guard let record = try journal.record(in: slot) else { continue }
                if try verifies(record, chunk: chunk, into: piece, workspace) { return true }
            }
        }
        return false
    }

    private func verifies(
        _ record: [UInt8], chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        try record.withBytes { (bytes) throws(StoreError) in
            try decrypt(bytes, first: chunk, into: piece, workspace.cipher)
        } == 1
    }

    /// Puts the records that were being replaced at a crash in place. If that fails, an unsealed file at least ends
    /// where its slot says (FileFormat, The journal).
    /// - Parameter last: chunks behind it are left out.
    func recoverFromJournal(through last: UInt64 = .max) throws(StoreError) {
        let slots = store.journal.retainedSlots(of: fileID).filter { $0.address.chunk <= last }
        guard !slots.isEmpty else { return }
        let workspace = try Workspace(layout: layout)
        let before = try reader.status()
        try writing.withLock { (state) throws(StoreError) in
            for (address, slots) in slots { try recover(address, slots, &state, workspace) }
            // The records were written before the crash, so the times of then stay.
            if let writer = state.writer { try Self.restore(writer, before, nil) }
        }
    }

    private func recover(
        _ address: Journal.Address, _ slots: [Journal.Retained], _ state: inout WriteState, _ workspace: Workspace
    ) throws(StoreError) {
        if try isIntact(address.chunk, isSparse: state.header.isSparse, workspace) {
            if !store.isReadOnly { store.journal.forget(address) }
            return
        }
        for slot in slots where try use(slot, for: address, &state, workspace) { return }
    }

    /// Makes the slot's record the chunk's record. Returns false if it cannot be.
    private func use(
        _ slot: Journal.Retained, for address: Journal.Address, _ state: inout WriteState, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let n = slot.recordSize - ChunkLayout.recordOverhead
        // The length of a sealed file is authentic. A slot of another size does not belong to this state of the file.
        if state.header.isSealed, n != layout.plaintextSize(ofChunk: address.chunk, length: state.header.length) {
            return false
        }
        guard let record = try store.journal.record(in: slot),
            try verifies(record, chunk: address.chunk, into: workspace.edge.slice(..<n), workspace)
        else { return false }
        let end = layout.plaintextOffset(ofChunk: address.chunk) + UInt64(n)
        let isEnd = !state.header.isSealed && (n < layout.chunkSize || end > length)
        if !store.isReadOnly, let writer = try? writer(&state, evenIfClosed: true) {
            try changes.during { () throws(StoreError) in
                try writer.write(record, at: layout.recordOffset(ofChunk: address.chunk))
                if isEnd { try writer.truncate(to: layout.backingSize(ofPlaintextLength: end)) }
                // After a power cut the slot may be the only copy. It is freed when the record is on disk.
                try writer.synchronize(dataOnly: true)
                store.journal.forget(address)
            }
        }
        if isEnd { currentLength.store(end, ordering: .releasing) }
        return true
    }

    /// True if the record on disk, of the size that follows from the backing size, verifies or is a hole.
    private func isIntact(_ chunk: UInt64, isSparse: Bool, _ workspace: Workspace) throws(StoreError) -> Bool {
        let n = layout.plaintextSize(ofChunk: chunk, length: length)
        guard n > 0, let record = try readRecord(chunk, size: n, workspace) else { return false }
        if isSparse && record.allSatisfy({ $0 == 0 }) { return true }
        return try decrypt(record, first: chunk, into: workspace.edge.slice(..<n), workspace.cipher) == 1
    }

    // MARK: Repair

    /// Repairs a file without losing anything that authenticates, durably and keeping the times. It puts records from
    /// the journal in place and corrects the end of the file and the header's length. Chunks that do not verify stay.
    ///
    /// Opening for writing and sealing take the same steps, so that they can deal with the state that a kill leaves.
    /// - Parameter descriptor: of the backing file, open for reading. Nobody else has it open.
    /// - Throws: `.damaged` if the header does not authenticate; `.system`.
    static func repair(_ descriptor: Descriptor, in store: Store) throws(StoreError) {
        let before = try descriptor.status()
        let file = try openAnyLength(descriptor, in: store)
        try file.prepareForWriting(evenIfClosed: true)
        let writer = file.anyDescriptor
        let capability = Self.capability(of: writer)
        _ = try file.cutTornAppend()
        try file.cutRest(writer)
        _ = try file.seal(ifStill: file.lengthMark, isDurable: false)
        try Self.restore(writer, before, capability)
        try file.synchronize(dataOnly: false)
    }

    /// Copies data that verifies behind a sealed length to a file in `lost+found`. A header that is older than the data,
    /// restored by a person or by a disk, has a former length. Called before anything that opens the file can cut it.
    static func keepTail(
        of descriptor: Descriptor, in store: Store, _ lostAndFound: () throws(StoreError) -> LostAndFound
    ) throws(StoreError) {
        let file = try EncryptedFile(descriptor, in: store)
        let header = file.writing.withLock { $0.header }
        guard header.isSealed && file.length > header.length else { return }
        let tail = try FileTail(of: file, from: header.length)
        guard try tail.exists() else { return }
        let name = LostObject.digits(of: header.fileID) + ".tail"
        try lostAndFound().makeFile(Array(name.utf8)) { (copy) throws(StoreError) in try tail.copy(to: copy) }
    }

    /// Opens a file that may be shorter than its sealed header says. Such a file is sealed at the length that is left.
    private static func openAnyLength(_ descriptor: Descriptor, in store: Store) throws(StoreError) -> EncryptedFile {
        let layout = store.layout
        let rest = try EncryptedFile(descriptor, in: store)
        guard let sealed = rest.missedLength else { return try open(descriptor, in: store) }
        // The journal may have the record in which the file was cut. A later record would leave a gap before it, and in
        // a sparse file a gap reads as zeros.
        try rest.recoverFromJournal(through: layout.chunkIndex(ofPlaintextOffset: rest.length))
        let left = layout.plaintextLength(ofBackingSize: UInt64(clamping: try descriptor.status().st_size))
        if left < sealed { try rest.sealRest(left) }
        return try open(descriptor, in: store)
    }

    private func sealRest(_ length: UInt64) throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state, evenIfClosed: true)
            // The file's size must be on disk before the header that authenticates it.
            try writer.synchronize(dataOnly: false)
            try writeHeader(&state, writer) { $0.length = length }
        }
    }

    /// Cuts off bytes behind the last record that are too few for another.
    private func cutRest(_ writer: Descriptor) throws(StoreError) {
        try writing.withLock { (_) throws(StoreError) in
            let end = layout.backingSize(ofPlaintextLength: length)
            if UInt64(clamping: try writer.status().st_size) > end { try writer.truncate(to: end) }
        }
    }
}
