import Testing

/// Compares two outputs line by line and reports each difference by itself, so that a failure names what differs.
func expectSameLines(
    _ found: String, as expected: String, _ what: String, sourceLocation: SourceLocation = #_sourceLocation
) {
    let lines = found.split(separator: "\n", omittingEmptySubsequences: false)
    let wanted = expected.split(separator: "\n", omittingEmptySubsequences: false)
    for change in lines.difference(from: wanted) {
        switch change {
        case .insert(_, let line, _): Issue.record("\(what): found \(line)", sourceLocation: sourceLocation)
        case .remove(_, let line, _): Issue.record("\(what): expected \(line)", sourceLocation: sourceLocation)
        }
    }
}
