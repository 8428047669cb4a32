internal import FileSystem
internal import LinuxSystem
internal import VaultCrypto

/// Decryption of files with samples encrypted in place.
extension ChainedFile {
    /// Fills `target`, at most one batch, with plaintext of the index's file.
    func decrypt(
        _ index: Mp4Index, _ keys: ContentKeys, at offset: UInt64, into target: UnsafeMutableRawBufferPointer,
        _ workspace: ViewWorkspace
    ) throws(ViewError) {
        let end = offset + UInt64(target.count)
        var position = offset
        while position < end {
            let fragment = try index.fragment(at: position)
            let reached = min(end, fragment.bytes.upperBound)
            let part = target.slice(Int(position - offset)..<Int(reached - offset))
            try decrypt(fragment, keys, position..<reached, into: part, workspace)
            position = reached
        }
    }

    /// Fills `target` with these bytes, all of them in the fragment.
    private func decrypt(
        _ fragment: Mp4Fragment, _ keys: ContentKeys, _ wanted: Range<UInt64>,
        into target: UnsafeMutableRawBufferPointer, _ workspace: ViewWorkspace
    ) throws(ViewError) {
        let ranges = fragment.ranges
        var positions = ranges.overlapping(wanted)
        // Only the first range can need bytes before, and only the last one bytes after.
        let first = positions.first.flatMap { ranges.blocks(at: $0, for: wanted).source?.lowerBound } ?? .max
        let last = positions.last.flatMap { ranges.blocks(at: $0, for: wanted).source?.upperBound } ?? 0
        let before = Int(wanted.lowerBound - min(first, wanted.lowerBound))
        let edges = before + Int(max(last, wanted.upperBound) - wanted.upperBound)
        let bytes = FileBytes(
            wanted: wanted, before: workspace.ciphertext.slice(..<before), target: target,
            after: workspace.ciphertext.slice(before..<edges))
        try read(at: bytes.start, before: bytes.before, into: target, after: bytes.after)
        // Go backwards: the vector of a range can be the last block of the one before, overwritten by decryption.
        while !positions.isEmpty {
            let left = try decryptLast(
                positions, of: ranges, keys, bytes, gathering: workspace.ciphertext.slice(edges...), workspace)
            positions = positions.lowerBound..<left
        }
        fragment.patch(target, at: wanted)
    }

    /// Decrypts the last of these ranges: as many as have the same key and fit into `gathered`. All are one chain for
    /// libcrypto, because their vectors are decrypted as if they were blocks before theirs.
    /// - Returns: the position after the remaining ranges.
    private func decryptLast(
        _ positions: Range<Int>, of ranges: ProtectedRanges, _ keys: ContentKeys, _ bytes: FileBytes,
        gathering gathered: UnsafeMutableRawBufferPointer, _ workspace: ViewWorkspace
    ) throws(ViewError) -> Int {
        let key = ranges.cipher(at: positions.upperBound - 1).key
        var (first, size) = (positions.upperBound, 0)
        while first > positions.lowerBound {
            let cipher = ranges.cipher(at: first - 1)
            let blocks = ranges.blocks(at: first - 1, for: bytes.wanted)
            guard cipher.key == key, size + blocks.gatheredSize <= gathered.count else { break }
            first -= 1
            guard blocks.count > 0 else { continue }
            let target = gathered.slice(size..<(size + blocks.gatheredSize))
            if let previous = blocks.previous {
                bytes.copy(previous, to: target.slice(..<16))
            } else if case .inFile(let offset) = cipher.vector, offset >= bytes.start {
                bytes.copy(offset, to: target.slice(..<16))
            } else {
                try readVector(cipher.vector, into: target.slice(..<16))
            }
            bytes.copy(blocks, to: target.slice(16...))
            size += blocks.gatheredSize
        }
        precondition(first < positions.upperBound, "internal error: no room for \(positions.count) encrypted ranges")
        guard size > 0, let vector = UnsafeRawPointer(gathered.baseAddress) else { return first }
        let found = try keys.key(ranges.keys[Int(key)])
        let chain = gathered.slice(16..<size)
        try ViewError.ofCrypto(
            counters.cryptoTime.time { () throws(CryptoError) in
                try workspace.decryptor.decrypt(UnsafeRawBufferPointer(chain), vector: vector, key: found, into: chain)
            })
        size = 0
        for position in (first..<positions.upperBound).reversed() {
            let blocks = ranges.blocks(at: position, for: bytes.wanted)
            if blocks.count == 0 { continue }
            bytes.replace(blocks, by: gathered.slice((size + 16)..<(size + blocks.gatheredSize)))
            size += blocks.gatheredSize
        }
        return first
    }
}

