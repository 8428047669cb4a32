package import SystemPackage

extension FilePath {
    /// The path as a message may show it: invalid UTF-8 repaired, control characters as `?`, so that a hostile name
    /// cannot drive a terminal or add a line to a log.
    package var shown: String {
        String(
            String.UnicodeScalarView(string.unicodeScalars.map { $0.properties.generalCategory == .control ? "?" : $0 })
        )
    }
}
