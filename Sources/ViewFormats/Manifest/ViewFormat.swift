/// How the files of a view are encrypted, as its options say. What `view.json` says of a file comes before it.
package struct ViewFormat: Codable, Equatable, Sendable {
    package enum Layout: Codable, Equatable, Sendable {
        /// Pieces of so many bytes of plaintext, each a chain.
        case chunks(size: UInt64)
        /// One chain.
        case stream(isVectorInFile: Bool)
        /// As `openssl enc` with a passphrase makes them.
        case openssl
        /// What playlists say.
        case hls
    }

    package var layout: Layout
    /// Nil: the key's length tells.
    package var cipher: ViewCipher?
    package var vector: InitialVector?
    package var padding: CipherChain.Padding

    package init(
        layout: Layout, cipher: ViewCipher? = nil, vector: InitialVector? = nil, padding: CipherChain.Padding = .pkcs7
    ) {
        self.layout = layout
        self.cipher = cipher
        self.vector = vector
        self.padding = padding
    }

    /// As on the command line and in `view.json`.
    package var name: String {
        switch layout {
        case .chunks: "cbc-chunks"
        case .stream: "cbc"
        case .openssl: "openssl"
        case .hls: "hls"
        }
    }
}
