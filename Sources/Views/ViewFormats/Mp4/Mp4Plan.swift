/// The result of a check for MP4 with encrypted samples.
enum Mp4Verdict {
    case protected(Mp4Plan)
    /// Not encrypted, and the proof for people.
    case clear(String)
    case notMp4
}

/// An MP4 file's description, from which it is opened. Any thread.
package struct Mp4Plan: Equatable, Sendable {
    enum Role: Sendable {
        /// A file with a `moov` of its own.
        case film(Mp4Movie)
        /// Fragments, with a `moov` in an init segment.
        case segment(Mp4Movie)
        /// Only one or several `moov`.
        case initSegments([Mp4Movie])

        var movies: [Mp4Movie] {
            switch self {
            case .film(let movie), .segment(let movie): [movie]
            case .initSegments(let movies): movies
            }
        }
    }

    let role: Role
    let naming: ContentKeys.Naming
    private let work: Mp4Work

    /// Differs for another plan. Takes little memory.
    struct Identity: Equatable, Sendable {
        let hasOwnMovie: Bool
        let movies: [Int]
        let naming: ContentKeys.Naming
    }

    var identity: Identity {
        let isSegment = if case .segment = role { true } else { false }
        return Identity(hasOwnMovie: !isSegment, movies: role.movies.map(\.digest), naming: naming)
    }

    package static func == (one: Mp4Plan, other: Mp4Plan) -> Bool { one.identity == other.identity }

    init(_ role: Role, _ naming: ContentKeys.Naming, _ work: Mp4Work) {
        (self.role, self.work) = (role, work)
        let keys = Set(role.movies.flatMap(\.keys))
        var naming = naming
        naming.uriKey = keys.count == 1 && !role.movies.contains(where: \.namesKeysInFragments) ? keys.first : nil
        self.naming = naming
    }

    /// Decides from a file's boxes if its samples are encrypted.
    /// - Parameter initial: opens the init segment. Called if the file begins with a fragment, before any `moov`.
    /// - Throws: `.malformed` if neither encryption nor its absence is proved; `.store`.
    static func read(
        _ source: SourceFile, _ naming: ContentKeys.Naming, _ work: Mp4Work,
        initial: () throws(ViewError) -> Mp4InitSegment? = { () throws(ViewError) in nil }
    ) throws(ViewError) -> Mp4Verdict {
        var window = Mp4Window(source)
        guard try beginsAsMp4(&window) else { return .notMp4 }
        guard let box = try window.first(["moov", "moof"], from: 0) else {
            throw .malformed("there is no moov: the file is cut, or its init segment is another file")
        }
        if box.type == "moov" { return try readFilm(&window, box, naming, work) }
        guard let initial = try initial() else {
            throw .malformed("there is no init segment: the file begins with a fragment, and has no moov")
        }
        let movie = try initial.movie(work)
        if movie.isProtected { return .protected(Mp4Plan(.segment(movie), naming, work)) }
        try Mp4Fragment.checkClear(box, &window, work)
        return .clear("its init segment names no encryption")
    }

    /// Decides about a file with a `moov` of its own.
    private static func readFilm(
        _ window: inout Mp4Window, _ moov: Mp4TopBox, _ naming: ContentKeys.Naming, _ work: Mp4Work
    ) throws(ViewError) -> Mp4Verdict {
        let movie = try Mp4Movie(moov, &window, work)
        let isProtected = movie.isProtected
        let film = isProtected ? Mp4Verdict.protected(Mp4Plan(.film(movie), naming, work)) : .clear(clearProof)
        let next: Mp4TopBox?
        do throws(ViewError) { next = try window.first(contentTypes, from: movie.end) } catch .malformed {
            // Leave the error to a read of the bytes there.
            return film
        }
        switch next?.type {
        case nil where isProtected && !movie.hasSamples:
            return .protected(Mp4Plan(.initSegments([movie]), naming, work))
        case "moov":
            let movies = try initSegments(movie, &window, work)
            guard movies.contains(where: \.isProtected) else { return .clear(clearProof) }
            return .protected(Mp4Plan(.initSegments(movies), naming, work))
        default: break
        }
        if isProtected { return film }
        let first: Mp4TopBox?
        do throws(ViewError) { first = try window.first(["moof"], from: movie.end) } catch .malformed {
            // Other data than boxes follows, which players do not read.
            return film
        }
        if let first { try Mp4Fragment.checkClear(first, &window, work) }
        return film
    }

    private static let clearProof = "its moov names no encryption"
    private static let contentTypes: Set<Mp4Type> = ["moov", "moof", "mdat"]
    /// Maximum number of init segments in one file.
    private static let maximumMovies = 64

    /// Reads all `moov` of a file that has nothing else.
    private static func initSegments(
        _ first: Mp4Movie, _ window: inout Mp4Window, _ work: Mp4Work
    ) throws(ViewError) -> [Mp4Movie] {
        var (movies, end) = ([first], first.end)
        while let next = try window.first(contentTypes, from: end) {
            guard next.type == "moov", movies.count < maximumMovies else {
                throw .malformed("there is a second moov at \(first.end)")
            }
            let movie = try Mp4Movie(next, &window, work)
            movies.append(movie)
            end = movie.end
        }
        guard !movies.contains(where: \.hasSamples) else { throw .malformed("there is a second moov with samples") }
        return movies
    }

    /// Returns true if the file begins with a box.
    static func isMp4(_ source: SourceFile) throws(ViewError) -> Bool {
        var window = Mp4Window(source)
        return try beginsAsMp4(&window)
    }

    /// Returns true if the bytes begin with a box.
    static func beginsAsMp4(_ window: inout Mp4Window) throws(ViewError) -> Bool {
        do throws(ViewError) {
            return try window.box(at: window.bounds.lowerBound).map { firstTypes.contains($0.type) } ?? false
        } catch .malformed {
            return false
        }
    }

    /// The boxes at the beginning of MP4 files and segments.
    private static let firstTypes: Set<Mp4Type> = [
        "ftyp", "styp", "moov", "moof", "sidx", "ssix", "mdat", "free", "skip", "wide", "emsg", "prft", "pdin", "uuid",
    ]

    // MARK: Keys

    /// The protections of all samples described by the `moov`.
    var protections: [Mp4Protection] { role.movies.flatMap(\.protections) }

    /// The keys named by the `moov`, each once.
    private var movieKeys: [KeyID] {
        var seen: Set<KeyID> = []
        return role.movies.flatMap(\.keys).filter { seen.insert($0).inserted }
    }

    var movieKeyNames: [KeyName] { movieKeys.map(naming.name) }

    /// True if fragments may need keys not named by the `moov`.
    var namesKeysInFragments: Bool { role.movies.contains(where: \.namesKeysInFragments) }

    /// Returns the keys to fetch before an open: of the `moov`, and of the first fragment if only fragments name them.
    /// - Parameter isKeyed: false for a segment without a key line, perhaps a clear one. Then only used keys count.
    func keyNames(_ source: SourceFile, isKeyed: Bool = true) throws(ViewError) -> [KeyName] {
        // Init segments have no samples.
        if case .initSegments = role { return [] }
        var keys = isKeyed ? movieKeys : []
        if !isKeyed || namesKeysInFragments, let first = try firstFragment(source) { keys += first.ranges.keys }
        var seen: Set<KeyID> = []
        return keys.filter { !$0.isZero && seen.insert($0).inserted }.map(naming.name)
    }

    /// Returns the keys of the `moov` and of all fragments that may name others.
    /// - Parameter end: the time to stop reading fragments.
    func allKeyNames(_ source: SourceFile, until end: ContinuousClock.Instant) throws(ViewError) -> Set<KeyName> {
        var names = Set(try keyNames(source))
        guard namesKeysInFragments else { return names }
        let index = try index(source)
        var position: UInt64 = 0
        while position < source.size, .now < end {
            let fragment = try index.fragment(at: position)
            names.formUnion(fragment.ranges.keys.filter { !$0.isZero }.map(naming.name))
            position = fragment.bytes.upperBound
        }
        return names
    }

    private func firstFragment(_ source: SourceFile) throws(ViewError) -> Mp4Fragment? {
        let index = try index(source)
        let head = try index.fragment(at: 0)
        if head.bytes.lowerBound > 0 || head.bytes.upperBound >= source.size { return head }
        // The file may begin with its first fragment.
        if !head.ranges.all.isEmpty { return head }
        return try index.fragment(at: head.bytes.upperBound)
    }

    func index(_ source: SourceFile) throws(ViewError) -> Mp4Index { try Mp4Index(of: source, role, work) }
}
