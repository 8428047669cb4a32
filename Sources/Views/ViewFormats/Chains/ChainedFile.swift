internal import FileSystem
internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto

/// One open file of a view, decrypted from its chains or samples. Any thread.
package final class ChainedFile: Sendable {
    /// The place of the ciphertext.
    enum Contents: Sendable {
        case chains(ChainMap)
        /// MP4 with samples encrypted in place. The plaintext has the file's length and offsets.
        case samples(Mp4Index, ContentKeys)
    }

    /// Identifies the content in the block cache.
    package let token: UInt64
    let contents: Contents
    /// Keys of chains.
    private let chainKeys: [CbcKey]
    /// The same keys, used without reference counts, because all readers of the file would contend on these.
    let uncountedKeys: [Unmanaged<CbcKey>]
    let source: SourceFile
    let cache: BlockCache
    let counters: Counters
    /// Stays zero, because a view changes no file.
    private let changes = ChangeCounter()

    /// - Parameters:
    ///   - contents: of `source`.
    ///   - keys: as many as the map's chains name. Empty for samples.
    ///   - cache: has blocks of ``ViewWorkspace/pageSize``.
    init(
        source: SourceFile, _ contents: Contents, keys: [CbcKey], token: UInt64, cache: BlockCache, counters: Counters
    ) {
        precondition(
            cache.blockSize == ViewWorkspace.pageSize, "internal error: cache blocks of \(cache.blockSize) bytes")
        self.source = source
        self.contents = contents
        chainKeys = keys
        uncountedKeys = keys.map { Unmanaged.passUnretained($0) }
        self.token = token
        self.cache = cache
        self.counters = counters
    }

    /// Bytes of plaintext.
    package var length: UInt64 {
        switch contents {
        case .chains(let map): map.length
        case .samples: source.size
        }
    }

    /// False for samples, because the some 26 encrypted blocks of a page (pattern 1:9) cost less than a copy in the
    /// block cache. Only pages decrypted ahead go there.
    private var isWorthCaching: Bool { if case .chains = contents { true } else { false } }

    /// Nil for samples.
    package var chains: ChainMap? { if case .chains(let map) = contents { map } else { nil } }

    /// A text for samples that differs if the file is decrypted in another way.
    package var samplesDescription: String {
        guard case .samples(let index, let keys) = contents else { return "" }
        let names = keys.all.map { "\($0.name)" }.sorted()
        return "samples, \(length) bytes\n\(index.role.movies.map(\.protections))\n\(names)"
    }

    /// Returns the keys in use with their names. For samples, includes the keys found after the open.
    package func keys(named names: [KeyName]) -> [(name: KeyName, key: CbcKey)] {
        switch contents {
        case .chains: Array(zip(names, chainKeys))
        case .samples(_, let keys): keys.all
        }
    }

    /// Reads plaintext. Returns the bytes read, less than the buffer only at the end of the file.
    /// - Throws: `.malformed` if the source file has been cut since the open; `.store`, also for a lock.
    package func read(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, isAhead: Bool = false,
        workspace: ViewWorkspace
    ) throws(ViewError) -> Int {
        let length = self.length
        guard plaintextOffset < length, buffer.count > 0 else { return 0 }
        let count = Int(min(UInt64(buffer.count), length - plaintextOffset))
        let pages = Self.page(plaintextOffset + UInt64(count) - 1) - Self.page(plaintextOffset) + 1
        let isCached = isWorthCaching && pages <= UInt64(ViewWorkspace.largestCachedRun)
        // Expect all pages after the first uncached one to be uncached, too.
        var mayBeCached = isCached || isAhead
        var done = isCached || isAhead ? 0 : decryptBeside(at: plaintextOffset, into: buffer.slice(..<count), workspace)
        while done < count {
            let offset = plaintextOffset + UInt64(done)
            let rest = buffer.slice(done..<count)
            if mayBeCached, let hit = readFromCache(at: offset, into: rest, isAhead: isAhead) {
                done += hit
            } else if isCached {
                done += try readPages(at: offset, into: rest, workspace)
            } else {
                mayBeCached = false
                let batch = min(rest.count, ViewWorkspace.batchSize)
                try decrypt(at: offset, into: rest.slice(..<batch), workspace)
                done += batch
            }
        }
        return count
    }

    /// Decrypts the whole batches of a large range on the worker and its helper at the same time.
    /// - Returns: the number of bytes read. The worker reads the rest, also if it is damaged or has no key.
    private func decryptBeside(
        at plaintextOffset: UInt64, into wanted: UnsafeMutableRawBufferPointer, _ workspace: ViewWorkspace
    ) -> Int {
        let batchSize = ViewWorkspace.batchSize
        guard let helper = workspace.helper, wanted.count >= RequestHelper.smallestShared else { return 0 }
        // Both threads have ended when `share` returns.
        nonisolated(unsafe) let wanted = wanted
        let batches = helper.share(wanted.count / batchSize, workspace) { (index, workspace) throws(StoreError) in
            let start = index * batchSize
            do throws(ViewError) {
                try self.decrypt(
                    at: plaintextOffset + UInt64(start), into: wanted.slice(start..<(start + batchSize)), workspace)
            } catch { throw .system(.interrupted) }
        }
        return batches.done * batchSize
    }

    /// Decrypts at most one batch of the pages from this offset on into the block cache. Returns its end, or `.max` at
    /// the end of the file.
    /// - Throws: as `read`.
    package func readAhead(at plaintextOffset: UInt64, workspace: ViewWorkspace) throws(ViewError) -> UInt64 {
        guard plaintextOffset < length else { return .max }
        let first = Self.page(plaintextOffset)
        let start = first * UInt64(ViewWorkspace.pageSize)
        if cache.contains(file: token, chunk: first) { return start + UInt64(ViewWorkspace.pageSize) }
        let pages = workspace.reply.slice(..<Int(min(UInt64(ViewWorkspace.batchSize), length - start)))
        try decrypt(at: start, into: pages, workspace)
        remember(first, UnsafeRawBufferPointer(pages))
        return start + UInt64(pages.count)
    }

    private static func page(_ plaintextOffset: UInt64) -> UInt64 { plaintextOffset / UInt64(ViewWorkspace.pageSize) }

    /// Copies the wanted part of the page at this offset from the block cache. Returns nil if the page is not cached.
    private func readFromCache(
        at plaintextOffset: UInt64, into wanted: UnsafeMutableRawBufferPointer, isAhead: Bool
    ) -> Int? {
        let start = Int(plaintextOffset % UInt64(ViewWorkspace.pageSize))
        let count = min(ViewWorkspace.pageSize - start, wanted.count)
        guard let destination = wanted.baseAddress,
            cache.copy(
                file: token, chunk: Self.page(plaintextOffset), range: start..<(start + count),
                isLastUse: isAhead && start + count == ViewWorkspace.pageSize, to: destination)
        else { return nil }
        counters.cacheHits.count()
        return count
    }

    /// Decrypts and caches a run of adjacent uncached pages. Returns the number of wanted bytes filled. At most
    /// ``ViewWorkspace/largestCachedRun`` pages can be wanted.
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
        let size = Int(min(next * pageSize, length) - start)
        let skipped = Int(plaintextOffset - start)
        let count = min(size - skipped, wanted.count)
        // Copy all if only a part of the first or last page is wanted, because a second pread(2) would cost more.
        let pages = count == size ? wanted.slice(..<count) : workspace.assembly.slice(..<size)
        try decrypt(at: start, into: pages, workspace)
        let plaintext = UnsafeRawBufferPointer(pages)
        remember(first, plaintext)
        if count < size { wanted.slice(..<count).copyMemory(from: plaintext.slice(skipped..<(skipped + count))) }
        return count
    }

    private func remember(_ first: UInt64, _ plaintext: UnsafeRawBufferPointer) {
        var (page, position) = (first, 0)
        while position < plaintext.count {
            let end = min(position + ViewWorkspace.pageSize, plaintext.count)
            cache.insert(
                file: token, chunk: page, plaintext.slice(position..<end), seen: changes.value, changes: changes)
            (page, position) = (page + 1, end)
        }
    }
}
