/// An MP4 file whose samples are encrypted in place: the plaintext has the length of the file, and each byte its offset.
/// Any thread.
struct SampleMap: Sendable {
    let index: Mp4Index
    let keys: ContentKeys
    /// Bytes of the file.
    let length: UInt64
}

/// An MP4 file's description, from which it is opened. Any thread.
package struct Mp4Plan: Equatable, Sendable {
    let movie: Mp4Movie
    /// False if the `moov` is in an init segment.
    let isOwn: Bool
    let naming: ContentKeys.Naming

    private init(_ movie: Mp4Movie, isOwn: Bool, _ naming: ContentKeys.Naming) {
        (self.movie, self.isOwn) = (movie, isOwn)
        var naming = naming
        naming.uriKey = movie.keys.count == 1 && !movie.namesKeysInFragments ? movie.keys.first : nil
        self.naming = naming
    }

    /// Reads the `moov` of a file. Nil if the file is not MP4, or not encrypted, so that it is shown as it is.
    /// - Parameter initial: opens the init segment, if the file is a segment that has one.
    /// - Throws: `.malformed`.
    static func read(
        _ source: SourceFile, _ naming: ContentKeys.Naming,
        initial: () throws(ViewError) -> SourceFile? = { () throws(ViewError) in nil }
    ) throws(ViewError) -> Mp4Plan? {
        var next: UInt64 = 0
        var window = Mp4Window(source)
        for _ in 0..<maximumBoxes {
            let box: Mp4TopBox?
            do throws(ViewError) { box = try window.box(at: next) } catch .malformed where next == 0 {
                return nil
            }
            guard let box else {
                if next == 0 { return nil }
                throw .malformed("there is no moov: the file is cut, or its init segment is another file")
            }
            if next == 0, !firstTypes.contains(box.type) { return nil }
            switch box.type {
            case "moov":
                let movie = try Mp4Movie(window.contents(of: box), at: next, of: source)
                return movie.isProtected ? Mp4Plan(movie, isOwn: true, naming) : nil
            case "moof":
                if let initial = try initial() {
                    let movie = try read(initial, naming)?.movie
                    return movie.map { Mp4Plan($0, isOwn: false, naming) }
                }
                throw .malformed("there is no init segment: the file begins with a fragment, and has no moov")
            default: next = box.bytes.upperBound
            }
        }
        throw .malformed("no moov in the first \(maximumBoxes) boxes")
    }

    /// True if the file begins with a box.
    static func isMp4(_ source: SourceFile) throws(ViewError) -> Bool {
        var window = Mp4Window(source)
        do throws(ViewError) {
            return try window.box(at: 0).map { firstTypes.contains($0.type) } ?? false
        } catch .malformed {
            return false
        }
    }

    /// Boxes before a `moov`: of a file without fragments, there are few.
    private static let maximumBoxes = 1024
    /// The boxes with which MP4 files and segments begin.
    private static let firstTypes: Set<Mp4Type> = [
        "ftyp", "styp", "moov", "moof", "sidx", "mdat", "free", "skip", "wide", "emsg", "prft", "pdin",
    ]

    /// The keys to fetch before an open: of the `moov`, and of the first fragment if that alone names them.
    /// - Parameter isKeyed: false for a segment without a key line, such as a clear one. Then only the keys in use count.
    func keyNames(_ source: SourceFile, isKeyed: Bool = true) throws(ViewError) -> [KeyName] {
        // An init segment has no samples.
        if isOwn, movie.end == source.size, movie.ranges.all.isEmpty { return [] }
        var keys = isKeyed ? movie.keys : []
        if !isKeyed || movie.namesKeysInFragments, let first = try firstFragment(source) { keys += first.ranges.keys }
        var seen: Set<KeyID> = []
        return keys.filter { !$0.isZero && seen.insert($0).inserted }.map(naming.name)
    }

    private func firstFragment(_ source: SourceFile) throws(ViewError) -> Mp4Fragment? {
        let index = Mp4Index(of: source, movie, isOwn: isOwn)
        let head = try index.fragment(at: 0)
        if head.bytes.lowerBound > 0 || head.bytes.upperBound >= source.size { return head }
        // The first byte of a file can be its first fragment's.
        if !head.ranges.all.isEmpty { return head }
        return try index.fragment(at: head.bytes.upperBound)
    }

    func map(_ source: SourceFile, _ keys: ContentKeys) -> SampleMap {
        SampleMap(index: Mp4Index(of: source, movie, isOwn: isOwn), keys: keys, length: source.size)
    }
}

/// The encryption of an MP4 file, for people.
package struct Mp4Description: Sendable {
    /// Each scheme with its pattern, such as `cbcs, pattern 1:9`.
    package let schemes: [String]
    package let keys: [KeyID]
    /// True if fragments can have other keys.
    package let changesKeys: Bool

    /// Nil if the file is not encrypted.
    /// - Throws: `.malformed` if no view can decrypt it.
    init?(of source: SourceFile) throws(ViewError) {
        let naming = ContentKeys.Naming(directory: [], given: [])
        guard let plan = try Mp4Plan.read(source, naming) else { return nil }
        var seen: Set<String> = []
        schemes = plan.movie.protections.map(\.text).filter { seen.insert($0).inserted }
        keys = try plan.keyNames(source).compactMap { if case .content(let id, _, _, _) = $0 { id } else { nil } }
        changesKeys = plan.movie.namesKeysInFragments
    }
}
