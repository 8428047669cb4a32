internal import LinuxSystem
package import VaultCrypto

/// Finds the chains of a file, for each format. Reads only the salt and the padding, and checks both. Any thread.
///
/// Each function throws `.malformed` if the file has another format, with a text whose subject is the file or a part of
/// it. It throws `.store` if reading fails or a key is forgotten.
package enum ChainFormat {
    /// Returns the map for `cbc-chunks`: chunks of `chunkSize` bytes of plaintext, each a chain with the same vector.
    ///
    /// - Parameter chunkSize: at least 1. A multiple of 16 without padding.
    /// - Throws: `.malformed`; `.store` if reading fails.
    package static func chunks(
        of source: SourceFile, chunkSize: UInt64, vector: InitialVector, padding: CipherChain.Padding, key: CbcKey
    ) throws(ViewError) -> ChainMap {
        guard 1...ChunkPieces.largestChunk ~= chunkSize, padding == .pkcs7 || chunkSize % 16 == 0 else {
            throw .malformed("chunks of \(chunkSize) bytes are not possible with this padding")
        }
        let encryption = CipherChain.Encryption(key: 0, vector: .bytes(vector), padding: padding)
        let stride = ChunkPieces.stride(chunkSize, padding)
        var lastLength: UInt64 = 0
        if source.size > 0 {
            let last = CipherChain(
                ciphertext: (source.size - 1) / stride * stride..<source.size, encryption: encryption)
            lastLength = try plaintextLength(of: last, in: source, part: "the last chunk", key: key)
            guard lastLength <= chunkSize else {
                throw .malformed("the last chunk holds \(lastLength) bytes: the chunk size is not \(chunkSize)")
            }
        }
        return ChainMap(
            ChunkPieces(chunkSize: chunkSize, encryption: encryption, size: source.size, lastLength: lastLength))
    }

    /// Returns the map for `cbc`: the file is one chain.
    ///
    /// - Parameter vector: nil for the first 16 bytes of the file.
    /// - Throws: `.malformed`; `.store` if reading fails.
    package static func stream(
        of source: SourceFile, vector: InitialVector?, padding: CipherChain.Padding, key: CbcKey
    ) throws(ViewError) -> ChainMap {
        if let vector { return try stream(of: source, from: 0, vector: .bytes(vector), padding: padding, key: key) }
        guard source.size >= 16 else {
            throw .malformed("the file has \(source.size) bytes: too short for an initial vector of 16")
        }
        return try stream(of: source, from: 16, vector: .inFile(at: 0), padding: padding, key: key)
    }

    /// The first bytes of a file of `openssl enc -a`: `Salted__` in base64.
    static let base64Start = Array("U2FsdGVkX1".utf8)

    /// Returns the salt of a file of `openssl enc`. The file begins with `Salted__` and 8 bytes of salt
    /// (openssl-enc(1)), unless it was made with `-nosalt`, or with `-S` by OpenSSL 3.
    /// - Parameter given: the salt of a file without this header.
    /// - Throws: `.malformed`; `.store` if reading fails.
    package static func salt(
        of source: SourceFile, otherwise given: [UInt8]? = nil
    ) throws(ViewError) -> (bytes: [UInt8], hasHeader: Bool) {
        guard source.size > 0 else { throw .malformed("the file is empty: it has no Salted__ header") }
        let header = source.size >= 16 ? try source.bytes(at: 0, 16) : []
        guard header.starts(with: "Salted__".utf8) else {
            if header.starts(with: base64Start) {
                throw .malformed("base64, as 'openssl enc -a' writes it: decode it first, with 'base64 -d'")
            }
            if let given { return (given, false) }
            throw .malformed(
                "no Salted__ header: made with -nosalt, or with -S by OpenSSL 3 (--salt gives that salt), or not by openssl enc"
            )
        }
        return (Array(header[8...]), true)
    }

    /// Returns the map for a file that is one chain from `start` on.
    /// - Throws: `.malformed`; `.store` if reading fails.
    static func stream(
        of source: SourceFile, from start: UInt64, vector: CipherChain.Vector, padding: CipherChain.Padding, key: CbcKey
    ) throws(ViewError) -> ChainMap {
        let chain = CipherChain(
            ciphertext: start..<source.size,
            encryption: CipherChain.Encryption(key: 0, vector: vector, padding: padding))
        return ChainMap([(chain, try plaintextLength(of: chain, in: source, part: "the file", key: key))])
    }

    /// Returns the map for `hls`: the parts named as encrypted by the playlists. The rest of the file is plaintext.
    ///
    /// - Parameters:
    ///   - keys: the keys of `segment.keys`.
    ///   - interruption: stops the work on many parts.
    static func segment(
        _ segment: HlsSegment, of source: SourceFile, keys: [CbcKey], _ interruption: Interruption? = nil
    ) throws(ViewError) -> ChainMap {
        try ranges(chains(of: segment, size: source.size), of: source, keys: keys, interruption)
    }

    static func chains(of segment: HlsSegment, size: UInt64) -> [CipherChain] {
        let numbers = Dictionary(uniqueKeysWithValues: zip(segment.keys, segment.keys.indices))
        return segment.parts.map { part in
            let encryption = CipherChain.Encryption(
                key: numbers[part.encryption.key] ?? 0, vector: .bytes(part.encryption.vector), padding: .pkcs7)
            return CipherChain(ciphertext: part.bytes ?? 0..<size, encryption: encryption)
        }
    }

    /// The number of ranges read in some milliseconds.
    private static let rangesBetweenChecks = 256

    /// Returns the map of byte ranges of one file, each a chain or plaintext. All bytes outside them are plaintext.
    ///
    /// - Parameters:
    ///   - ranges: in ascending order, without overlap.
    ///   - keys: as many as the ranges name.
    /// - Throws: `.malformed`; `.store` if reading fails.
    package static func ranges(
        _ ranges: [CipherChain], of source: SourceFile, keys: [CbcKey], _ interruption: Interruption? = nil
    ) throws(ViewError) -> ChainMap {
        var chains: [(chain: CipherChain, length: UInt64)] = []
        var end: UInt64 = 0
        func addPlain(to next: UInt64) {
            guard next > end else { return }
            chains.append((CipherChain(ciphertext: end..<next, encryption: nil), next - end))
        }
        for (number, range) in ranges.enumerated() {
            if number % rangesBetweenChecks == 0 { try interruption?.check() }
            let bytes = range.ciphertext
            func part() -> String { "the byte range \(bytes.lowerBound)-\(bytes.upperBound)" }
            guard bytes.lowerBound >= end else { throw .malformed("\(part()) overlaps the one before") }
            guard bytes.upperBound <= source.size else {
                throw .malformed("\(part()) goes beyond the end of the file, at \(source.size)")
            }
            addPlain(to: bytes.lowerBound)
            var length = bytes.upperBound - bytes.lowerBound
            if let encryption = range.encryption {
                guard keys.indices.contains(encryption.key) else {
                    preconditionFailure("internal error: key \(encryption.key) of \(keys.count)")
                }
                length = try plaintextLength(of: range, in: source, part: part(), key: keys[encryption.key])
            }
            chains.append((range, length))
            end = bytes.upperBound
        }
        addPlain(to: source.size)
        return ChainMap(chains)
    }

    // MARK: Padding

    /// Returns the bytes of plaintext in a chain. Reads at most its last two blocks, and checks the whole padding
    /// (PKCS#7, RFC 5652 section 6.3).
    private static func plaintextLength(
        of chain: CipherChain, in source: SourceFile, part: @autoclosure () -> String, key: CbcKey
    ) throws(ViewError) -> UInt64 {
        let size = chain.ciphertext.upperBound - chain.ciphertext.lowerBound
        guard let encryption = chain.encryption else { return size }
        guard size % 16 == 0 else {
            throw .malformed("\(part()) has \(size) bytes of ciphertext, not a multiple of 16: cut, or not AES-CBC")
        }
        guard encryption.padding == .pkcs7 else { return size }
        guard size > 0 else { throw .malformed("\(part()) has no ciphertext: padding alone takes 16 bytes") }
        let last = try lastBlock(of: chain, encryption.vector, in: source, key: key)
        // The padding is 1 to 16, in as many bytes of this value.
        let padding = last.withUnsafeBytes { block in
            block.last.flatMap { last in
                1...16 ~= last && block.suffix(Int(last)).allSatisfy { $0 == last } ? UInt64(last) : nil
            }
        }
        guard let padding else {
            throw .malformed("\(part()) ends in no valid padding: the key is wrong, or the file is damaged or cut")
        }
        return size - padding
    }

    /// Decrypts the last block of a non-empty chain.
    private static func lastBlock(
        of chain: CipherChain, _ vector: CipherChain.Vector, in source: SourceFile, key: CbcKey
    ) throws(ViewError) -> SecretBytes {
        let start = chain.ciphertext.upperBound - 16
        var blocks = [UInt8](repeating: 0, count: 32)
        try blocks.withMutableBytes { (blocks) throws(ViewError) in
            if start > chain.ciphertext.lowerBound { return try source.read(at: start - 16, into: blocks) }
            switch vector {
            case .bytes(let bytes): bytes.store(into: blocks)
            case .inFile(let offset): try source.read(at: offset, into: blocks.slice(..<16))
            }
            try source.read(at: start, into: blocks.slice(16...))
        }
        return try ViewError.ofCrypto(
            SecretBytes(count: 16) { (plaintext) throws(CryptoError) in
                let decryptor = try CbcDecryptor()
                try blocks.withBytes { (blocks) throws(CryptoError) in
                    guard let previous = blocks.baseAddress else { return }
                    try decryptor.decrypt(blocks.slice(16...), vector: previous, key: key, into: plaintext)
                }
            })
    }
}
