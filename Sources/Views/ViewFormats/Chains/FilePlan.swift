package import FileSystem
internal import VaultCrypto

/// The way in which a view shows a file of its source.
package enum FileDecision: Sendable {
    /// Unchanged, because the name of its format, or the line that names it, proves it to be plaintext.
    case clear(String)
    case decrypted(FilePlan)
    /// Not shown: an open fails.
    case refused(ViewError)
    /// Unchanged, because the view does not know how to decrypt it.
    case asItIs(String)
}

/// The way to read one file of a view, and the keys for it. Any thread.
package struct FilePlan: Sendable {
    enum Layout: Equatable, Sendable {
        case chunks(size: UInt64, InitialVector, CipherChain.Padding)
        /// Without a vector, the first 16 bytes of the file are the vector.
        case stream(InitialVector?, CipherChain.Padding)
        /// Without a vector, the key's derivation gives it.
        case salted(hasHeader: Bool, InitialVector?)
        /// A file of plaintext has no parts.
        case segment(HlsSegment)
        case playlist(HlsPlaylistContent)
        case samples(Mp4Plan)
    }

    let layout: Layout
    /// The keys, in the order of the chains' key numbers.
    package let keyNames: [KeyName]
    /// Nil if a key for any cipher will do.
    let cipher: ViewCipher?
    /// The file's path, for messages.
    let path: [UInt8]

    /// Returns the plan of a file of plaintext.
    static func plain(_ path: [UInt8]) -> FilePlan {
        FilePlan(layout: .segment(HlsSegment([])), keyNames: [], cipher: nil, path: path)
    }

    /// Equal for plans that read an unchanged source file in the same way. Two readings of a playlist are never equal,
    /// because its segments, whose offsets it contains, may have changed. Leaves out an MP4 file's large boxes.
    package struct Identity: Equatable, Sendable {
        /// Nil for samples.
        fileprivate let layout: Layout?
        fileprivate let samples: Mp4Plan.Identity?
        fileprivate let keyNames: [KeyName]
        fileprivate let cipher: ViewCipher?
    }

    package var identity: Identity {
        let samples: Mp4Plan.Identity? = if case .samples(let plan) = layout { plan.identity } else { nil }
        return Identity(layout: samples == nil ? layout : nil, samples: samples, keyNames: keyNames, cipher: cipher)
    }

    /// Opens the file's plaintext. Reads only the padding. For a playlist, reads the padding of the segments whose byte
    /// ranges it names.
    /// - Parameters:
    ///   - keys: the keys of `keyNames`.
    ///   - store: has or fetches the keys for parts of an MP4 file.
    ///   - waits: true if a read may wait for these.
    ///   - token: identifies the content in `cache`.
    /// - Throws: `.malformed`; `.noKey` if a key has the wrong length; `.store`.
    package func open(
        _ source: SourceFile, keys: [KeyMaterial], from store: KeyStore, waits: Bool, token: UInt64, cache: BlockCache,
        counters: Counters
    ) throws(ViewError) -> OpenContent {
        let ciphers = try keys.map(cipherKey)
        let map: ChainMap
        switch layout {
        case .chunks(let size, let vector, let padding):
            map = try ChainFormat.chunks(of: source, chunkSize: size, vector: vector, padding: padding, key: ciphers[0])
        case .stream(let vector, let padding):
            map = try ChainFormat.stream(of: source, vector: vector, padding: padding, key: ciphers[0])
        case .salted(let hasHeader, let given):
            guard let vector = given ?? keys[0].iv?.withUnsafeBytes({ InitialVector($0) }) else {
                preconditionFailure("internal error: a derived key without its vector")
            }
            // The chain comes after the header.
            map = try ChainFormat.stream(
                of: source, from: hasHeader ? 16 : 0, vector: .bytes(vector), padding: .pkcs7, key: ciphers[0])
        case .segment(let segment):
            map = try ChainFormat.segment(segment, of: source, keys: ciphers)
        case .playlist(let playlist): return .text(try playlist.rendered(ciphers))
        case .samples(let plan):
            let content = ContentKeys(Array(zip(keyNames, ciphers)), plan.naming, from: store, waits: waits)
            return .chained(
                ChainedFile(
                    source: source, .samples(try plan.index(source), content), keys: [], token: token, cache: cache,
                    counters: counters))
        }
        return .chained(
            ChainedFile(source: source, .chains(map), keys: ciphers, token: token, cache: cache, counters: counters))
    }

    private func cipherKey(_ material: KeyMaterial) throws(ViewError) -> CbcKey {
        if let cipher { try material.check(fits: cipher, path: path) }
        // Copy the key, because a lock wipes each file's key in place.
        let own = material.key.subrange(0..<material.key.count)
        return try ViewError.ofCrypto(CbcKey(own))
    }
}

/// The plaintext of an open file: decrypted on each read, or the text of a playlist. Any thread.
package enum OpenContent: Sendable {
    case chained(ChainedFile)
    case text([UInt8])

    /// Length in bytes.
    package var length: UInt64 {
        switch self {
        case .chained(let file): file.length
        case .text(let text): UInt64(text.count)
        }
    }

    /// Fills `buffer` up to the end of the file. Returns the bytes read.
    /// - Throws: as ``ChainedFile/read(at:into:isAhead:workspace:)``.
    package func read(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, isAhead: Bool = false,
        workspace: ViewWorkspace
    ) throws(ViewError) -> Int {
        switch self {
        case .chained(let file):
            return try file.read(at: plaintextOffset, into: buffer, isAhead: isAhead, workspace: workspace)
        case .text(let text):
            guard plaintextOffset < UInt64(text.count) else { return 0 }
            let rest = text[Int(plaintextOffset)...].prefix(buffer.count)
            buffer.copyBytes(from: rest)
            return rest.count
        }
    }

    /// Decrypts ahead.
    /// - Throws: as ``ChainedFile/readAhead(at:workspace:)``.
    package func readAhead(at plaintextOffset: UInt64, workspace: ViewWorkspace) throws(ViewError) -> UInt64 {
        guard case .chained(let file) = self else { return .max }
        return try file.readAhead(at: plaintextOffset, workspace: workspace)
    }
}
