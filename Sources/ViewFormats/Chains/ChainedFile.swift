package import FileSystem
package import VaultCrypto

/// One open file of a view: plaintext offsets in, somebody else's ciphertext on disk. Any thread.
package final class ChainedFile: Sendable {
    /// Names this open file in the block cache.
    package let token: UInt64
    package let map: ChainMap
    package let keys: [CbcKey]
    /// The same, to be used without counting references: all who read a file would count at one place.
    let uncountedKeys: [Unmanaged<CbcKey>]
    let source: SourceFile
    let cache: BlockCache
    let counters: Counters
    /// A view never changes a file: nothing moves it.
    let changes = ChangeCounter()

    /// - Parameters:
    ///   - map: made for `source`.
    ///   - keys: as many as the map's chains ask for.
    ///   - cache: of blocks of ``ViewWorkspace/pageSize``.
    package init(
        source: SourceFile, map: ChainMap, keys: [CbcKey], token: UInt64, cache: BlockCache, counters: Counters
    ) {
        precondition(
            keys.count >= map.keyCount && cache.blockSize == ViewWorkspace.pageSize,
            "internal error: \(keys.count) keys, cache blocks of \(cache.blockSize) bytes")
        self.source = source
        self.map = map
        self.keys = keys
        uncountedKeys = keys.map { Unmanaged.passUnretained($0) }
        self.token = token
        self.cache = cache
        self.counters = counters
    }

    /// Bytes of plaintext.
    package var length: UInt64 { map.length }
}
