/// The content of a file between two changes.
struct CutVersion {
    private(set) var length = 0
    /// Each has the size of a chunk, except for the last.
    private(set) var chunks: [[UInt8]] = []
    /// True if the file had holes when this was its content.
    var hasHoles = false
    /// Number of recorded calls when the operation began that made it, and when the operation had returned.
    var begun = 0
    var returned = 0

    mutating func resize(to newLength: Int, chunkSize: Int) {
        let count = (newLength + chunkSize - 1) / chunkSize
        if newLength < length { chunks.removeLast(chunks.count - count) }
        if newLength > length, let last = chunks.indices.last { Self.resize(&chunks[last], to: chunkSize) }
        let zeros = [UInt8](repeating: 0, count: chunkSize)
        while chunks.count < count { chunks.append(zeros) }
        if let last = chunks.indices.last { Self.resize(&chunks[last], to: newLength - last * chunkSize) }
        length = newLength
    }

    /// Returns true if the chunk has nothing but zeros, or is not there.
    func isZero(_ chunk: Int) -> Bool { chunk >= chunks.count || chunks[chunk].allSatisfy { $0 == 0 } }

    private static func resize(_ chunk: inout [UInt8], to size: Int) {
        if chunk.count > size { chunk.removeLast(chunk.count - size) }
        if chunk.count < size { chunk += [UInt8](repeating: 0, count: size - chunk.count) }
    }

    mutating func write(_ bytes: [UInt8], at offset: Int, chunkSize: Int) {
        var position = offset
        while position < offset + bytes.count {
            let chunk = position / chunkSize
            let end = min(offset + bytes.count, (chunk + 1) * chunkSize)
            let piece = bytes[(position - offset)..<(end - offset)]
            chunks[chunk].withUnsafeMutableBytes { target in
                piece.withUnsafeBytes { source in
                    UnsafeMutableRawBufferPointer(rebasing: target[(position - chunk * chunkSize)...]).copyMemory(
                        from: source)
                }
            }
            position = end
        }
    }
}

/// A file, in all its versions.
final class CutFile {
    private(set) var versions: [CutVersion]
    /// The versions that were synced, each with the number of recorded calls when that had returned.
    private(set) var syncs: [(version: Int, at: Int)] = []
    /// The tree in which the file was created.
    let namedIn: Int

    init(namedIn tree: Int, begun: Int, returned: Int) {
        namedIn = tree
        var version = CutVersion()
        (version.begun, version.returned) = (begun, returned)
        versions = [version]
    }

    /// Begins a model of what is on disk already.
    init(namedIn tree: Int, keeping file: CutFile) {
        namedIn = tree
        versions = [file.latest]
        (versions[0].begun, versions[0].returned) = (0, 0)
        syncs = [(0, 0)]
    }

    var latest: CutVersion { versions[versions.count - 1] }

    func add(_ version: CutVersion, _ span: CutSpan) {
        var version = version
        (version.begun, version.returned) = (span.begun, span.returned)
        versions.append(version)
    }

    func noteSync(at count: Int) { syncs.append((versions.count - 1, count)) }

    /// The versions of which parts may be seen after a cut.
    func window(_ cut: Cut) -> ClosedRange<Int> {
        let upper = versions.lastIndex { $0.begun <= cut.call } ?? 0
        let lower =
            cut.isKill
            ? versions.lastIndex { $0.returned <= cut.call } ?? 0 : syncs.last { $0.at <= cut.call }?.version ?? 0
        return min(lower, upper)...upper
    }
}

/// The recorded calls of an operation.
struct CutSpan {
    let begun, returned: Int
}

/// A moment between two recorded calls.
struct Cut {
    /// Number of calls before it.
    let call: Int
    /// The process was killed, and its calls are all there.
    let isKill: Bool
    let seed: UInt64
}

/// The operations of a program on a vault, and the states that may therefore be seen after a cut.
struct CutModel {
    struct Tree {
        /// Files by path, nil for directories.
        var entries: [String: CutFile?]
        var begun, returned: Int
        /// The directories in which this tree differs from the one before.
        var changed: Set<String>
    }

    private(set) var trees: [Tree]
    private var treeSyncs: [(tree: Int, at: Int)] = []
    var operations: [(text: String, span: CutSpan)] = []

    init(_ entries: [String: CutFile?] = [:]) {
        trees = [Tree(entries: entries, begun: 0, returned: 0, changed: [])]
    }

    /// The model after a clean end.
    func settled() -> CutModel {
        var fresh: [ObjectIdentifier: CutFile] = [:]
        return CutModel(
            entries.mapValues { file -> CutFile? in
                guard let file else { return nil }
                let copy = fresh[ObjectIdentifier(file)] ?? CutFile(namedIn: 0, keeping: file)
                fresh[ObjectIdentifier(file)] = copy
                return copy
            })
    }

    var entries: [String: CutFile?] { trees[trees.count - 1].entries }

    static func parent(_ path: String) -> String {
        path.contains("/") ? String(path.prefix { $0 != "/" }) : ""
    }

    mutating func changeTree(_ paths: [String], _ span: CutSpan, _ change: (inout [String: CutFile?]) -> Void) {
        var entries = entries
        change(&entries)
        trees.append(
            Tree(
                entries: entries, begun: span.begun, returned: span.returned,
                changed: Set(paths.map(Self.parent))))
    }

    mutating func noteSync(of file: CutFile, at count: Int) {
        file.noteSync(at: count)
        treeSyncs.append((file.namedIn, count))
    }

    mutating func noteSync(ofDirectory path: String, at count: Int) {
        if let last = trees.lastIndex(where: { $0.changed.contains(path) }) { treeSyncs.append((last, count)) }
    }

    /// Everything was synced by a clean end.
    mutating func noteEnd(at count: Int) {
        for case let file? in entries.values { file.noteSync(at: count) }
    }

    /// The trees that may be seen after a cut.
    func window(_ cut: Cut) -> ClosedRange<Int> {
        let upper = trees.lastIndex { $0.begun <= cut.call } ?? 0
        let lower =
            cut.isKill
            ? trees.lastIndex { $0.returned <= cut.call } ?? 0
            : treeSyncs.filter { $0.at <= cut.call }.map(\.tree).max() ?? 0
        return min(lower, upper)...upper
    }
}
