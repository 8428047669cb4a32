/// The encryption of an MP4 file, for people.
package struct Mp4Description: Sendable {
    /// Each scheme with its pattern, such as `cbcs, pattern 1:9`.
    package let schemes: [String]
    package let keys: [KeyID]
    /// True if fragments can have other keys.
    package let changesKeys: Bool

    /// Describes a file; nil if it is not encrypted.
    /// - Throws: `.malformed` if a view cannot decrypt it.
    init?(of source: SourceFile) throws(ViewError) {
        let naming = ContentKeys.Naming(directory: [], given: [])
        guard case .protected(let plan) = try Mp4Plan.read(source, naming, Mp4Work()) else { return nil }
        var seen: Set<String> = []
        schemes = plan.protections.map(\.text).filter { seen.insert($0).inserted }
        // An init segment itself needs no key, so name those of its segments.
        let names = try plan.keyNames(source)
        keys = (names.isEmpty ? plan.movieKeyNames : names).compactMap {
            if case .content(let id, _, _, _) = $0 { id } else { nil }
        }
        changesKeys = plan.namesKeysInFragments
    }
}
