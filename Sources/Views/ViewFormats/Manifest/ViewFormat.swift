/// The formats, as on the command line and in `view.json`.
package enum ViewFormatName: String, CaseIterable, Codable, Sendable {
    case cbcChunks = "cbc-chunks"
    case cbc, openssl, hls, mp4
}

/// The ciphers of views: AES in CBC mode (NIST SP 800-38A).
package enum ViewCipher: String, CaseIterable, Codable, Hashable, Sendable {
    case aes128CBC = "aes-128-cbc"
    case aes192CBC = "aes-192-cbc"
    case aes256CBC = "aes-256-cbc"

    /// In bytes.
    package var keySize: Int {
        switch self {
        case .aes128CBC: 16
        case .aes192CBC: 24
        case .aes256CBC: 32
        }
    }
}

/// The encryption of a view's files. An entry in `view.json` overrides this for its files.
package struct ViewFormat: Codable, Equatable, Sendable {
    package enum Layout: Codable, Equatable, Sendable {
        /// Chunks of `size` bytes of plaintext, each a chain.
        case chunks(size: UInt64)
        /// The file is one chain.
        case stream(isVectorInFile: Bool)
        /// The form of files written by `openssl enc` with a passphrase.
        case openssl
        /// The chains named by the playlists.
        case hls
        /// The samples named by the boxes of MP4 files.
        case mp4
    }

    package var layout: Layout
    /// Nil if the key's length decides.
    package var cipher: ViewCipher?
    package var vector: InitialVector?
    package var padding: CipherChain.Padding
    /// `openssl`: the salt of files without a header, empty for none. Nil if all files have one.
    package var salt: [UInt8]?

    package init(
        layout: Layout, cipher: ViewCipher? = nil, vector: InitialVector? = nil,
        padding: CipherChain.Padding = .pkcs7, salt: [UInt8]? = nil
    ) {
        self.layout = layout
        self.cipher = cipher
        self.vector = vector
        self.padding = padding
        self.salt = salt
    }

    package var name: ViewFormatName {
        switch layout {
        case .chunks: .cbcChunks
        case .stream: .cbc
        case .openssl: .openssl
        case .hls: .hls
        case .mp4: .mp4
        }
    }
}
