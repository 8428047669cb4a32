internal import FileSystem

extension ChainedFile {
    /// Reads plaintext; returns the bytes read, fewer than asked for only at the end of the file.
    /// - Throws: `.malformed` where the source file has been cut since it was opened; `.store`, also for a lock.
    package func read(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, workspace: ViewWorkspace
    ) throws(ViewError) -> Int {
        let length = map.length
        guard plaintextOffset < length, buffer.count > 0 else { return 0 }
        let count = Int(min(UInt64(buffer.count), length - plaintextOffset))
        let pages = Self.page(plaintextOffset + UInt64(count) - 1) - Self.page(plaintextOffset) + 1
        let isCached = pages <= UInt64(ViewWorkspace.largestCachedRun)
        var done = 0
        while done < count {
            let offset = plaintextOffset + UInt64(done)
            let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[done..<count])
            if !isCached {
                let batch = min(rest.count, ViewWorkspace.batchSize)
                try decrypt(at: offset, into: UnsafeMutableRawBufferPointer(rebasing: rest[..<batch]), workspace)
                done += batch
            } else if let hit = readFromCache(at: offset, into: rest) {
                done += hit
            } else {
                done += try readPages(at: offset, into: rest, workspace)
            }
        }
        return count
    }

    private static func page(_ plaintextOffset: UInt64) -> UInt64 {
        plaintextOffset / UInt64(ViewWorkspace.pageSize)
    }

    /// What the block cache has of the page at this offset, as far as it is wanted.
    private func readFromCache(at plaintextOffset: UInt64, into wanted: UnsafeMutableRawBufferPointer) -> Int? {
        let start = Int(plaintextOffset % UInt64(ViewWorkspace.pageSize))
        let count = min(ViewWorkspace.pageSize - start, wanted.count)
        guard let destination = wanted.baseAddress,
            cache.copy(
                file: token, chunk: Self.page(plaintextOffset), range: start..<(start + count), to: destination)
        else { return nil }
        counters.cacheHits.count()
        return count
    }

    /// Decrypts a run of adjacent pages that are not cached, and caches them; returns how many of the wanted bytes it
    /// has filled. No more than ``ViewWorkspace/largestCachedRun`` pages are wanted.
    private func readPages(
        at plaintextOffset: UInt64, into wanted: UnsafeMutableRawBufferPointer, _ workspace: ViewWorkspace
    ) throws(ViewError) -> Int {
        let pageSize = UInt64(ViewWorkspace.pageSize)
        let first = Self.page(plaintextOffset)
        let last = Self.page(plaintextOffset + UInt64(wanted.count) - 1)
        var next = first + 1
        while next <= last, !cache.contains(file: token, chunk: next) { next += 1 }
        counters.cacheMisses.count(Int(next - first))
        let start = first * pageSize
        let size = Int(min(next * pageSize, map.length) - start)
        let skipped = Int(plaintextOffset - start)
        let count = min(size - skipped, wanted.count)
        if count == size {
            let pages = UnsafeMutableRawBufferPointer(rebasing: wanted[..<count])
            try decrypt(at: start, into: pages, workspace)
            remember(first, UnsafeRawBufferPointer(pages))
        } else {
            // Of the first page or the last only a part is wanted. To copy all is cheaper than a pread(2) more.
            let pages = UnsafeMutableRawBufferPointer(rebasing: workspace.assembly[..<size])
            try decrypt(at: start, into: pages, workspace)
            remember(first, UnsafeRawBufferPointer(pages))
            UnsafeMutableRawBufferPointer(rebasing: wanted[..<count])
                .copyMemory(from: UnsafeRawBufferPointer(rebasing: pages[skipped..<(skipped + count)]))
        }
        return count
    }

    private func remember(_ first: UInt64, _ plaintext: UnsafeRawBufferPointer) {
        var start = 0
        var page = first
        while start < plaintext.count {
            let end = min(start + ViewWorkspace.pageSize, plaintext.count)
            cache.insert(
                file: token, chunk: page, UnsafeRawBufferPointer(rebasing: plaintext[start..<end]),
                seen: changes.value, changes: changes)
            start = end
            page += 1
        }
    }
}
