internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto

/// How one file of a view is to be read: which keys that takes, and what is made of them. Any thread.
package struct FilePlan: Sendable {
    enum Layout: Sendable {
        case plain
        case chunks(size: UInt64, InitialVector, CipherChain.Padding)
        /// No vector: it is the file's first 16 bytes.
        case stream(InitialVector?, CipherChain.Padding)
        case salted
        case segment(HlsSegment)
        case playlist(HlsPlaylistContent, HlsTree)
    }

    let layout: Layout
    /// The keys, in the order of the chains' numbers.
    package let keyNames: [KeyName]
    /// Nil: any.
    let cipher: ViewCipher?
    /// Of the file, for messages.
    let path: [UInt8]

    /// Whether the same source file, unchanged, would be read in the same way by `other`.
    package func isSame(as other: FilePlan) -> Bool {
        guard keyNames == other.keyNames, cipher == other.cipher else { return false }
        switch (layout, other.layout) {
        case (.plain, .plain), (.salted, .salted): return true
        case (.chunks(let size, let vector, let padding), .chunks(let otherSize, let otherVector, let otherPadding)):
            return size == otherSize && vector == otherVector && padding == otherPadding
        case (.stream(let vector, let padding), .stream(let otherVector, let otherPadding)):
            return vector == otherVector && padding == otherPadding
        case (.segment(let segment), .segment(let other)): return segment.parts == other.parts
        // The segments that it tells the offsets of may have changed.
        default: return false
        }
    }

    /// What the file's plaintext is. Reads padding and no more; of a playlist, that of the segments whose byte ranges it
    /// names.
    /// - Parameter keys: of `keyNames`.
    /// - Throws: `.malformed`; `.noKey` where a key has the wrong length; `.store`.
    package func open(_ source: SourceFile, keys: [KeyMaterial]) throws(ViewError) -> FileContent {
        let ciphers = try keys.map { (key) throws(ViewError) in try cipherKey(key) }
        switch layout {
        case .plain:
            return .chained(try ChainFormat.ranges([], of: source, keys: []), [])
        case .chunks(let size, let vector, let padding):
            let map = try ChainFormat.chunks(
                of: source, chunkSize: size, vector: vector, padding: padding, key: ciphers[0])
            return .chained(map, ciphers)
        case .stream(let vector, let padding):
            return .chained(
                try ChainFormat.stream(of: source, vector: vector, padding: padding, key: ciphers[0]), ciphers)
        case .salted:
            guard let vector = keys[0].iv?.withUnsafeBytes({ InitialVector($0) }) else {
                preconditionFailure("internal error: a derived key without its vector")
            }
            return .chained(try ChainFormat.salted(source, vector: vector, key: ciphers[0]), ciphers)
        case .segment(let segment):
            let map = try ChainFormat.ranges(segment.chains(size: source.size), of: source, keys: ciphers)
            return .chained(map, ciphers)
        case .playlist(let playlist, let tree):
            return .text(try render(playlist, tree, ciphers))
        }
    }

    private func cipherKey(_ material: KeyMaterial) throws(ViewError) -> CbcKey {
        if let cipher { try material.check(fits: cipher, path: path) }
        // A copy, since a lock wipes it in place, file by file.
        let own = material.key.subrange(0..<material.key.count)
        do throws(CryptoError) { return try CbcKey(own) } catch { throw .store(StoreError(error)) }
    }

    private func render(
        _ playlist: HlsPlaylistContent, _ tree: HlsTree, _ keys: [CbcKey]
    ) throws(ViewError) -> [UInt8] {
        var first = 0
        var maps: [HlsRangeMap] = []
        for needed in playlist.needed {
            let own = Array(keys[first..<(first + needed.segment.keys.count)])
            first += own.count
            maps.append(try Self.rangeMap(of: needed, in: tree, own))
        }
        return try playlist.rendered { (number, bytes) throws(ViewError) in try maps[number].plaintext(of: bytes) }
    }

    private static func rangeMap(
        of needed: HlsPlaylistContent.Needed, in tree: HlsTree, _ keys: [CbcKey]
    ) throws(ViewError) -> HlsRangeMap {
        let source: SourceFile
        do throws(StoreError) {
            let file = try tree.file(needed.path)
            let status = try file.status()
            guard FileIdentity(status) == needed.identity else { throw .system(.staleNFSFileHandle) }
            source = SourceFile(file, size: UInt64(max(0, status.st_size)))
        } catch {
            throw .store(error)
        }
        let map = try ChainFormat.ranges(needed.segment.chains(size: source.size), of: source, keys: keys)
        return HlsRangeMap(
            (0..<map.count).map { number in
                .init(ciphertext: map[number].chain.ciphertext, plaintext: map[number].plaintext)
            })
    }
}

/// The plaintext of a file: where it is, or what.
package enum FileContent: Sendable {
    case chained(ChainMap, [CbcKey])
    case text([UInt8])

    /// Bytes.
    package var length: UInt64 {
        switch self {
        case .chained(let map, _): map.length
        case .text(let text): UInt64(text.count)
        }
    }
}
