internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

extension FileWriter {
    /// A gap of at least this many bytes past the end becomes a hole. A smaller one is written as encrypted zeros.
    private static let smallestHole: UInt64 = 1 << 20
    private static let zeros = [UInt8](repeating: 0, count: 128 << 10)

    /// Does `EncryptedFile.setLength`.
    mutating func truncate(to newLength: UInt64, _ workspace: Workspace) throws(StoreError) {
        guard newLength <= Self.largestLength else { throw .system(.fileTooLarge) }
        try prepare()
        if newLength > length {
            try grow(workspace) { (writer) throws(StoreError) in try writer.extend(to: newLength, workspace) }
        } else if newLength < length || newLength == 0 && (parts.isLogged || header.length > 0) {
            try shrink(to: newLength, workspace)
        } else if parts.isLogged {
            // POSIX: the times change even then. The backing file has ctime, so change it there.
            try? SparseMap(parts: parts).punchPastEnd(descriptor)
            parts.log.raiseTime()
        } else {
            try descriptor.truncate(to: layout.backingSize(ofPlaintextLength: length))
        }
        store.faults.clear(.length(parts.fileID))
    }

    // MARK: Longer

    /// Runs `body`, which extends the file. If it fails, restores the former length, for which the log keeps space.
    mutating func grow<Result>(
        _ workspace: Workspace, _ body: (inout FileWriter) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        let oldLength = length
        return try store.log.keepingUndoSpace(of: parts.fileID) { () throws(StoreError) in
            do throws(StoreError) {
                let result = try body(&self)
                store.faults.clear(.length(parts.fileID))
                return result
            } catch {
                guard length > oldLength else { throw error }
                do throws(StoreError) { try shrink(to: oldLength, undoes: true, workspace) } catch let lasting {
                    store.faults.add(
                        .length(parts.fileID), "a file keeps zeros of a failed extension (\(lasting.reason))")
                }
                throw error
            }
        }
    }

    /// Extends the file with zeros. Called by the body of `grow`.
    mutating func extend(to newLength: UInt64, _ workspace: Workspace) throws(StoreError) {
        let oldLength = length
        let chunkSize = UInt64(layout.chunkSize)
        let chunkEnd = (oldLength + chunkSize - 1) / chunkSize * chunkSize
        // Write a partial last record as encrypted zeros, because a zero one counts as torn.
        let holeEnd = newLength / chunkSize * chunkSize
        guard newLength - oldLength >= Self.smallestHole, holeEnd > chunkEnd else {
            return try writeZeros(oldLength..<newLength, workspace)
        }
        try markSparse()
        try unseal()
        // The last record must become a whole one, with its zeros encrypted, before records can follow it.
        try writeZeros(oldLength..<chunkEnd, workspace)
        if parts.log.hasMostHoles { try putEverythingInPlace() }
        if !parts.log.hasLength { try beginGrowth() }
        try parts.changes.during { () throws(StoreError) in
            if parts.log.hasLength {
                try append(
                    .hole, first: layout.chunkCount(ofLength: length), end: layout.chunkCount(ofLength: holeEnd),
                    exactLength: holeEnd, in: workspace.logEntry)
            } else {
                // A fragment after the last record must not become part of the hole.
                try cutFragment()
                try descriptor.truncate(to: layout.backingSize(ofPlaintextLength: holeEnd))
                parts.syncs.countWrite()
                parts.log.raiseTime()
            }
            setLength(holeEnd)
        }
        try writeZeros(holeEnd..<newLength, workspace)
    }

    /// Cuts off what follows the last record: a fragment too short for another, or the rest of a failed write.
    mutating func cutFragment() throws(StoreError) {
        let end = layout.backingSize(ofPlaintextLength: length)
        if UInt64(clamping: try descriptor.status().st_size) > end { try descriptor.truncate(to: end) }
        space.hasRest = false
    }

    /// Extends a file that ends with a whole chunk by a hole up to `newLength`.
    mutating func skip(to newLength: UInt64) throws(StoreError) {
        guard newLength > length else { return }
        try prepare()
        try descriptor.truncate(to: layout.backingSize(ofPlaintextLength: newLength))
        parts.syncs.countWrite()
        setLength(newLength)
    }