/// Consecutive bytes of a file in memory: the bytes for a read, and the surrounding ones needed for their blocks.
private struct FileBytes {
    let wanted: Range<UInt64>
    /// Adjacent in the file, but not in memory.
    let before, target, after: UnsafeMutableRawBufferPointer

    /// Offset in the file.
    var start: UInt64 { wanted.lowerBound - UInt64(before.count) }

    /// Copies bytes of the file, as many as `copy` has.
    func copy(_ offset: UInt64, to copy: UnsafeMutableRawBufferPointer) {
        func add(_ part: UnsafeMutableRawBufferPointer, at start: UInt64) {
            let from = max(offset, start)
            let to = min(offset + UInt64(copy.count), start + UInt64(part.count))
            guard from < to else { return }
            copy.slice(Int(from - offset)...).copyMemory(
                from: UnsafeRawBufferPointer(part.slice(Int(from - start)..<Int(to - start))))
        }
        add(before, at: start)
        add(target, at: wanted.lowerBound)
        add(after, at: wanted.upperBound)
    }

    /// Copies all of the blocks.
    func copy(_ blocks: PatternBlocks, to gathered: UnsafeMutableRawBufferPointer) {
        guard let file = target.baseAddress, let blocksAlone = gathered.baseAddress else { return }
        blocks.forEach { offset, distance in
            copy(offset, to: gathered.slice(distance..<(distance + 16)))
        } run: { offset, distance, size in
            Self.copy(file + Int(offset - wanted.lowerBound), to: blocksAlone + distance, size)
        }
    }

    /// Replaces the blocks, except for parts outside the wanted bytes.
    func replace(_ blocks: PatternBlocks, by gathered: UnsafeMutableRawBufferPointer) {
        guard let file = target.baseAddress, let blocksAlone = gathered.baseAddress else { return }
        blocks.forEach { offset, distance in
            let from = max(offset, wanted.lowerBound)
            let to = min(offset + 16, wanted.upperBound)
            (file + Int(from - wanted.lowerBound))
                .copyMemory(from: blocksAlone + distance + Int(from - offset), byteCount: Int(to - from))
        } run: { offset, distance, size in
            Self.copy(blocksAlone + distance, to: file + Int(offset - wanted.lowerBound), size)
        }
    }

    /// Copies a run. Most often it is one block, so that is copied without a call.
    @inline(__always)
    private static func copy(_ source: UnsafeMutableRawPointer, to target: UnsafeMutableRawPointer, _ count: Int) {
        guard count == 16 else { return target.copyMemory(from: source, byteCount: count) }
        target.storeBytes(of: source.loadUnaligned(as: SIMD16<UInt8>.self), as: SIMD16<UInt8>.self)
    }
}

extension Mp4Fragment {
    /// Writes the changed box types into bytes of the fragment.
    fileprivate func patch(_ bytes: UnsafeMutableRawBufferPointer, at offsets: Range<UInt64>) {
        guard offsets.lowerBound < patchedEnd else { return }
        for patch in patches {
            for byte in 0..<4 where offsets.contains(patch.offset + UInt64(byte)) {
                let value = UInt8(truncatingIfNeeded: patch.type.code >> UInt32(8 * (3 - byte)))
                bytes[Int(patch.offset + UInt64(byte) - offsets.lowerBound)] = value
            }
        }
    }
}
