internal import Glibc
package import LinuxSystem
internal import SystemPackage

/// `view.json`: keys, initial vectors and parameters of single files of a view. Any thread.
package struct ViewManifest: Sendable {
    /// A file has one entry. A member that the entry lacks is not taken from another entry.
    package struct Entry: Equatable, Sendable {
        /// A key file: absolute, or relative to the source and inside it.
        package var key: [UInt8]?
        package var vector: InitialVector?
        package var cipher: ViewCipher?
        /// Bytes of plaintext.
        package var chunkSize: UInt64?
    }

    /// The name in the source directory.
    package static let fileName = [UInt8]("view.json".utf8)
    package static let maximumSize = 16 << 20

    package let format: ViewFormatName
    /// By path relative to the source, or by pattern.
    let entries: [[UInt8]: Entry]
    /// The keys of `entries` that are patterns, the longest first.
    let patterns: [PathPattern]

    /// The manifest of a source directory. Nil if there is none.
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

    /// - Throws: `malformed` if the manifest is for another format.
    package func check(is format: ViewFormatName) throws(ViewError) {
        guard self.format == format else {
            throw .malformed("view.json is for the format \(self.format.rawValue), not for \(format.rawValue)")
        }
    }

    /// The entry of the file at `path`, relative to the source: the entry for this path, otherwise that of the longest
    /// matching pattern, in bytes.
    /// - Throws: `malformed` if two patterns of the same length match and differ. Nothing would show that the wrong one
    ///   was used.
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
