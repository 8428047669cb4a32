internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto

/// A playlist that was just read, from which the mount's text is made. Equal only to itself.
final class HlsPlaylistContent: Equatable, Sendable {
    /// A file whose plaintext offsets the text contains.
    struct Needed: Sendable {
        let identity: FileIdentity
        /// From the source. The path can lead to another file by then.
        let path: [UInt8]
        let segment: HlsSegment
    }

    /// The parts of a text that waits for keys.
    fileprivate struct Template: Sendable {
        let playlist: Playlist
        /// One for each reference.
        let shown: [ShownReference]
        /// For each reference, its position in `needed`.
        let numbers: [Int?]
    }

    private enum State: Sendable {
        /// The text, which depends on no keys.
        case text([UInt8])
        case template(Template)
    }

    /// Empty if the text depends on no keys.
    let needed: [Needed]
    private let state: State
    private let path: [UInt8]
    private let index: HlsIndex

    /// - Parameter decisions: about the files of the references.
    /// - Throws: `.malformed`.
    init(
        _ reading: HlsReading, _ playlist: Playlist, _ decisions: [HlsDecision?], in index: HlsIndex
    ) throws(ViewError) {
        (path, self.index) = (reading.path, index)
        var needed: [Needed] = []
        var positions: [FileIdentity: Int] = [:]
        var numbers = [Int?](repeating: nil, count: playlist.references.count)
        for (number, reference) in playlist.references.enumerated() {
            guard reference.bytes != nil, let target = reading.targets[number],
                case .chains(let segment) = decisions[number]
            else { continue }
            if let position = positions[target.identity] {
                numbers[number] = position
            } else if segment.isRanged || reference.isTail(of: target.size) {
                positions[target.identity] = needed.count
                numbers[number] = needed.count
                needed.append(Needed(identity: target.identity, path: target.path, segment: segment))
            }
        }
        self.needed = needed
        let template = Template(
            playlist: playlist,
            shown: playlist.references.indices.map {
                reading.appearance($0, of: playlist.references[$0], decisions[$0])
            }, numbers: numbers)
        // No range of a text without needed files changes.
        state = needed.isEmpty ? .text(try template.rendered { _, bytes in bytes }) : .template(template)
        if case .text(let text) = state { index.setSize(UInt64(text.count), of: path) }
    }

    static func == (one: HlsPlaylistContent, other: HlsPlaylistContent) -> Bool { one === other }

    /// The text that the mount shows.
    ///
    /// - Parameter keys: of the needed files, one after another.
    func rendered(_ keys: [CbcKey]) throws(ViewError) -> [UInt8] {
        var rest = keys[...]
        let maps = try needed.map { (needed) throws(ViewError) in
            let own = Array(rest.prefix(needed.segment.keys.count))
            rest = rest.dropFirst(own.count)
            let source = try ViewError.ofStore { () throws(StoreError) in
                let file = try index.root.regularFile(beneath: needed.path)
                let status = try file.status()
                guard FileIdentity(status) == needed.identity else { throw .system(.staleNFSFileHandle) }
                return SourceFile(file, status)
            }
            return try ChainFormat.segment(needed.segment, of: source, keys: own, index.work.interruption)
        }
        let text = try rendered { (number, bytes) throws(ViewError) in try maps[number].plaintext(of: bytes) }
        index.setSize(UInt64(text.count), of: path)
        return text
    }

    /// - Parameter plaintext: returns the plaintext offsets of these bytes of `needed[$0]`.
    func rendered(_ plaintext: (Int, Range<UInt64>) throws(ViewError) -> Range<UInt64>) throws(ViewError) -> [UInt8] {
        switch state {
        case .text(let text): text
        case .template(let template): try template.rendered(plaintext)
        }
    }
}

extension HlsPlaylistContent.Template {
    fileprivate func rendered(
        _ plaintext: (Int, Range<UInt64>) throws(ViewError) -> Range<UInt64>
    ) throws(ViewError) -> [UInt8] {
        let text = try playlist.rendered { (number, reference) throws(ViewError) in
            var shown = shown[number]
            // A reference that is left keeps its length, which a player widens itself.
            if let needed = numbers[number], let bytes = shown.needsKeys ? reference.bytes : reference.ciphertext {
                shown.bytes = try plaintext(needed, bytes)
            }
            return shown
        }
        guard let text else { throw .malformed("the playlist's text becomes too long") }
        return text
    }
}
