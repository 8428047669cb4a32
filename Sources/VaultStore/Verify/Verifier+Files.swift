internal import Glibc
internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// A file whose chunks are being checked.
struct VerifierContent {
    let object: VerifierObject
    let descriptor: Descriptor
    let header: FileHeader
    let keys: FileKeys
    /// The size that the file has once the journal's records are in place.
    var backingSize: UInt64
    /// The chunks whose record is in the journal, and the number of its slot.
    var journaled: [UInt64: Int] = [:]
    /// Adjacent chunks that do not verify. They make one finding.
    var run: (chunks: Range<UInt64>, reason: String)?
    /// True if the file is unsealed, and its last record neither verifies nor can be cut off.
    var endsUnproven = false
}

extension Verifier {
    /// Checks a regular file: header, attributes, length, chunks.
    func checkFile(_ object: VerifierObject, _ pin: Descriptor) {
        do throws(StoreError) {
            if isCompleted, object.isNamed, try Completion.isIncomplete(pin) {
                return report(
                    .incomplete, object, "no header: a mount completes it as an empty file", remedy: .complete)
            }
            let descriptor = try pin.reopened(flags: O_RDONLY | O_NONBLOCK)
            let (header, fileKeys, backingSize) = try readHeader(of: descriptor)
            checkAttributes(of: descriptor, key: fileKeys.attributeKey, object)
            var content = VerifierContent(
                object: object, descriptor: descriptor, header: header, keys: fileKeys, backingSize: backingSize)
            try applyJournal(to: &content)
            try checkChunks(of: &content, upTo: checkLength(of: content))
            if !header.isSealed {
                report(
                    .unsealed, object, "not sealed: nothing vouches for its length",
                    remedy: content.endsUnproven ? nil : .seal)
            }
        } catch {
            if case .damaged = error { giveUpSlots(of: pin) }
            report(error, object, "file")
        }
    }

    private func readHeader(of descriptor: Descriptor) throws(StoreError) -> (FileHeader, FileKeys, UInt64) {
        do throws(StoreError) {
            let found = try EncryptedFile.readHeader(of: descriptor, keyRing: keyRing)
            keys.opened += 1
            return found
        } catch {
            keys.count(unopened: (try? EncryptedFile.start(of: descriptor)) ?? [], keyRing.epochs)
            throw error
        }
    }

    /// Reports a wrong length. Returns the number of chunks that can be checked.
    private func checkLength(of content: VerifierContent) -> UInt64 {
        let length = layout.plaintextLength(ofBackingSize: content.backingSize)
        let excess = content.backingSize - layout.backingSize(ofPlaintextLength: length)
        if excess > 0 {
            report(
                .leftover, content.object, "\(excess) bytes behind the last record count for nothing",
                remedy: .cutRest)
        }
        guard content.header.isSealed, content.header.length != length else {
            return layout.chunkCount(ofLength: length)
        }
        let sealed = content.header.length
        let message = "length: sealed at \(sealed) bytes, \(length) are there"
        if length > sealed {
            report(.damaged, content.object, message, at: sealed, count: length - sealed, remedy: .cutBack)
            return layout.chunkCount(ofLength: sealed)
        }
        // The chunk at the cut is lost as well.
        let whole = layout.chunkIndex(ofPlaintextOffset: length)
        let lost = layout.plaintextOffset(ofChunk: whole)
        report(.damaged, content.object, message, at: lost, count: sealed - lost, remedy: .sealRest)
        return whole
    }

    /// Finds the slots that hold this file's records. They set the end of an unsealed file (FileFormat, Journal).
    private func applyJournal(to content: inout VerifierContent) throws(StoreError) {
        guard let journal else { return }
        for slot in journal.slots where slot.fileID == content.header.fileID {
            slot.note(try judge(slot, of: journal, &content))
        }
    }

    /// Marks the slots of a file whose header is damaged: their records cannot be verified any more.
    private func giveUpSlots(of pin: Descriptor) {
        guard let journal, !journal.slots.isEmpty,
            let descriptor = try? pin.reopened(flags: O_RDONLY | O_NONBLOCK),
            let fileID = try? EncryptedFile.unprovenFileID(of: descriptor)
        else { return }
        for slot in journal.slots where slot.fileID == fileID { slot.note(.useless) }
    }

    private func judge(
        _ slot: VerifierJournal.Slot, of journal: VerifierJournal, _ content: inout VerifierContent
    ) throws(StoreError) -> VerifierJournal.Slot.State {
        if try recordVerifies(slot.chunk, of: content) { return .inPlace }
        if content.header.isSealed {
            let due = layout.plaintextSize(ofChunk: slot.chunk, length: content.header.length)
            guard slot.recordSize == due + ChunkLayout.recordOverhead else { return .useless }
        }
        guard content.journaled[slot.chunk] == nil, let record = try journal.record(in: slot),
            try verifies(record, chunk: slot.chunk, keys: content.keys)
        else { return .useless }
        content.journaled[slot.chunk] = slot.number
        if !content.header.isSealed {
            content.backingSize = JournalSlot.recoveredBackingSize(
                content.backingSize, chunkIndex: slot.chunk, recordSize: slot.recordSize, layout: layout)
        }
        report(
            .journaled, content.object, "chunk \(slot.chunk): the journal's slot \(slot.number) holds its record",
            at: layout.plaintextOffset(ofChunk: slot.chunk),
            count: UInt64(slot.recordSize - ChunkLayout.recordOverhead), remedy: .recover)
        return .honoured
    }

    /// Returns true if the record on disk verifies, or is a hole. The backing size determines its place.
    private func recordVerifies(_ chunk: UInt64, of content: VerifierContent) throws(StoreError) -> Bool {
        let length = layout.plaintextLength(ofBackingSize: content.backingSize)
        let n = layout.plaintextSize(ofChunk: chunk, length: length)
        guard n > 0 else { return false }
        let size = n + ChunkLayout.recordOverhead
        let record = try content.descriptor.read(at: layout.recordOffset(ofChunk: chunk), count: size)
        guard record.count == size else { return false }
        if content.header.isSparse && record.allSatisfy({ $0 == 0 }) { return true }
        return try verifies(record, chunk: chunk, keys: content.keys)
    }

    private func verifies(_ record: [UInt8], chunk: UInt64, keys: FileKeys) throws(StoreError) -> Bool {
        try record.withBytes { (bytes) throws(StoreError) in try verifies(bytes, chunk: chunk, keys: keys) }
    }

    /// Returns true if the tag of one record verifies.
    func verifies(_ record: UnsafeRawBufferPointer, chunk: UInt64, keys: FileKeys) throws(StoreError) -> Bool {
        let piece = workspace.edge.slice(..<(record.count - ChunkLayout.recordOverhead))
        return try StoreError.ofCrypto { () throws(CryptoError) in
            try workspace.cipher.decrypt(
                record, firstChunkIndex: chunk, chunkSize: layout.chunkSize, keys: keys.chunk, into: piece) == 1
        }
    }
}
