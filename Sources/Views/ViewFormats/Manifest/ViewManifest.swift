internal import Glibc
package import LinuxSystem
internal import StrictJSON
internal import SystemPackage

/// `view.json`: keys, initial vectors and parameters of single files of a view. Any thread.
package struct ViewManifest: Sendable {
    /// The parameters of a file. A file has one entry, whose missing members are not taken from another one.
    package struct Entry: Equatable, Sendable {
        /// A key file: absolute, or relative to the source and inside it.
        package var key: [UInt8]?
        package var vector: InitialVector?
        package var cipher: ViewCipher?
        /// Length in bytes of the plaintext.
        package var chunkSize: UInt64?
    }

    private typealias Members = JSONMembers<ViewError>

    /// The name in the source directory.
    package static let fileName = [UInt8]("view.json".utf8)
    package static let maximumSize = 16 << 20
    /// Bounded, because each file without an entry of its own is compared with every pattern.
    static let maximumPatternCount = 1000
    /// PATH_MAX of Linux.
    private static let maximumPathSize = 4096
    private static let chunkSizes = 16...(1 << 40)

    package let format: ViewFormatName
    /// By path relative to the source, or by pattern.
    let entries: [[UInt8]: Entry]
    /// The keys of `entries` that are patterns, the longest first.
    let patterns: [PathPattern]

    /// Reads the manifest of a source directory. Returns nil without one.
    /// - Throws: `malformed`, `store`.
    package static func read(in root: Descriptor) throws(ViewError) -> ViewManifest? {
        let bytes: [UInt8]
        do throws(StoreError) {
            let file = try Descriptor(object: fileName, in: root).openedRegularFile()
            let size = try file.status().st_size
            guard size <= maximumSize, let contents = try file.readToEnd(limit: maximumSize) else {
                throw .damaged("\(size) bytes are more than \(maximumSize)")
            }
            bytes = contents
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        } catch .damaged(let reason) {
            throw .malformed("view.json: \(reason)")
        } catch {
            throw .store(error)
        }
        return try parse(bytes)
    }

    /// Returns the entry of the file at `path`, relative to the source: the entry for this path, or else that of the
    /// longest matching pattern, in bytes.
    /// - Throws: `malformed` if two equally long patterns match and differ, because the use of the wrong one would not
    ///   show.
    package func entry(for path: [UInt8]) throws(ViewError) -> Entry? {
        if let entry = entries[path] { return entry }
        if patterns.isEmpty { return nil }
        let components = PathPattern.split(path)
        guard let first = patterns.firstIndex(where: { $0.matches(components) }) else { return nil }
        let best = patterns[first]
        let rivals = patterns[(first + 1)...].prefix { $0.text.count == best.text.count }
        for rival in rivals where entries[rival.text] != entries[best.text] && rival.matches(components) {
            throw .malformed(
                "view.json: '\(shown(best.text))' and '\(shown(rival.text))' both match '\(shown(path))' and differ: "
                    + "make one of them longer, or name the file")
        }
        return entries[best.text]
    }

    // MARK: Parsing

    /// Parses the bytes of a `view.json`: strict JSON, without unknown members.
    /// - Throws: `malformed`, with the name of the member.
    package static func parse(_ bytes: [UInt8]) throws(ViewError) -> ViewManifest {
        var members = try Members(parsing: bytes, context: "view.json", maximumSize: maximumSize)
        let format: ViewFormatName = try removeChoice("format", of: &members)
        guard case .object(let files) = try members.remove("files") else {
            throw members.error("files is not an object")
        }
        try members.refuseRest()
        var entries: [[UInt8]: Entry] = [:]
        var patterns: [PathPattern] = []
        entries.reserveCapacity(files.count)
        // Sort, so that the first of several mistakes is the same each time.
        for (path, value) in files.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) {
            let name = "files: '\(shown(path))'"
            guard isInside(path) else {
                throw members.error("\(name) is not a relative path without '.', '..' and empty components")
            }
            entries[path] = try parseEntry(Members(value, context: "\(members.context): \(name)"))
            if PathPattern.isPattern(path) { patterns.append(PathPattern(path)) }
        }
        guard patterns.count <= maximumPatternCount else {
            throw members.error("\(patterns.count) patterns are more than \(maximumPatternCount)")
        }
        patterns.sort { $0.text.count > $1.text.count }
        return ViewManifest(format: format, entries: entries, patterns: patterns)
    }

    private static func parseEntry(_ members: consuming Members) throws(ViewError) -> Entry {
        var entry = Entry()
        if members.peek("key") != nil {
            let path = try members.removeString("key")
            guard path.first == UInt8(ascii: "/") ? isPath(path) : isInside(path) else {
                throw members.error("key '\(shown(path))' leads out of the source or to nothing")
            }
            entry.key = path
        }
        if members.peek("iv") != nil {
            let digits = try members.removeString("iv")
            entry.vector = InitialVector(hexadecimal: digits)
            if entry.vector == nil { throw members.error("iv '\(shown(digits))' is not 32 hexadecimal digits") }
        }
        if members.peek("cipher") != nil { entry.cipher = try removeChoice("cipher", of: &members) }
        if members.peek("chunkSize") != nil {
            entry.chunkSize = UInt64(try members.removeInteger("chunkSize", in: chunkSizes))
        }
        try members.refuseRest()
        return entry
    }

    private static func removeChoice<Name: RawRepresentable<String> & CaseIterable>(
        _ key: String, of members: inout Members
    ) throws(ViewError) -> Name {
        let text = try members.removeString(key)
        if let name = Name.allCases.first(where: { text.elementsEqual($0.rawValue.utf8) }) { return name }
        let names = Name.allCases.map(\.rawValue).joined(separator: ", ")
        throw members.error("\(key) '\(shown(text))' is none of \(names)")
    }

    private static func isPath(_ path: [UInt8]) -> Bool { path.count < maximumPathSize && !path.contains(0) }

    /// Returns true for a path relative to the source, in the view's spelling, because others would match no file.
    private static func isInside(_ path: [UInt8]) -> Bool {
        let useless = ["", ".", ".."].map { [UInt8]($0.utf8) }
        return isPath(path) && !PathPattern.split(path).contains(where: useless.contains)
    }
}
