internal import FileSystem
internal import LinuxSystem
internal import Synchronization
internal import VaultCrypto
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
}
