internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension EncryptedFile {
    /// A gap of this many bytes past the end becomes a hole; a smaller one is written as encrypted zeros.
    private static let smallestHole: UInt64 = 1 << 20
    /// What leaves room for the records' overhead in a 64-bit file size.
    static let largestLength = UInt64(Int64.max) / 2
    /// The unit in which the kernel copies what is written.
    static let pageSize: UInt64 = 4096
    private static let zeros = [UInt8](repeating: 0, count: 128 << 10)

    /// ftruncate(2): sets the plaintext length.
    package func setLength(_ newLength: UInt64, workspace: Workspace) throws(StoreError) {
        guard newLength <= Self.largestLength else { throw .system(.fileTooLarge) }
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state)
            if newLength == 0 {
                try removeContent(&state, writer)
            } else if newLength > length {
                try extend(&state, writer, to: newLength, workspace)
            } else if newLength < length {
                try shrink(&state, writer, to: newLength, workspace)
            } else {
                // POSIX: the times move even so.
                try writer.truncate(to: layout.backingSize(ofPlaintextLength: length))
            }
        }
    }

    /// Cuts the file to nothing, with its length and chunks as they may be.
    func removeContent() throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state)
            try removeContent(&state, writer)
        }
    }

    /// The header says "unsealed" before the chunks go, so that a daemon killed in between leaves an empty file and
    /// never one without a header, and a full disk cannot take the header away.
    private func removeContent(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        let wasSparse = state.header.isSparse
        try unseal(&state, writer)
        changes.beginChange()
        defer { changes.endChange() }
        try writer.truncate(to: UInt64(ChunkLayout.headerSize))
        for (address, _) in store.journal.retainedSlots(of: fileID) { store.journal.forget(address) }
        setLength(&state, 0)
        state.lastRecordIsUnproven = false
        store.cache.removeAll(file: token)
        if wasSparse {
            // With no chunks left there are no holes: zeroed chunks are errors again.
            state.header.isSparse = false
            try writeHeader(&state, writer)
            isSparse.store(false, ordering: .releasing)
        }
    }

    /// Grows the file with zeros. The caller holds the write lock.
    func extend(
        _ state: inout WriteState, _ writer: Descriptor, to newLength: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        let oldLength = length
        guard newLength - oldLength >= Self.smallestHole else {
            return try writeZeros(&state, writer, oldLength..<newLength, workspace)
        }
        try beSparse(&state, writer)
        try unseal(&state, writer)
        let chunkSize = UInt64(layout.chunkSize)
        let chunkEnd = (oldLength + chunkSize - 1) / chunkSize * chunkSize
        // The last record has to become a whole one, with its zeros encrypted, before records can follow it.
        try writeZeros(&state, writer, oldLength..<chunkEnd, workspace)
        do throws(StoreError) {
            changes.beginChange()
            defer { changes.endChange() }
            // A torn fragment behind the last record must not become part of the hole.
            try writer.truncate(to: layout.backingSize(ofPlaintextLength: length))
            try writer.truncate(to: layout.backingSize(ofPlaintextLength: newLength))
            setLength(&state, newLength)
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
            do {
                position += UInt64(
                    try Self.zeros.withBytes { (zeros) throws(StoreError) -> Int in
                        try writeChunks(
                            &state, writer, UnsafeRawBufferPointer(rebasing: zeros[..<count]), at: position, workspace)
                    })
            } catch {
                // All or nothing: a file that could not be grown keeps its length.
                if length > oldLength { try? shrink(&state, writer, to: oldLength, workspace) }
                throw error
            }
        }
    }

    /// Cuts the file to a length that is not zero.
    func shrink(
        _ state: inout WriteState, _ writer: Descriptor, to newLength: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        if newLength == 0 { return try removeContent(&state, writer) }
        let chunkSize = UInt64(layout.chunkSize)
        let last = newLength / chunkSize
        let n = Int(newLength % chunkSize)
        var shortened: UnsafeRawBufferPointer?
        if n > 0, try !isHole(last, state.header.isSparse, workspace) {
            let piece = UnsafeMutableRawBufferPointer(rebasing: workspace.assembly[..<n])
            try readChunk(last, into: piece, workspace)
            shortened = UnsafeRawBufferPointer(piece)
        }
        if state.header.isSealed {
            // Else a power cut could leave the sealed header over the shorter file: damage, to a reader.
            try unseal(&state, writer)
            try writer.synchronize(dataOnly: true)
        }
        try cut(&state, writer, to: newLength, last, shortened, workspace)
    }

    /// Puts the shortened last record in place, then cuts the file behind it.
    private func cut(
        _ state: inout WriteState, _ writer: Descriptor, to newLength: UInt64, _ last: UInt64,
        _ shortened: UnsafeRawBufferPointer?, _ workspace: Workspace
    ) throws(StoreError) {
        var slots: UInt64 = 0
        var record: UnsafeRawBufferPointer?
        if let shortened {
            let sealed = try seal(shortened, first: last, chunks: 1, workspace)
            slots = try store.journal.write(
                fileID: fileID, firstChunk: last, records: sealed, recordSize: sealed.count, count: 1)
            record = sealed
        }
        changes.beginChange()
        defer { changes.endChange() }
        do {
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
            // Records that are gone, or have just been put in place.
            store.journal.forget(address)
        }
        setLength(&state, newLength)
        state.lastRecordIsUnproven = false
        store.cache.removeAll(file: token, from: last)
    }

    /// True where the chunk's record is all zero in a sparse file: then it can be cut as it is.
    func isHole(_ chunk: UInt64, _ isSparse: Bool, _ workspace: Workspace) throws(StoreError) -> Bool {
        guard isSparse else { return false }
        let n = layout.plaintextSize(ofChunk: chunk, length: length)
        let record = UnsafeMutableRawBufferPointer(rebasing: workspace.records[..<(n + ChunkLayout.recordOverhead)])
        let had = try reader.read(at: layout.recordOffset(ofChunk: chunk), into: record)
        return had == record.count && record.allSatisfy { $0 == 0 }
    }

    /// Ends a file before a record that a killed daemon was appending: else nothing could be appended to it again.
    ///
    /// SIGKILL stops a write between pages, so the file ends at one, its header is unsealed, and its last record does
    /// not verify and is not in the journal: no byte of that record was acknowledged. (Somebody who makes a file look so
    /// has cut it at a chunk boundary, which an unsealed file cannot show in any case.) Any other last record that does
    /// not verify stays an error. Returns true where the file has been cut.
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
            changes.beginChange()
            defer { changes.endChange() }
            try writer.truncate(to: layout.recordOffset(ofChunk: last))
            setLength(&state, layout.plaintextOffset(ofChunk: last))
            state.lastRecordIsUnproven = false
            store.cache.removeAll(file: token, from: last)
            return true
        }
    }

    /// Cuts a file that is longer than its sealed header says back to what is vouched for.
    func cutBack(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        let workspace = try Workspace(layout: layout)
        let sealedLength = state.header.length
        let last = sealedLength / UInt64(layout.chunkSize)
        let n = Int(sealedLength % UInt64(layout.chunkSize))
        var shortened: UnsafeRawBufferPointer?
        if n > 0, try !isHole(last, state.header.isSparse, workspace), try !endsAsSealed(last, n, workspace) {
            let piece = UnsafeMutableRawBufferPointer(rebasing: workspace.assembly[..<n])
            // Where it does not verify there is nothing to keep; reading it stays an error.
            do throws(StoreError) {
                try readChunk(last, into: piece, workspace)
                shortened = UnsafeRawBufferPointer(piece)
            } catch .damaged {}
        }
        try cut(&state, writer, to: sealedLength, last, shortened, workspace)
        currentAuthenticLength.store(.max, ordering: .releasing)
    }

    /// True where the record is on disk as the last one of the sealed length.
    private func endsAsSealed(_ chunk: UInt64, _ n: Int, _ workspace: Workspace) throws(StoreError) -> Bool {
        let record = UnsafeMutableRawBufferPointer(rebasing: workspace.records[..<(n + ChunkLayout.recordOverhead)])
        guard try reader.read(at: layout.recordOffset(ofChunk: chunk), into: record) == record.count else {
            return false
        }
        do {
            return try workspace.cipher.open(
                UnsafeRawBufferPointer(record), firstChunkIndex: chunk, chunkSize: layout.chunkSize, keys: keys.chunk,
                into: UnsafeMutableRawBufferPointer(rebasing: workspace.edge[..<n])) == 1
        } catch { throw StoreError(error) }
    }
}
