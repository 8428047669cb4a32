package import VaultCrypto

/// Finds out where the chains of a file are, format by format. Reads no more than the padding and a salt; checks what it
/// reads. Any thread.
///
/// Each function throws `.malformed`, with a text whose subject is the file or a part of it, for what the format does
/// not allow; `.store`, also where a key is forgotten.
package enum ChainFormat {
    /// `cbc-chunks`: the plaintext cut in chunks of `chunkSize` bytes, each a chain by itself under one vector.
    ///
    /// - Parameter chunkSize: 1 and more; a multiple of 16 where there is no padding.
    package static func chunks(
        of source: SourceFile, chunkSize: UInt64, vector: InitialVector, padding: CipherChain.Padding, key: CbcKey
    ) throws(ViewError) -> ChainMap {
        guard 1...ChunkPieces.largestChunk ~= chunkSize, padding == .pkcs7 || chunkSize % 16 == 0 else {
            throw .malformed("chunks of \(chunkSize) bytes cannot be, with this padding")
        }
        let encryption = CipherChain.Encryption(key: 0, vector: .bytes(vector), padding: padding)
        let stride = ChunkPieces.stride(chunkSize, padding)
        var lastLength: UInt64 = 0
        if source.size > 0 {
            let last = CipherChain(
                ciphertext: (source.size - 1) / stride * stride..<source.size, encryption: encryption)
            lastLength = try plaintextLength(of: last, in: source, part: .lastChunk, key: key)
            guard lastLength <= chunkSize else {
                throw .malformed("the last chunk holds \(lastLength) bytes: chunks are not of \(chunkSize)")
            }
        }
        return ChainMap(
            ChunkPieces(chunkSize: chunkSize, encryption: encryption, size: source.size, lastLength: lastLength))
    }

    /// `cbc`: all of the file is one chain.
    ///
    /// - Parameter vector: nil: the first 16 bytes of the file.
    package static func stream(
        of source: SourceFile, vector: InitialVector?, padding: CipherChain.Padding, key: CbcKey
    ) throws(ViewError) -> ChainMap {
        guard let vector else {
            guard source.size >= 16 else {
                throw .malformed("the file is of \(source.size) bytes: too short for an initial vector of 16")
            }
            return try stream(of: source, from: 16, vector: .inFile(at: 0), padding: padding, key: key)
        }
        return try stream(of: source, from: 0, vector: .bytes(vector), padding: padding, key: key)
    }

    /// `openssl`: the chain behind the salt. The key and the vector are those derived with it, see ``OpenSSLSalt``.
    package static func salted(
        _ source: SourceFile, vector: InitialVector, key: CbcKey
    ) throws(ViewError) -> ChainMap {
        guard source.size >= OpenSSLSalt.headerSize else { throw OpenSSLSalt.missing }
        return try stream(
            of: source, from: OpenSSLSalt.headerSize, vector: .bytes(vector), padding: .pkcs7, key: key)
    }

    private static func stream(
        of source: SourceFile, from start: UInt64, vector: CipherChain.Vector, padding: CipherChain.Padding, key: CbcKey
    ) throws(ViewError) -> ChainMap {
        let chain = CipherChain(
            ciphertext: start..<source.size,
            encryption: CipherChain.Encryption(key: 0, vector: vector, padding: padding))
        return try ChainMap(
            [(chain, try plaintextLength(of: chain, in: source, part: .file, key: key))], in: source)
    }

    /// Byte ranges of one file, each a chain or plain; what is before, between and behind them is plain.
    ///
    /// - Parameter ranges: in ascending order, none overlapping another; `keys` are what they ask for.
    package static func ranges(
        _ ranges: [CipherChain], of source: SourceFile, keys: [CbcKey]
    ) throws(ViewError) -> ChainMap {
        var chains: [(chain: CipherChain, length: UInt64)] = []
        var end: UInt64 = 0
        func addPlain(to next: UInt64) {
            guard next > end else { return }
            chains.append((CipherChain(ciphertext: end..<next, encryption: nil), next - end))
        }
        for range in ranges {
            let part = FilePart.range(range.ciphertext)
            guard range.ciphertext.lowerBound >= end else { throw .malformed("\(part) overlaps the one before") }
            guard range.ciphertext.upperBound <= source.size else {
                throw .malformed("\(part) goes beyond the end of the file, at \(source.size)")
            }
            addPlain(to: range.ciphertext.lowerBound)
            var length = range.ciphertext.upperBound - range.ciphertext.lowerBound
            if let encryption = range.encryption {
                guard keys.indices.contains(encryption.key) else {
                    preconditionFailure("internal error: key \(encryption.key) of \(keys.count)")
                }
                length = try plaintextLength(of: range, in: source, part: part, key: keys[encryption.key])
            }
            chains.append((range, length))
            end = range.ciphertext.upperBound
        }
        addPlain(to: source.size)
        return try ChainMap(chains, in: source)
    }
}
