internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import SystemPackage

/// `view.json`: keys, initial vectors and parameters of single files of a view. Any thread.
package struct ViewManifest: Sendable {
    /// What it says of a file. A file has one entry: what is not in it is not looked for in another.
    package struct Entry: Equatable, Sendable {
        /// A key file: absolute, or relative to the source and inside it.
        package var key: [UInt8]?
        package var vector: InitialVector?
        package var cipher: ViewCipher?
        /// Bytes of plaintext.
        package var chunkSize: UInt64?
    }

    /// Its name in the source directory.
    package static let fileName = [UInt8]("view.json".utf8)
    package static let maximumSize = 16 << 20

    /// One of `formats`.
    package let format: String
    /// By what stands before the colon: a path relative to the source, or a pattern.
    let entries: [[UInt8]: Entry]
    /// The patterns among them, the longest first.
    let patterns: [PathPattern]

    /// The manifest of a source directory; nil where there is none.
    /// - Throws: `malformed`, `store`.
    package static func read(in root: Descriptor) throws(ViewError) -> ViewManifest? {
        let bytes: [UInt8]
        do throws(StoreError) {
            guard let file = try open(in: root) else { return nil }
            let size = try file.status().st_size
            guard size <= maximumSize else {
                throw .damaged("\(size) bytes are more than \(maximumSize)")
            }
            var buffer = [UInt8](repeating: 0, count: Int(size))
            let count = try buffer.withUnsafeMutableBufferPointer { (buffer) throws(StoreError) in
                try file.read(at: 0, into: UnsafeMutableRawBufferPointer(buffer))
            }
            bytes = Array(buffer[..<count])
        } catch {
            if case .damaged(let reason) = error { throw .malformed("view.json: \(reason)") }
            throw .store(error)
        }
        return try parse(bytes)
    }

    private static func open(in root: Descriptor) throws(StoreError) -> Descriptor? {
        do throws(StoreError) {
            return try Descriptor.place(of: fileName, in: root).openedRegularFile()
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    /// What it says of the file at `path` (relative to the source): the entry that is that path, else that of the longest
    /// pattern that matches, in bytes.
    /// - Throws: `malformed` where two patterns of that length match and say different things: nothing would tell that
    ///   the wrong one was taken.
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
}