    /// Writes encrypted zeros over a range that begins at or before the end.
    private mutating func writeZeros(_ range: Range<UInt64>, _ workspace: Workspace) throws(StoreError) {
        var position = range.lowerBound
        while position < range.upperBound {
            let count = Int(min(UInt64(Self.zeros.count), range.upperBound - position))
            position += UInt64(
                try Self.zeros.withBytes { (zeros) throws(StoreError) -> Int in
                    try writeChunks(zeros.slice(..<count), at: position, workspace)
                })
        }
    }

    // MARK: Shorter

    /// Cuts the file to a shorter length, in the log. Until the next checkpoint the backing file keeps its size,
    /// because a power cut must not leave a shortened file without the entry for its last record.
    /// - Parameter undoes: true to take back a failed extension.
    mutating func shrink(
        to newLength: UInt64, undoes: Bool = false, _ workspace: Workspace
    ) throws(StoreError) {
        let last = layout.chunkIndex(ofPlaintextOffset: newLength)
        let rest = try readRest(of: newLength, workspace)
        try unseal(floor: newLength)
        try parts.changes.during { () throws(StoreError) in
            try parts.cuts.during { () throws(StoreError) in
                if let rest {
                    try parts.encrypt(rest, first: last, into: workspace.logEntry, workspace.cipher)
                    try append(
                        .records, first: last, bodySize: rest.count + ChunkLayout.recordOverhead,
                        exactLength: newLength, undoes: undoes, in: workspace.logEntry)
                } else {
                    try append(.length, exactLength: newLength, undoes: undoes, in: workspace.logEntry)
                }
                applyCut(to: newLength, last)
            }
        }
    }

    /// Reads what a cut to `newLength` leaves of the last chunk. Nil if it leaves nothing.
    private func readRest(of newLength: UInt64, _ workspace: Workspace) throws(StoreError) -> UnsafeRawBufferPointer? {
        let last = layout.chunkIndex(ofPlaintextOffset: newLength)
        let piece = workspace.assembly.slice(..<Int(newLength % UInt64(layout.chunkSize)))
        if piece.isEmpty { return nil }
        try RunReader(parts: parts).readStart(ofChunk: last, into: piece, workspace)
        return UnsafeRawBufferPointer(piece)
    }

    private mutating func applyCut(to newLength: UInt64, _ last: UInt64) {
        setLength(newLength)
        // The checkpoint frees what is past the end, and makes the tail durable.
        space.end = 0
        growth.restart(layout.partialChunk(of: newLength))
        store.cache.removeAll(file: parts.token, from: last)
    }

    /// Cuts off the torn tail, durably. The file then ends before the first record that does not verify. A sealed file
    /// ends at its length. Any other record that does not verify stays an error.
    ///
    /// An attacker can make a file look torn and the vault's end unclean, and thereby cut the file at a chunk boundary.
    /// An unsealed file cannot show such a cut in any case.
    mutating func cutTornTail() throws(StoreError) {
        let before = length
        try cutTail()
        if length < before { parts.isCutBack.store(true, ordering: .releasing) }
        // Sync, because the vault's end will count as clean, so the file will not be checked again.
        if !store.isReadOnly, !header.isSealed { try parts.reader.synchronize(dataOnly: true) }
    }

    private mutating func cutTail() throws(StoreError) {
        if header.isSealed {
            guard length > header.length else { return }
            if store.isReadOnly {
                // Read no further, whatever the backing file has after the sealed length.
                parts.storedLength.store(length, ordering: .releasing)
                applyCut(to: header.length, layout.chunkIndex(ofPlaintextOffset: header.length))
                parts.authenticLength = .max
                return
            }
            try openedForNow(evenIfClosed: true) { (writer) throws(StoreError) in try writer.cutBack() }
            return try parts.reader.synchronize(dataOnly: true)
        }
        guard let first = try TornTail(parts: parts).firstChunk(header) else { return }
        let newLength = layout.plaintextOffset(ofChunk: first)
        if !store.isReadOnly {
            let size = layout.backingSize(ofPlaintextLength: newLength)
            let writer = try parts.reader.reopenedForWriting()
            try parts.keepingAttributes(writer) { (_) throws(StoreError) in try writer.truncate(to: size) }
            parts.syncs.countWrite()
        }
        applyCut(to: newLength, first)
    }

    /// Cuts a longer file back to the length in its sealed header.
    mutating func cutBack() throws(StoreError) {
        let sealedLength = header.length
        if try isRecordLonger(thanFor: sealedLength) {
            parts.authenticLength = .max
            do throws(StoreError) { return try shrink(to: sealedLength, try Workspace(layout: layout)) } catch {
                parts.authenticLength = sealedLength
                // Keep a record that does not verify, so that reading it stays an error.
                guard case .damaged = error else { throw error }
            }
        }
        try descriptor.truncate(to: layout.backingSize(ofPlaintextLength: sealedLength))
        parts.syncs.countWrite()
        applyCut(to: sealedLength, layout.chunkIndex(ofPlaintextOffset: sealedLength))
        parts.authenticLength = .max
    }

