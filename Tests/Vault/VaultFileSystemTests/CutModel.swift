import TestSupport

/// A moment between two recorded calls.
struct Cut {
    /// Number of calls before it.
    let call: Int
    /// True for a kill of the process, which leaves the effect of all its calls.
    let isKill: Bool
    let seed: UInt64
}

/// The operations of a program on a vault, and the states possible after a cut.
struct CutModel {
    struct Tree {
        /// Files by path, nil for directories.
        var entries: [String: FileModel?]
        var begun, returned: Int
        /// The directories in which this tree differs from the previous one.
        var changed: Set<String>
    }

    private(set) var trees: [Tree]
    private var treeSyncs: [(tree: Int, at: Int)] = []
    /// The tree in which a file was created, unless that was the first.
    private var births: [ObjectIdentifier: Int] = [:]
    var operations: [(text: String, span: FileModel.Span)] = []

    init(_ entries: [String: FileModel?] = [:]) {
        trees = [Tree(entries: entries, begun: 0, returned: 0, changed: [])]
    }

    /// The model after a clean end.
    func settled() -> CutModel {
        var fresh: [ObjectIdentifier: FileModel] = [:]
        return CutModel(
            entries.mapValues { file -> FileModel? in
                guard let file else { return nil }
                let copy = fresh[ObjectIdentifier(file)] ?? file.settled()
                fresh[ObjectIdentifier(file)] = copy
                return copy
            })
    }

    var entries: [String: FileModel?] { trees[trees.count - 1].entries }

    static func parent(_ path: String) -> String {
        path.contains("/") ? String(path.prefix { $0 != "/" }) : ""
    }

    mutating func changeTree(_ paths: [String], _ span: FileModel.Span, _ change: (inout [String: FileModel?]) -> Void)
    {
        var entries = entries
        change(&entries)
        trees.append(
            Tree(
                entries: entries, begun: span.begun, returned: span.returned,
                changed: Set(paths.map(Self.parent))))
    }

    mutating func create(_ path: String, _ file: FileModel, _ span: FileModel.Span) {
        births[ObjectIdentifier(file)] = trees.count
        changeTree([path], span) { $0[path] = file }
    }

    mutating func noteSync(of file: FileModel, at count: Int) {
        file.noteSync(at: count)
        treeSyncs.append((births[ObjectIdentifier(file)] ?? 0, count))
    }

    mutating func noteSync(ofDirectory path: String, at count: Int) {
        if let last = trees.lastIndex(where: { $0.changed.contains(path) }) { treeSyncs.append((last, count)) }
    }

    /// Notes a clean end, which has synced everything.
    mutating func noteEnd(at count: Int) {
        for case let file? in entries.values { file.noteSync(at: count) }
    }

    /// Returns the trees possible after a cut.
    func window(_ cut: Cut) -> ClosedRange<Int> {
        let upper = trees.lastIndex { $0.begun <= cut.call } ?? 0
        let lower =
            cut.isKill
            ? trees.lastIndex { $0.returned <= cut.call } ?? 0
            : treeSyncs.filter { $0.at <= cut.call }.map(\.tree).max() ?? 0
        return min(lower, upper)...upper
    }
}
