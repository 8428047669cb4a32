/// Names a key of a playlist: how it is found is not said here. The URI is as the playlist has it.
package struct HlsKeyName: Hashable, Sendable {
    package var uri: [UInt8]
    /// Of the playlist, relative to the source; empty: the source itself.
    package var directory: [UInt8]

    package init(uri: [UInt8], directory: [UInt8]) {
        self.uri = uri
        self.directory = directory
    }
}

extension HlsKeyName {
    /// The same for two names of one key: the whole URI, or the path from the source that a relative one means.
    private var meaning: [UInt8] {
        guard let path = HlsURI.paths(uri, directory: directory).last else { return uri }
        return HlsURI.normalized(path)
    }

    func means(_ other: HlsKeyName) -> Bool {
        self == other || meaning == other.meaning
    }
}
