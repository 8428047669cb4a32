/// The way in which the mount shows one reference of a playlist.
struct ShownReference: Equatable, Sendable {
    /// True if the mount does not show the resource decrypted, so its key lines must be in force.
    var needsKeys = false
    /// False for a reference without a resource, which any keys may cover.
    var isResource = true
    /// The new URI, if the resource is elsewhere than its URI says.
    var uri: [UInt8]?
    /// The plaintext offsets of the byte range, if they differ from the playlist's.
    var bytes: Range<UInt64>?
}

/// The text of a playlist shown by the mount: one rule for all tags.
///
/// Each reference either needs its key lines to be in force, or must have none. It needs them unless its resource is
/// plaintext, or the mount shows it decrypted. A key line stays if it is in force where it is needed, and is removed
/// otherwise. If only some references under the same key need it, the key lines are repeated or `METHOD=NONE` is added
/// before a reference. If every reference needs its keys, the text is the original.
extension Playlist {
    private struct Edit {
        var range: Range<Int>
        var replacement: [UInt8]
    }

    /// Returns the key lines in force after some more: for each KEYFORMAT, the position in `keyLines`.
    private func applying(_ lines: Range<Int>, to inForce: [Int]) -> [Int] {
        var result = inForce
        for line in lines {
            guard let format = keyLines[line].format else {
                result = []
                continue
            }
            result.removeAll { keyLines[$0].format == format }
            result.append(line)
        }
        return result
    }

    private static let noKey = Array("#EXT-X-KEY:METHOD=NONE\n".utf8)

    /// Maximum number of bytes that rendering can add, so that a hostile playlist takes bounded memory.
    private static let maximumAddition = maximumSize

    /// Returns the text, or nil if it would become much larger.
    ///
    /// - Parameter shown: returns how a reference is shown. Called once for each, in order.
    func rendered<Failure>(
        _ shown: (Int, Reference) throws(Failure) -> ShownReference
    ) throws(Failure) -> [UInt8]? {
        guard let edits = try edits(shown) else { return nil }
        var result: [UInt8] = []
        result.reserveCapacity(text.count)
        var position = 0
        for edit in edits {
            result += text[position..<edit.range.lowerBound]
            result += edit.replacement
            position = edit.range.upperBound
        }
        return result + text[position...]
    }

    private func edits<Failure>(
        _ shown: (Int, Reference) throws(Failure) -> ShownReference
    ) throws(Failure) -> [Edit]? {
        var edits: [Edit] = []
        var added = 0
        func add(_ edit: Edit) {
            added += edit.replacement.count
            edits.append(edit)
        }
        var (original, inForce): ([Int], [Int]) = ([], [])
        var (next, number) = (0, 0)
        var isAnyLeft = false
        while number < references.count, added <= Self.maximumAddition {
            let (start, keyLineCount) = (references[number].start, references[number].keyLines)
            var (needsKeys, isMedia) = (false, false)
            // Take all URIs of one line together.
            while number < references.count, references[number].start == start {
                let reference = references[number]
                let appearance = try shown(number, reference)
                if let uri = appearance.uri { add(Edit(range: reference.uri, replacement: uri)) }
                if let bytes = appearance.bytes, let (range, showsOffset) = reference.bytesText {
                    let offset = showsOffset ? "@\(bytes.lowerBound)" : ""
                    add(Edit(range: range, replacement: Array("\(bytes.upperBound - bytes.lowerBound)\(offset)".utf8)))
                }
                isAnyLeft = isAnyLeft || appearance.needsKeys
                if reference.role != .playlist, appearance.isResource {
                    (isMedia, needsKeys) = (true, needsKeys || appearance.needsKeys)
                }
                number += 1
            }
            if !isMedia { continue }
            let pending = next..<keyLineCount
            next = keyLineCount
            original = applying(pending, to: original)
            let needed = needsKeys ? original : []
            for edit in moving(inForce, to: needed, pending, before: start) { add(edit) }
            inForce = needed
        }
        if added > Self.maximumAddition { return nil }
        // Key lines at the end stay only after a reference that needs keys, because they cover nothing.
        if inForce.isEmpty { edits += removing(next..<keyLines.count) }
        if !isAnyLeft { edits += sessionKeyLines.map { Edit(range: $0, replacement: []) } }
        // Sort, because the line of a byte range can stand before a key line.
        edits.sort { ($0.range.lowerBound, $0.range.upperBound) < ($1.range.lowerBound, $1.range.upperBound) }
        return edits
    }

    /// Returns the changes that put other keys in force before the text at `start`.
    /// - Parameter pending: the original's key lines since the previous reference.
    private func moving(
        _ inForce: [Int], to needed: [Int], _ pending: Range<Int>, before start: Int
    ) -> [Edit] {
        if inForce == needed && (needed.isEmpty || pending.isEmpty) { return removing(pending) }
        if applying(pending, to: inForce) == needed { return [] }
        if inForce == needed { return removing(pending) }
        let isReplaced = inForce.allSatisfy { line in
            needed.contains { keyLines[$0].format == keyLines[line].format }
        }
        var inserted = needed.isEmpty || !isReplaced ? Self.noKey : []
        for line in needed {
            inserted += text[keyLines[line].whole]
            if let last = inserted.last, last != UInt8(ascii: "\n"), last != UInt8(ascii: "\r") {
                inserted.append(UInt8(ascii: "\n"))
            }
        }
        return removing(pending) + [Edit(range: start..<start, replacement: inserted)]
    }

    private func removing(_ lines: Range<Int>) -> [Edit] {
        lines.map { Edit(range: keyLines[$0].whole, replacement: []) }
    }
}
