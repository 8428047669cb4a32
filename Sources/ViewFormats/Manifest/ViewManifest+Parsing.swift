internal import LinuxSystem
internal import StrictJSON

extension ViewManifest {
    private typealias Members = JSONMembers<ViewError>

    private static let context = "view.json"
    /// Each file without an entry of its own is compared with every pattern.
    static let maximumPatternCount = 1000
    /// PATH_MAX of Linux.
    private static let maximumPathSize = 4096
    private static let chunkSizes = 16...(1 << 40)

    /// Parses the bytes of a `view.json`: strict JSON, without unknown members.
    /// - Throws: `malformed`, with the name of the member.
    package static func parse(_ bytes: [UInt8]) throws(ViewError) -> ViewManifest {
        var members = try Members(parsing: bytes, context: context, maximumSize: maximumSize)
        let format: ViewFormatName = try takeName("format", of: &members)
        guard case .object(let files) = try members.take("files") else {
            throw malformed(context, "files is not an object")
        }
        try members.refuseRest()
        var entries: [[UInt8]: Entry] = [:]
        var patterns: [PathPattern] = []
        entries.reserveCapacity(files.count)
        // Sorted, so that the same one of several mistakes is reported each time.
        for (path, value) in files.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) {
            guard isInside(path) else {
                throw malformed(
                    context, "files: '\(shown(path))' is not a relative path without '.', '..' and empty components")
            }
            entries[path] = try parseEntry(value, context: "\(context): files: '\(shown(path))'")
            if PathPattern.isPattern(path) { patterns.append(PathPattern(path)) }
        }
        guard patterns.count <= maximumPatternCount else {
            throw malformed(context, "\(patterns.count) patterns are more than \(maximumPatternCount)")
        }
        patterns.sort { $0.text.count > $1.text.count }
        return ViewManifest(format: format, entries: entries, patterns: patterns)
    }

    private static func parseEntry(_ value: StrictJSON, context: String) throws(ViewError) -> Entry {
        var members = try Members(value, context: context)
        var entry = Entry()
        if members.peek("key") != nil {
            let path = try members.takeString("key")
            guard path.first == UInt8(ascii: "/") ? isPath(path) : isInside(path) else {
                throw malformed(context, "key '\(shown(path))' leads out of the source or to nothing")
            }
            entry.key = path
        }
        if members.peek("iv") != nil {
            let digits = try members.takeString("iv")
            guard let vector = InitialVector(hexadecimal: digits) else {
                throw malformed(context, "iv '\(shown(digits))' is not 32 hexadecimal digits")
            }
            entry.vector = vector
        }
        if members.peek("cipher") != nil { entry.cipher = try takeName("cipher", of: &members) }
        if members.peek("chunkSize") != nil {
            entry.chunkSize = UInt64(try members.takeInteger("chunkSize", in: chunkSizes))
        }
        try members.refuseRest()
        return entry
    }

    private static func takeName<Name: RawRepresentable<String> & CaseIterable>(
        _ key: String, of members: inout Members
    ) throws(ViewError) -> Name {
        let text = try members.takeString(key)
        if let name = Name.allCases.first(where: { text.elementsEqual($0.rawValue.utf8) }) { return name }
        let names = Name.allCases.map(\.rawValue).joined(separator: ", ")
        throw malformed(members.context, "\(key) '\(shown(text))' is none of \(names)")
    }

    private static func isPath(_ path: [UInt8]) -> Bool {
        path.count < maximumPathSize && !path.contains(0)
    }

    /// True for a path relative to the source, in the spelling of the view. Another spelling would match no file.
    private static func isInside(_ path: [UInt8]) -> Bool {
        let useless = ["", ".", ".."].map { [UInt8]($0.utf8) }
        return isPath(path) && !PathPattern.split(path).contains(where: useless.contains)
    }

    private static func malformed(_ context: String, _ reason: String) -> ViewError {
        .malformed("\(context): \(reason)")
    }
}
