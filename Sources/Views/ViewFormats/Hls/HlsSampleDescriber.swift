internal import LinuxSystem

/// Describes the files of a `SAMPLE-AES` playlist. Reads each init segment once, and the beginnings of segments without
/// one. Blocks for the disk.
struct HlsSampleDescriber {
    /// An `EXT-X-MAP`: its position among the references, its file, and the reason if it has none.
    struct Map {
        let number: Int
        let reference: Playlist.Reference
        let target: HlsReading.Target?
        let reason: String?
    }

    private struct KeyUse: Hashable {
        let map: Int?
        let uri: [UInt8]
    }

    /// Maximum number of segments read for the keys in their fragments.
    private static let maximumUses = 1024

    private let root: Descriptor
    private let work: Mp4Work
    private let directory: [UInt8]
    /// The keys of `--key KID=FILE`.
    private let given: Set<KeyID>
    /// The keys named by the boxes.
    private(set) var keys: Set<KeyName> = []
    private var initials: [HlsSamples.Initial: (description: HlsSamples.Description, movie: Mp4Movie?)] = [:]
    /// The last file without an init segment, which can have many byte ranges.
    private var last: (identity: FileIdentity, description: HlsSamples.Description)?
    private var uses: Set<KeyUse> = []

    /// - Parameter directory: the directory of the playlist.
    init(_ index: HlsIndex, directory: [UInt8]) {
        (root, work, given) = (index.root, index.work, index.keys.given)
        self.directory = directory
    }

    /// Describes the samples of a reference's file.
    /// - Parameters:
    ///   - uri: the URI of the key in force, if there is one.
    ///   - map: the one in force at the reference, or the reference itself.
    mutating func samples(
        of target: HlsReading.Target, _ reference: Playlist.Reference, uri: [UInt8]?, map: Map?
    ) -> HlsSamples {
        var samples = HlsSamples(
            uri: uri, hasKey: uri != nil, directory: directory, initial: nil, description: .protected)
        guard let map, let file = map.target else {
            samples.description = ownDescription(of: target, map)
            if samples.description == .protected { addKeys(of: target, samples, nil, nil) }
            return samples
        }
        let segment = HlsSamples.Initial(path: file.path, bytes: map.reference.bytes)
        samples.initial = segment
        let initial = read(segment)
        samples.description = initial.description
        samples.initialDigest = initial.movie?.digest ?? segment.hashValue
        if reference.role == .map { return samples }
        let name = shown(file.path)
        switch samples.description {
        case .protected: addKeys(of: target, samples, map.number, initial.movie)
        case .clear where samples.hasKey:
            samples.description = .unusable("its key is in force, and its init segment \(name) names no encryption")
        case .clear: break
        case .unusable(let reason): samples.description = .unusable("\(name): \(reason)")
        }
        return samples
    }

    private mutating func read(
        _ initial: HlsSamples.Initial
    ) -> (description: HlsSamples.Description, movie: Mp4Movie?) {
        if let known = initials[initial] { return known }
        var found: (description: HlsSamples.Description, movie: Mp4Movie?) = (.protected, nil)
        do throws(ViewError) {
            found.movie = try initial.opened(in: root).movie(work)
            if found.movie?.isProtected == false { found.description = .clear }
        } catch {
            found.description = .unusable(error.reason)
        }
        initials[initial] = found
        return found
    }

    private mutating func ownDescription(of target: HlsReading.Target, _ map: Map?) -> HlsSamples.Description {
        if let last, last.identity == target.identity { return last.description }
        var found: HlsSamples.Description
        do throws(ViewError) {
            let source = try ViewError.ofStore(root.sourceFile(beneath: target.path))
            let isText = try SourceInspection.isSubtitles(source)
            switch isText ? .clear("WebVTT") : try Mp4Plan.read(source, naming(nil), work) {
            case .protected: found = .protected
            case .clear: found = .clear
            case .notMp4: found = .unusable("SAMPLE-AES in MPEG-TS or packed audio is not supported, only in MP4")
            }
        } catch {
            found = .unusable(error.reason)
        }
        if case .unusable = found, let map {
            let uri = HlsURI.text(Array(map.reference.expanded ?? []))
            found = .unusable("its init segment \(uri): \(map.reason ?? "no file")")
        }
        last = (target.identity, found)
        return found
    }

    /// Adds the keys of the first file of each key line: those in the `moov`, and any others that a fragment names.
    private mutating func addKeys(
        of target: HlsReading.Target, _ samples: HlsSamples, _ map: Int?, _ movie: Mp4Movie?
    ) {
        guard let uri = samples.uri, uses.count < Self.maximumUses,
            uses.insert(KeyUse(map: map, uri: uri)).inserted
        else { return }
        if let movie, !movie.namesKeysInFragments {
            keys.formUnion(Mp4Plan(.segment(movie), naming(uri), work).movieKeyNames)
            return
        }
        guard let source = try? root.sourceFile(beneath: target.path) else { return }
        let verdict = try? Mp4Plan.read(source, naming(uri), work) { () throws(ViewError) in
            try samples.initial?.opened(in: root)
        }
        guard case .protected(let plan) = verdict, let names = try? plan.keyNames(source) else { return }
        keys.formUnion(names)
    }

    private func naming(_ uri: [UInt8]?) -> ContentKeys.Naming {
        ContentKeys.Naming(uri: uri, directory: directory, given: given)
    }
}

extension HlsSamples.Initial {
    /// Opens the init segment.
    /// - Parameter root: the source.
    func opened(in root: Descriptor) throws(ViewError) -> Mp4InitSegment {
        Mp4InitSegment(source: try ViewError.ofStore(root.sourceFile(beneath: path)), bytes: bytes)
    }
}
