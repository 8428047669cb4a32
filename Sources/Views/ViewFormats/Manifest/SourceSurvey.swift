internal import Glibc
package import LinuxSystem

/// Describes a directory's files without keys, by the decisions of an hls view and by their first bytes. Any thread.
package struct SourceSurvey: Sendable {
    /// A file's description.
    package struct Entry: Sendable {
        /// Relative to the directory.
        package let path: [UInt8]
        package let inspection: SourceInspection
        /// The way in which an hls view of the directory shows the file. Nil for a file that playlists do not name.
        package let decision: FileDecision?
    }

    private let root: Descriptor
    private let source: ViewSource

    /// Reads the playlists of a directory.
    /// - Parameter isDeep: also reads those of the directories inside.
    /// - Throws: `.system` with errno of the directory.
    package init(_ root: Descriptor, isDeep: Bool) throws(StoreError) {
        self.root = root
        source = ViewSource(
            root: root, format: ViewFormat(layout: .hls), manifest: nil, keys: KeyStore(KeySources(root: root)),
            hasSharedKey: false)
        try source.scan(isDeep: isDeep)
    }

    /// The defects of the playlists, for people.
    package var problems: [String] { source.problems }

    /// Describes each regular file.
    /// - Throws: `.system` with errno of the directory.
    package func visit(_ body: ([UInt8], Result<Entry, ViewError>) -> Void) throws(StoreError) {
        try SourceWalk(root).run(from: []) { entry, path, directory in
            guard let status = try? directory.descriptor.status(of: entry), status.st_mode & S_IFMT == S_IFREG else {
                return true
            }
            let described: Result<Entry, ViewError> = Result { () throws(ViewError) in try self.entry(path) }
            body(path, described)
            return true
        }
    }

    /// - Parameter path: of a regular file, relative to the directory.
    /// - Throws: `.store` if it cannot be read.
    package func entry(_ path: [UInt8]) throws(ViewError) -> Entry {
        let opened = try ViewError.ofStore(SourceFile(Descriptor(object: path, in: root).openedRegularFile()))
        let decision: FileDecision? =
            switch source.decision(on: path, opened) {
            case .asItIs: nil
            case let known: known
            }
        return Entry(path: path, inspection: try SourceInspection(of: opened), decision: decision)
    }
}

extension FilePlan {
    /// The form of the ciphertext, for people. Nil for a playlist.
    package var form: String? {
        switch layout {
        case .segment(let segment):
            let count = segment.parts.count
            return count > 1 ? "HLS, METHOD=AES-128, \(count) parts" : "HLS, METHOD=AES-128"
        case .samples(let plan):
            return "HLS, METHOD=SAMPLE-AES, \(Set(plan.protections.map(\.text)).sorted().joined(separator: "; "))"
        case .chunks, .stream, .salted, .playlist: return nil
        }
    }

    /// The URIs and the identifiers of the keys, in the form for `--key`.
    package var keyTexts: [String] {
        var names = keyNames
        // An init segment itself needs no key, so name those of its segments.
        if case .samples(let plan) = layout, names.isEmpty { names = plan.movieKeyNames }
        return names.compactMap { name in
            switch name {
            case .uri(let uri, _, _): HlsURI.text(uri)
            case .content(let id, _, _, _): id.text
            case .shared, .manifest, .path, .derived: nil
            }
        }
    }
}
