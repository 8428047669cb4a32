extension Playlist {
    /// The text as the mount shows it: without its key lines, and with the byte ranges of the plaintext. Everything else
    /// is there byte for byte.
    ///
    /// - Parameter plaintext: the plaintext offsets of the byte range of a reference, given with its number; nil where they are the same.
    package func rendered<Failure>(
        _ plaintext: (Int, Reference) throws(Failure) -> Range<UInt64>?
    ) throws(Failure) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(text.count)
        var position = 0
        for edit in edits {
            result += text[position..<edit.range.lowerBound]
            position = edit.range.upperBound
            guard case .bytes(let number, let showsOffset) = edit.change else { continue }
            if let range = try plaintext(number, references[number]) {
                result += "\(range.upperBound - range.lowerBound)".utf8
                if showsOffset { result += "@\(range.lowerBound)".utf8 }
            } else {
                result += text[edit.range]
            }
        }
        return result + text[position...]
    }

    /// Bytes of the rendered text where no byte range changes.
    var sizeWithoutKeys: UInt64 {
        var size = text.count
        for edit in edits {
            if case .removed = edit.change { size -= edit.range.count }
        }
        return UInt64(size)
    }
}
