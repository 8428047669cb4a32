internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension EncryptedFile {
    /// Decrypts a chunk from the slot that holds its record, where there is one that verifies.
    func openFromJournal(
        chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let journal = try store.journalForReading()
        for (address, slots) in journal.retainedSlots(of: fileID) where address.chunk == chunk {
            for slot in slots where slot.recordSize == piece.count + ChunkLayout.recordOverhead {
                guard let record = try journal.record(in: slot) else { continue }
                if try verifies(record, chunk: chunk, into: piece, workspace.cipher) { return true }
            }
        }
        return false
    }

    private func verifies(
        _ record: [UInt8], chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, _ cipher: ChunkCipher
    ) throws(StoreError) -> Bool {
        do {
            return try record.withBytes { (bytes) throws(CryptoError) -> Int in
                try cipher.open(
                    bytes, firstChunkIndex: chunk, chunkSize: layout.chunkSize, keys: keys.chunk, into: piece)
            } == 1
        } catch { throw StoreError(error) }
    }

    /// After a crash: puts the records that were being replaced in place, or, where that cannot be done, at least
    /// lets an unsealed file end where its slot says (FileFormat.md, "The journal").
    /// - Parameter last: the last chunk of which that is done.
    func recoverFromJournal(through last: UInt64 = .max) throws(StoreError) {
        let slots = store.journal.retainedSlots(of: fileID).filter { $0.address.chunk <= last }
        guard !slots.isEmpty else { return }
        let cipher: ChunkCipher
        do { cipher = try ChunkCipher() } catch { throw StoreError(error) }
        let before = try reader.status()
        try writing.withLock { (state) throws(StoreError) in
            for (address, slots) in slots { try recover(address, slots, &state, cipher) }
            // What is put in place was written before: the times are those of then.
            if let writer = state.writer { try Self.restore(writer, before, nil) }
        }
    }

    private func recover(
        _ address: Journal.Address, _ slots: [Journal.Retained], _ state: inout WriteState, _ cipher: ChunkCipher
    ) throws(StoreError) {
        let plaintext = UnsafeMutableRawBufferPointer.allocate(byteCount: layout.chunkSize, alignment: 16)
        defer {
            // The buffer is freed to the heap with nothing in it.
            plaintext.initializeMemory(as: UInt8.self, repeating: 0)
            plaintext.deallocate()
        }
        if try diskVerifies(address.chunk, plaintext, cipher, isSparse: state.header.isSparse) {
            if !store.isReadOnly { store.journal.forget(address) }
            return
        }
        for slot in slots where try use(slot, for: address, &state, plaintext, cipher) { return }
    }

    /// Makes the slot's record the record; false where it cannot be.
    private func use(
        _ slot: Journal.Retained, for address: Journal.Address, _ state: inout WriteState,
        _ plaintext: UnsafeMutableRawBufferPointer, _ cipher: ChunkCipher
    ) throws(StoreError) -> Bool {
        let n = slot.recordSize - ChunkLayout.recordOverhead
        // The length of a sealed file is vouched for: a slot of another size is not of this state of the file.
        if state.header.isSealed, n != layout.plaintextSize(ofChunk: address.chunk, length: state.header.length) {
            return false
        }
        let piece = UnsafeMutableRawBufferPointer(rebasing: plaintext[..<n])
        guard let record = try store.journal.record(in: slot),
            try verifies(record, chunk: address.chunk, into: piece, cipher)
        else { return false }
        let end = layout.plaintextOffset(ofChunk: address.chunk) + UInt64(n)
        let isEnd = !state.header.isSealed && (n < layout.chunkSize || end > length)
        if !store.isReadOnly, let writer = try? writer(&state, evenIfClosed: true) {
            changes.beginChange()
            defer { changes.endChange() }
            try record.withBytes { (bytes) throws(StoreError) in
                try writer.write(bytes, at: layout.recordOffset(ofChunk: address.chunk))
            }
            if isEnd { try writer.truncate(to: layout.backingSize(ofPlaintextLength: end)) }
            // After a power cut the slot may be all there is: it goes when the record is on disk.
            try writer.synchronize(dataOnly: true)
            store.journal.forget(address)
        }
        if isEnd { currentLength.store(end, ordering: .releasing) }
        return true
    }

    /// True where the record on disk verifies, or is a hole, as the backing size lays it out.
    private func diskVerifies(
        _ chunk: UInt64, _ plaintext: UnsafeMutableRawBufferPointer, _ cipher: ChunkCipher, isSparse: Bool
    ) throws(StoreError) -> Bool {
        let n = layout.plaintextSize(ofChunk: chunk, length: length)
        guard n > 0 else { return false }
        var record = [UInt8](repeating: 0, count: n + ChunkLayout.recordOverhead)
        let had = try record.withMutableBytes { (bytes) throws(StoreError) -> Int in
            try reader.read(at: layout.recordOffset(ofChunk: chunk), into: bytes)
        }
        guard had == record.count else { return false }
        if isSparse && record.allSatisfy({ $0 == 0 }) { return true }
        return try verifies(
            record, chunk: chunk, into: UnsafeMutableRawBufferPointer(rebasing: plaintext[..<n]), cipher)
    }
}
