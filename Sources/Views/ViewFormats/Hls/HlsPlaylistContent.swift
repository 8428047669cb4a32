internal import LinuxSystem
internal import VaultCrypto

/// A playlist just read, from which the mount's text is made. Equal only to itself.
final class HlsPlaylistContent: Equatable, Sendable {
    /// A file with plaintext offsets in the text.
    struct Needed: Sendable {
        let identity: FileIdentity
        /// The path below the source. It can lead to another file by the time it is opened.
        let path: [UInt8]
        let segment: HlsSegment
    }

    /// The parts of a text not yet rendered, because it needs keys.
    fileprivate struct Template: Sendable {
        let playlist: Playlist
        /// One for each reference.
        let shown: [ShownReference]
        /// For each reference, its position in `needed`.
        let numbers: [Int?]
    }

    private enum State: Sendable {
        /// The text, which does not depend on keys.
        case text([UInt8])
        case template(Template)
    }

    /// Empty if the text depends on no keys.
    let needed: [Needed]
    private let state: State
    private let path: [UInt8]
    private let index: HlsIndex

    /// Chooses the needed files.
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
        // Without needed files, the ranges of the text do not change.
        state = needed.isEmpty ? .text(try template.rendered { _, bytes in bytes }) : .template(template)
        if case .text(let text) = state { index.setSize(UInt64(text.count), of: path) }
    }

    static func == (one: HlsPlaylistContent, other: HlsPlaylistContent) -> Bool { one === other }

    /// Returns the text shown by the mount.
    ///
    /// - Parameter keys: the keys of the needed files, one file after another.
    func rendered(_ keys: [CbcKey]) throws(ViewError) -> [UInt8] {
        var rest = keys[...]
        let maps = try needed.map { (needed) throws(ViewError) in
            let own = Array(rest.prefix(needed.segment.keys.count))
            rest = rest.dropFirst(own.count)
            let source = try ViewError.ofStore(index.root.sourceFile(beneath: needed.path, needed.identity))
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
            // Keep the length of a reference left encrypted, because a player widens it itself.
            if let needed = numbers[number], let bytes = shown.needsKeys ? reference.bytes : reference.ciphertext {
                shown.bytes = try plaintext(needed, bytes)
            }
            return shown
        }
        guard let text else { throw .malformed("the playlist's text becomes too long") }
        return text
    }
}
