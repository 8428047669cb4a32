internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

extension EncryptedFile {
    /// A gap of at least this many bytes past the end becomes a hole. A smaller one is written as encrypted zeros.
    private static let smallestHole: UInt64 = 1 << 20
    /// Leaves room for the records' overhead in a 64-bit file size.
    static let largestLength = UInt64(Int64.max) / 2
    /// The unit in which the kernel copies written data.
    static let pageSize: UInt64 = 4096
    private static let zeros = [UInt8](repeating: 0, count: 128 << 10)

    /// ftruncate(2): sets the plaintext length.
    package func setLength(_ newLength: UInt64, workspace: Workspace) throws(StoreError) {
        guard newLength <= Self.largestLength else { throw .system(.fileTooLarge) }
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state)
            if newLength > length {
                try extend(&state, writer, to: newLength, workspace)
            } else if newLength < length || newLength == 0 {
                try shrink(&state, writer, to: newLength, workspace)
            } else {
                // POSIX: the times change even then.
                try writer.truncate(to: layout.backingSize(ofPlaintextLength: length))
            }
        }
    }

    /// Truncates the file to nothing, whatever its length and chunks are.
    func removeContent() throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state)
            try removeContent(&state, writer)
        }
    }

    /// Unseals the header before the chunks are removed. A daemon killed in between leaves an empty file and never one
    /// without a header, and a full disk cannot destroy the header.
    private func removeContent(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        try unseal(&state, writer)
        try changes.during { () throws(StoreError) in
            try writer.truncate(to: UInt64(ChunkLayout.headerSize))
            for (address, _) in store.journal.retainedSlots(of: fileID) { store.journal.forget(address) }
            setLength(&state, 0)
            state.lastRecordIsUnproven = false
            store.cache.removeAll(file: token)
            if state.header.isSparse {
                // Without chunks there are no holes. From now on a zeroed chunk is an error again.
                try writeHeader(&state, writer) { $0.isSparse = false }
                isSparse.store(false, ordering: .releasing)
            }
        }
    }

    /// Extends the file with zeros. The caller holds the write lock.
    func extend(
        _ state: inout WriteState, _ writer: Descriptor, to newLength: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        let oldLength = length
        guard newLength - oldLength >= Self.smallestHole else {
            return try writeZeros(&state, writer, oldLength..<newLength, workspace)
        }
        try markSparse(&state, writer)
        try unseal(&state, writer)
        let chunkSize = UInt64(layout.chunkSize)
        let chunkEnd = (oldLength + chunkSize - 1) / chunkSize * chunkSize
        // The last record must become a whole one, with its zeros encrypted, before records can follow it.
        try writeZeros(&state, writer, oldLength..<chunkEnd, workspace)
        do throws(StoreError) {
            try changes.during { () throws(StoreError) in
                // A torn fragment behind the last record must not become part of the hole.
                try writer.truncate(to: layout.backingSize(ofPlaintextLength: length))
                try writer.truncate(to: layout.backingSize(ofPlaintextLength: newLength))
                setLength(&state, newLength)
            }
        } catch {
            if length > oldLength { try? shrink(&state, writer, to: oldLength, workspace) }
            throw error
        }
    }

    /// Writes encrypted zeros over a range that begins at or before the end. The caller holds the write lock.
    func writeZeros(
        _ state: inout WriteState, _ writer: Descriptor, _ range: Range<UInt64>, _ workspace: Workspace
    ) throws(StoreError) {
        let oldLength = length
        var position = range.lowerBound
        while position < range.upperBound {
            let count = Int(min(UInt64(Self.zeros.count), range.upperBound - position))
            do throws(StoreError) {
                position += UInt64(
                    try Self.zeros.withBytes { (zeros) throws(StoreError) -> Int in
                        try writeChunks(&state, writer, zeros.slice(..<count), at: position, workspace)
                    })
            } catch {
                // All or nothing: a file that could not be extended keeps its length.
                if length > oldLength { try? shrink(&state, writer, to: oldLength, workspace) }
                throw error
            }
        }
    }

    /// Cuts the file to a shorter length.
    func shrink(
        _ state: inout WriteState, _ writer: Descriptor, to newLength: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        if newLength == 0 { return try removeContent(&state, writer) }
        let rest = try readRest(of: newLength, state.header.isSparse, workspace)
        if state.header.isSealed {
            // Else a power cut could leave the sealed header with the shorter file, which readers take for damage.
            try unseal(&state, writer)
            try writer.synchronize(dataOnly: true)
        }
        try cut(&state, writer, to: newLength, rest, workspace)
    }

    /// Reads the part of the last chunk that a cut to `newLength` leaves, unless that needs no new record.
    private func readRest(
        of newLength: UInt64, _ isSparse: Bool, _ workspace: Workspace
    ) throws(StoreError) -> UnsafeRawBufferPointer? {
        let last = layout.chunkIndex(ofPlaintextOffset: newLength)
        let piece = workspace.assembly.slice(..<Int(newLength % UInt64(layout.chunkSize)))
        if piece.isEmpty { return nil }
        if try isHole(last, isSparse, workspace) { return nil }
        try readChunk(last, into: piece, workspace)
        return UnsafeRawBufferPointer(piece)
    }

    /// Puts the shortened last record in place, then cuts the file behind it.
    private func cut(
        _ state: inout WriteState, _ writer: Descriptor, to newLength: UInt64, _ rest: UnsafeRawBufferPointer?,
        _ workspace: Workspace
    ) throws(StoreError) {
        let last = layout.chunkIndex(ofPlaintextOffset: newLength)
        var slots: UInt64 = 0
        var record: UnsafeRawBufferPointer?
        if let rest {
            let encrypted = try encrypt(rest, first: last, chunks: 1, workspace)
            slots = try store.journal.write(
                fileID: fileID, firstChunk: last, records: encrypted, recordSize: encrypted.count, count: 1)
            record = encrypted
        }
        try changes.during { () throws(StoreError) in
            do throws(StoreError) {
                if let record { try writer.write(record, at: layout.recordOffset(ofChunk: last)) }
                try writer.truncate(to: layout.backingSize(ofPlaintextLength: newLength))
            } catch {
                if let record {
                    store.journal.keep(
                        slots, fileID: fileID, firstChunk: last, recordSize: record.count, totalSize: record.count)
                    setLength(&state, newLength)
                    store.cache.removeAll(file: token, from: last)
                }
                throw error
            }
            store.journal.release(slots)
            for (address, _) in store.journal.retainedSlots(of: fileID) where address.chunk >= last {
                // Records that were cut off, or have just been put in place.
                store.journal.forget(address)
            }
            noteCut(&state, to: newLength, last)
        }
    }

    private func noteCut(_ state: inout WriteState, to newLength: UInt64, _ last: UInt64) {
        setLength(&state, newLength)
        state.lastRecordIsUnproven = false
        store.cache.removeAll(file: token, from: last)
    }

    /// True if the file is sparse and the chunk's record is all zero. Such a record can be cut without a new one.
    func isHole(_ chunk: UInt64, _ isSparse: Bool, _ workspace: Workspace) throws(StoreError) -> Bool {
        guard isSparse else { return false }
        let n = layout.plaintextSize(ofChunk: chunk, length: length)
        return try readRecord(chunk, size: n, workspace)?.allSatisfy { $0 == 0 } ?? false
    }

    /// Cuts off a last record that a killed daemon was appending. Else nothing could be appended to the file again.
    ///
    /// SIGKILL stops a write between pages. So the file ends at a page, its header is unsealed, and its last record does
    /// not verify and is not in the journal. No byte of that record was acknowledged. (A person who makes a file look
    /// so has cut it at a chunk boundary, which an unsealed file cannot show in any case.) Any other last record that
    /// does not verify stays an error. Returns true if the file was cut.
    package func cutTornAppend() throws(StoreError) -> Bool {
        try writing.withLock { (state) throws(StoreError) -> Bool in
            guard state.lastRecordIsUnproven, !state.header.isSealed, length > 0 else { return false }
            let writer = try writer(&state)
            let last = layout.chunkIndex(ofPlaintextOffset: length - 1)
            if try lastRecordVerifies(state.header.isSparse) {
                state.lastRecordIsUnproven = false
                return false
            }
            guard UInt64(clamping: try writer.status().st_size) % Self.pageSize == 0 else { return false }
            try changes.during { () throws(StoreError) in
                try writer.truncate(to: layout.recordOffset(ofChunk: last))
                noteCut(&state, to: layout.plaintextOffset(ofChunk: last), last)
            }
            return true
        }
    }

    /// Cuts a file that is longer than its sealed header says back to the sealed length.
    func cutBack(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        let workspace = try Workspace(layout: layout)
        let sealedLength = state.header.length
        let last = layout.chunkIndex(ofPlaintextOffset: sealedLength)
        let n = Int(sealedLength % UInt64(layout.chunkSize))
        var rest: UnsafeRawBufferPointer?
        if n > 0, try !openStored(last, into: workspace.edge.slice(..<n), workspace) {
            // A record that does not verify is not replaced. Reading it stays an error.
            do throws(StoreError) {
                rest = try readRest(of: sealedLength, state.header.isSparse, workspace)
            } catch .damaged {}
        }
        try cut(&state, writer, to: sealedLength, rest, workspace)
        currentAuthenticLength.store(.max, ordering: .releasing)
    }
}
