internal import Glibc
internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// A file whose chunks are being checked.
struct VerifierContent {
    let object: VerifierObject
    let descriptor: Descriptor
    var header: FileHeader
    let keys: FileKeys
    /// The size that the file has once the log's changes are in place.
    var backingSize: UInt64
    var logged: FileLog.Content?
    /// True if the file's torn tail was reported.
    var isTorn = false
    /// Adjacent chunks that do not verify. They make one finding.
    var run: (chunks: Range<UInt64>, reason: String)?
}

extension Verifier {
    /// Checks a regular file: header, attributes, length, chunks.
    func checkFile(_ object: VerifierObject, _ pin: Descriptor) {
        do throws(StoreError) {
            if isCompleted, object.isNamed, !isInConflictCopy(object), try Completion.isIncomplete(pin) {
                return report(
                    .incomplete, object, "no header: a mount completes it as an empty file", remedy: .complete)
            }
            let descriptor = try pin.reopened(flags: O_RDONLY | O_NONBLOCK)
            let (header, fileKeys, backingSize) = try readHeader(of: descriptor)
            checkAttributes(of: descriptor, key: fileKeys.attributeKey, object)
            var content = VerifierContent(
                object: object, descriptor: descriptor, header: header, keys: fileKeys, backingSize: backingSize)
            applyLog(to: &content)
            try checkChunks(of: &content, upTo: checkLength(of: content))
            if !header.isSealed {
                report(
                    .unsealed, object,
                    "its length cannot be checked yet: open it for writing and close it in a mount, or run "
                        + "'verify --repair'", remedy: .seal)
            }
        } catch {
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
            if let fileID = try? EncryptedFile.unprovenFileID(of: descriptor), logged(fileID) != nil {
                hasLostChanges = true
            }
            throw error
        }
    }

    /// Reports a wrong length. Returns the number of chunks that can be checked.
    private func checkLength(of content: VerifierContent) -> UInt64 {
        let length = layout.plaintextLength(ofBackingSize: content.backingSize)
        let excess = content.backingSize - layout.backingSize(ofPlaintextLength: length)
        if excess > 0 {
            report(
                .leftover, content.object, "\(excess) bytes past the last chunk hold no data",
                remedy: .cutRest)
        }
        guard content.header.isSealed, content.header.length != length else {
            return layout.chunkCount(ofLength: length)
        }
        let sealed = content.header.length
        let message = EncryptedFile.wrongLength(length, expected: sealed)
        if length > sealed {
            let isTail = isCompleted || isInConflictCopy(content.object)
            report(
                isTail ? .tornTail : .damaged, content.object,
                isTail ? message + "; a mount ends the file there" : message, at: sealed, count: length - sealed,
                remedy: .cutBack)
            return layout.chunkCount(ofLength: sealed)
        }
        // The chunk at the cut is lost as well.
        let whole = layout.chunkIndex(ofPlaintextOffset: length)
        let lost = layout.plaintextOffset(ofChunk: whole)
        report(.damaged, content.object, message, at: lost, count: sealed - lost, remedy: .sealRest)
        return whole
    }

    /// Takes the log's changes of this file into account.
    private func applyLog(to content: inout VerifierContent) {
        guard !isInConflictCopy(content.object), let logged = logged(content.header.fileID) else { return }
        let changes = logged.changes
        if changes.outdated(content.header.sealCounter) > 0 { hasOutdatedEntries = true }
        if changes.sealCounter < content.header.sealCounter { return }
        content.logged = logged
        let length = changes.length(content.backingSize, layout)
        if length != layout.plaintextLength(ofBackingSize: content.backingSize) || changes.exactLength != nil {
            content.backingSize = layout.backingSize(ofPlaintextLength: length)
        }
        if changes.unseal(content.header, layout) { content.header.isSealed = false }
        if !changes.holes.isEmpty { content.header.isSparse = true }
        let count = changes.records.count
        let chunks =
            count == 1
            ? "1 chunk is in vaultfs.log; a mount puts it"
            : "\(count) chunks are in vaultfs.log; a mount puts them"
        report(.logged, content.object, "\(chunks) in place", remedy: .recover)
    }

    /// Returns true if the tag of one record verifies.
    func verifies(_ record: UnsafeRawBufferPointer, chunk: UInt64, keys: FileKeys) throws(StoreError) -> Bool {
        let piece = workspace.edge.slice(..<(record.count - ChunkLayout.recordOverhead))
        return try StoreError.ofCrypto(
            workspace.cipher.decrypt(
                record, firstChunkIndex: chunk, chunkSize: layout.chunkSize, keys: keys.chunk, into: piece)) == 1
    }
}
