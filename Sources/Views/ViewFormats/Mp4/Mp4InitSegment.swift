/// A file, or a range of one, named by an `EXT-X-MAP` as the init segment of segments.
struct Mp4InitSegment {
    let source: SourceFile
    /// The `BYTERANGE` of the `EXT-X-MAP`, in the file; nil for the whole file.
    let bytes: Range<UInt64>?

    /// Reads the `moov`, without any samples described in it.
    /// - Throws: `.malformed` for everything except one init segment, also for empty, cut or other files; `.store`.
    func movie(_ work: Mp4Work) throws(ViewError) -> Mp4Movie {
        do throws(ViewError) { return try parsed(work) } catch .malformed(let reason) {
            throw .malformed("the init segment is unusable: \(reason)")
        }
    }

    private func parsed(_ work: Mp4Work) throws(ViewError) -> Mp4Movie {
        let bounds = bytes ?? 0..<source.size
        guard bounds.upperBound <= source.size else {
            throw .malformed("its bytes \(bounds.lowerBound)-\(bounds.upperBound) of a file of \(source.size) bytes")
        }
        guard !bounds.isEmpty else { throw .malformed("it is empty") }
        var window = Mp4Window(source, bounds)
        guard try Mp4Plan.beginsAsMp4(&window) else { throw .malformed("it is not MP4") }
        guard let box = try window.first(["moov", "moof"], from: bounds.lowerBound), box.type == "moov" else {
            throw .malformed("it has no moov")
        }
        let movie = try Mp4Movie(box, &window, work)
        if try window.first(["moov", "moof", "mdat"], from: movie.end)?.type == "moov" {
            throw .malformed("it has several moov, and no byte range says which one counts")
        }
        return movie
    }
}