    /// True if the last record of a sealed length is still a longer one. A cut must replace it by the short one.
    private func isRecordLonger(thanFor sealedLength: UInt64) throws(StoreError) -> Bool {
        let last = layout.chunkIndex(ofPlaintextOffset: sealedLength)
        let n = Int(sealedLength % UInt64(layout.chunkSize))
        guard n > 0 else { return false }
        let workspace = try Workspace(layout: layout)
        if try SparseMap(parts: parts).isHole(last, size: n, workspace) { return false }
        return try !RunReader(parts: parts).decryptStored(last, into: workspace.edge.slice(..<n), workspace)
    }
}

/// fallocate(2). Each function implements the one of its name in `EncryptedFile`.
extension FileWriter {
    mutating func punchHole(_ range: Range<UInt64>, _ workspace: Workspace) throws(StoreError) {
        try prepare()
        let inside = range.clamped(to: 0..<length)
        if !inside.isEmpty { return try punch(inside, workspace) }
        try SparseMap(parts: parts).punchPastEnd(descriptor)
        parts.log.raiseTime()
    }

    mutating func zeroRange(_ range: Range<UInt64>, keepsSize: Bool, _ workspace: Workspace) throws(StoreError) {
        try prepare()
        // Reserve first, because this may fail for lack of space. Punching frees the space, so reserve it again.
        try reserve(range, keepsSize: true, workspace)
        try punch(range.clamped(to: 0..<length), workspace)
        // The hole must be made before space is allocated in it.
        try putEverythingInPlace()
        try reserve(range, keepsSize: keepsSize, workspace)
    }

    mutating func allocate(_ range: Range<UInt64>, keepsSize: Bool, _ workspace: Workspace) throws(StoreError) {
        try prepare()
        try reserve(range, keepsSize: keepsSize, workspace)
        parts.log.raiseTime()
    }

    private mutating func reserve(
        _ range: Range<UInt64>, keepsSize: Bool, _ workspace: Workspace
    ) throws(StoreError) {
        guard range.upperBound <= Self.largestLength else { throw .system(.fileTooLarge) }
        let start = layout.recordOffset(ofChunk: layout.chunkIndex(ofPlaintextOffset: range.lowerBound))
        let end = layout.backingSize(ofPlaintextLength: range.upperBound)
        try descriptor.allocate(start..<max(end, start + 1))
        if range.upperBound > length { space.isAhead = true }
        if keepsSize || range.upperBound <= length { return }
        try grow(workspace) { (writer) throws(StoreError) in try writer.extend(to: range.upperBound, workspace) }
    }

    /// Writes zeros to partly covered chunks at both ends, and makes a hole of the chunks between.
    private mutating func punch(_ range: Range<UInt64>, _ workspace: Workspace) throws(StoreError) {
        guard !range.isEmpty else { return }
        let chunkSize = UInt64(layout.chunkSize)
        let firstWhole = (range.lowerBound + chunkSize - 1) / chunkSize
        // Exclude a shorter last record, because a zero one counts as torn.
        let endWhole = range.upperBound / chunkSize
        guard firstWhole < endWhole else { return try writeZeros(range, workspace) }
        if range.lowerBound < firstWhole * chunkSize {
            try writeZeros(range.lowerBound..<(firstWhole * chunkSize), workspace)
        }
        if endWhole * chunkSize < range.upperBound {
            try writeZeros((endWhole * chunkSize)..<range.upperBound, workspace)
        }
        try SparseMap(parts: parts).punchPastEnd(descriptor)
        try markSparse()
        if parts.log.hasMostHoles { try putEverythingInPlace() }
        // The hole may remove the file's last record, so the log must have the length.
        let isEnd = parts.isLogged && endWhole >= layout.chunkCount(ofLength: length)
        try parts.changes.during { () throws(StoreError) in
            let exactLength = isEnd || parts.log.hasLength ? parts.length : nil
            try append(.hole, first: firstWhole, end: endWhole, exactLength: exactLength, in: workspace.logEntry)
            parts.store.cache.removeAll(file: parts.token, from: firstWhole)
        }
    }
}
