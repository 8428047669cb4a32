internal import FileSystem
internal import LinuxSystem
internal import VaultCrypto

/// Files whose samples are encrypted in place.
extension ChainedFile {
    /// Fills `target`, at most one batch, with plaintext of the map's file.
    func decrypt(
        _ map: SampleMap, at offset: UInt64, into target: UnsafeMutableRawBufferPointer, _ workspace: ViewWorkspace
    ) throws(ViewError) {
        let end = offset + UInt64(target.count)
        var position = offset
        while position < end {
            let fragment = try map.index.fragment(at: position)
            let reached = min(end, fragment.bytes.upperBound)
            let part = target.slice(Int(position - offset)..<Int(reached - offset))
            try decrypt(fragment, map.keys, position..<reached, into: part, workspace)
            position = reached
        }
    }

    /// Fills `target` with these bytes, which are all in the fragment.
    private func decrypt(
        _ fragment: Mp4Fragment, _ keys: ContentKeys, _ wanted: Range<UInt64>,
        into target: UnsafeMutableRawBufferPointer, _ workspace: ViewWorkspace
    ) throws(ViewError) {
        let ranges = fragment.ranges.overlapping(wanted)
        let ciphers = fragment.ranges.ciphers
        func blocks(_ range: ProtectedRanges.Bytes) -> PatternBlocks {
            PatternBlocks(range, ciphers[Int(range.cipher)], for: wanted)
        }
        // Only the first range can need bytes before, and only the last one bytes after.
        let first = ranges.first.flatMap { blocks($0).source }
        let last = ranges.last.flatMap { blocks($0).source }
        let from = min(wanted.lowerBound, first?.lowerBound ?? .max)
        let to = max(wanted.upperBound, last?.upperBound ?? 0)
        guard first != nil || last != nil || ranges.count > 2 else {
            try read(at: wanted.lowerBound, into: target)
            return fragment.patch(target, at: wanted)
        }
        let source = workspace.ciphertext.slice(..<Int(to - from))
        try read(at: from, into: source)
        target.copyMemory(
            from: UnsafeRawBufferPointer(source.slice(Int(wanted.lowerBound - from)..<Int(wanted.upperBound - from))))
        // Backwards: the vector of a range can be the last block of the one before, which decryption overwrites.
        for range in ranges.reversed() {
            try decrypt(
                blocks(range), ciphers[Int(range.cipher)], keys, Ciphertext(bytes: source, start: from), into: target,
                at: wanted, workspace)
        }
        fragment.patch(target, at: wanted)
    }

    /// Ciphertext in memory, and its offset in the file.
    private struct Ciphertext {
        let bytes: UnsafeMutableRawBufferPointer
        let start: UInt64

        func slice(_ offset: UInt64, _ count: Int) -> UnsafeMutableRawBufferPointer {
            let first = Int(offset - start)
            return bytes.slice(first..<(first + count))
        }
    }

    private func decrypt(
        _ blocks: PatternBlocks, _ cipher: ProtectedRanges.Cipher, _ keys: ContentKeys, _ source: Ciphertext,
        into target: UnsafeMutableRawBufferPointer, at wanted: Range<UInt64>, _ workspace: ViewWorkspace
    ) throws(ViewError) {
        guard let first = blocks.numbers.first else { return }
        let key = try keys.key(cipher.key)
        let vector: UnsafeRawBufferPointer
        if first > 0 {
            vector = UnsafeRawBufferPointer(source.slice(blocks.offset(first - 1), 16))
        } else {
            if case .inFile(let offset) = cipher.vector, offset >= source.start {
                vector = UnsafeRawBufferPointer(source.slice(offset, 16))
            } else {
                try readVector(cipher.vector, into: workspace.vector)
                vector = UnsafeRawBufferPointer(workspace.vector)
            }
        }
        // Gathered where the first block is: blocks only move down, so none is overwritten before it has moved.
        let gathered = source.slice(blocks.offset(first), 16 * blocks.numbers.count)
        blocks.forEachRun { offset, done, count in
            gathered.slice(done..<(done + count)).copyBlocks(from: UnsafeRawBufferPointer(source.slice(offset, count)))
        }
        guard let vector = vector.baseAddress else { return }
        do throws(CryptoError) {
            try counters.cryptoTime.time { () throws(CryptoError) in
                try workspace.decryptor.decrypt(
                    UnsafeRawBufferPointer(gathered), vector: vector, key: key, into: gathered)
            }
        } catch {
            throw .store(StoreError(error))
        }
        blocks.forEachRun { offset, done, count in
            // The first and the last block can be wanted in part.
            let start = max(offset, wanted.lowerBound)
            let end = min(offset + UInt64(count), wanted.upperBound)
            guard start < end else { return }
            let (from, to, count) = (done + Int(start - offset), Int(start - wanted.lowerBound), Int(end - start))
            target.slice(to..<(to + count))
                .copyBlocks(from: UnsafeRawBufferPointer(gathered.slice(from..<(from + count))))
        }
    }
}

extension UnsafeMutableRawBufferPointer {
    /// Copies as many bytes, most often one block, without a call for that.
    @inline(__always)
    fileprivate func copyBlocks(from source: UnsafeRawBufferPointer) {
        guard count == 16 else { return copyMemory(from: source) }
        storeBytes(of: source.loadUnaligned(as: SIMD16<UInt8>.self), as: SIMD16<UInt8>.self)
    }
}

extension Mp4Fragment {
    /// Writes the changed box types into bytes of the fragment.
    fileprivate func patch(_ bytes: UnsafeMutableRawBufferPointer, at offsets: Range<UInt64>) {
        for patch in patches {
            for byte in 0..<4 where offsets.contains(patch.offset + UInt64(byte)) {
                let value = UInt8(truncatingIfNeeded: patch.type.code >> UInt32(8 * (3 - byte)))
                bytes[Int(patch.offset + UInt64(byte) - offsets.lowerBound)] = value
            }
        }
    }
}
