internal import FileSystem
internal import LinuxSystem
internal import VaultCrypto

extension ChainedFile {
    /// Fills `target`, at most one batch, with plaintext. The range must be within the file.
    func decrypt(
        at plaintextOffset: UInt64, into target: UnsafeMutableRawBufferPointer, _ workspace: ViewWorkspace
    ) throws(ViewError) {
        let before = workspace.decryptor.blocksDecrypted
        defer { counters.aesBlocksDecrypted.count(Int(workspace.decryptor.blocksDecrypted - before)) }
        switch contents {
        case .chains(let map): try decrypt(map, at: plaintextOffset, into: target, workspace)
        case .samples(let index, let keys): try decrypt(index, keys, at: plaintextOffset, into: target, workspace)
        }
    }

    private func decrypt(
        _ map: ChainMap, at plaintextOffset: UInt64, into target: UnsafeMutableRawBufferPointer,
        _ workspace: ViewWorkspace
    ) throws(ViewError) {
        let end = plaintextOffset + UInt64(target.count)
        var position = plaintextOffset
        while position < end {
            let (source, reached) = reach(map, from: position, to: end, capacity: workspace.ciphertext.count)
            let ciphertext = workspace.ciphertext.slice(..<source.count)
            try read(at: source.lowerBound, into: ciphertext)
            while position < reached, let part = part(map, at: position, to: reached) {
                let start = Int(part.source.lowerBound - source.lowerBound)
                let done = Int(position - plaintextOffset)
                try open(
                    part, UnsafeRawBufferPointer(ciphertext.slice(start..<(start + part.source.count))),
                    into: target.slice(done..<(done + part.plaintext.count)),
                    workspace)
                position = part.plaintext.upperBound
            }
        }
    }

    private func part(_ map: ChainMap, at plaintextOffset: UInt64, to end: UInt64) -> ChainPart? {
        map.piece(at: plaintextOffset).map { ChainPart($0, from: plaintextOffset, to: end) }
    }

    /// Returns the bytes of the source file for one pread(2) from a plaintext offset, and the offset reached by them.
    private func reach(
        _ map: ChainMap, from plaintextOffset: UInt64, to end: UInt64, capacity: Int
    ) -> (source: Range<UInt64>, reached: UInt64) {
        guard let first = part(map, at: plaintextOffset, to: end) else {
            preconditionFailure("internal error: offset \(plaintextOffset) of a file of \(map.length)")
        }
        var source = first.source
        var reached = first.plaintext.upperBound
        while reached < end, let next = part(map, at: reached, to: end), next.follows(source, capacity: capacity) {
            source = source.lowerBound..<next.source.upperBound
            reached = next.plaintext.upperBound
        }
        return (source, reached)
    }

    /// Fills the buffers, one after another.
    func read(
        at ciphertextOffset: UInt64, before: UnsafeMutableRawBufferPointer = .empty,
        into buffer: UnsafeMutableRawBufferPointer, after: UnsafeMutableRawBufferPointer = .empty
    ) throws(ViewError) {
        counters.ciphertextBytesRead.count(before.count + buffer.count + after.count)
        try counters.storeTime.time { () throws(ViewError) in
            try source.read(at: ciphertextOffset, before: before, into: buffer, after: after)
        }
    }

    /// Decrypts or copies one part. `target` has exactly its size.
    private func open(
        _ part: ChainPart, _ source: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer,
        _ workspace: ViewWorkspace
    ) throws(ViewError) {
        guard let encryption = part.chain.encryption else { return target.copyMemory(from: source) }
        let vector: UnsafeRawBufferPointer
        let blocks: UnsafeRawBufferPointer
        if part.hasVector {
            vector = source.slice(..<16)
            blocks = source.slice(16...)
        } else {
            try readVector(encryption.vector, into: workspace.vector)
            vector = UnsafeRawBufferPointer(workspace.vector)
            blocks = source
        }
        // The unretained key stays alive, because `chainKeys` holds a reference for the lifetime of this file.
        let failure = uncountedKeys[encryption.key]._withUnsafeGuaranteedRef { key -> CryptoError? in
            do throws(CryptoError) {
                try counters.cryptoTime.time { () throws(CryptoError) in
                    try Self.decrypt(blocks, vector: vector, key: key, skipped: part.skipped, into: target, workspace)
                }
                return nil
            } catch {
                return error
            }
        }
        if let failure { throw .store(StoreError(failure)) }
    }

    func readVector(
        _ vector: CipherChain.Vector, into target: UnsafeMutableRawBufferPointer
    ) throws(ViewError) {
        switch vector {
        case .bytes(let bytes): bytes.store(into: target)
        case .inFile(let offset): try read(at: offset, into: target)
        }
    }

    /// Decrypts blocks into a target that begins `skipped` bytes into the first block and can end within the last.
    private static func decrypt(
        _ blocks: UnsafeRawBufferPointer, vector: UnsafeRawBufferPointer, key: CbcKey, skipped: Int,
        into target: UnsafeMutableRawBufferPointer, _ workspace: ViewWorkspace
    ) throws(CryptoError) {
        guard var previous = vector.baseAddress, let first = blocks.baseAddress else { return }
        var next = first
        var done = 0
        while done < target.count {
            let left = target.count - done
            let isPartial = (done == 0 && skipped > 0) || left < 16
            let size = isPartial ? 16 : left / 16 * 16
            let ciphertext = UnsafeRawBufferPointer(start: next, count: size)
            if isPartial {
                try workspace.decryptor.decrypt(ciphertext, vector: previous, key: key, into: workspace.block)
                let from = done == 0 ? skipped : 0
                let wanted = min(16 - from, left)
                target.slice(done..<(done + wanted))
                    .copyMemory(from: UnsafeRawBufferPointer(workspace.block.slice(from..<(from + wanted))))
                done += wanted
            } else {
                let whole = target.slice(done..<(done + size))
                try workspace.decryptor.decrypt(ciphertext, vector: previous, key: key, into: whole)
                done += size
            }
            next += size
            previous = next - 16
        }
    }
}
