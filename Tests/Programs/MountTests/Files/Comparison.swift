import Testing

/// Compares two outputs line by line. A failure shows the first different lines.
func expectSameLines(
    _ found: String, as expected: String, _ what: String, sourceLocation: SourceLocation = #_sourceLocation
) {
    let lines = found.split(separator: "\n", omittingEmptySubsequences: false)
    let wanted = expected.split(separator: "\n", omittingEmptySubsequences: false)
    let changes = lines.difference(from: wanted).map { change in
        switch change {
        case .insert(_, let line, _): "found    \(line)"
        case .remove(_, let line, _): "expected \(line)"
        }
    }
    guard !changes.isEmpty else { return }
    let shown = changes.prefix(12).joined(separator: "\n")
    Issue.record("\(what): \(changes.count) lines differ\n\(shown)", sourceLocation: sourceLocation)
}
