package import SystemPackage

/// Returns bytes of a path, a URI or a command's output in a form for messages: at most `limit` bytes, with invalid
/// UTF-8 repaired, and control characters and marks of the writing direction replaced by `?`. Hostile bytes then cannot
/// control a terminal or add a line to a log.
package func shown(_ bytes: some Collection<UInt8>, limit: Int = 256) -> String {
    let text = String(decoding: bytes.prefix(limit), as: UTF8.self).withoutControlCharacters
    return bytes.count > limit ? text + "…" : text
}

extension FilePath {
    /// The path in a form for messages. Like ``shown(_:limit:)``, but not shortened.
    package var shown: String { string.withoutControlCharacters }
}

extension String {
    /// The text with control characters, line ends and marks of the writing direction replaced by `?`.
    package var withoutControlCharacters: String {
        let scalars = unicodeScalars.map { scalar -> Unicode.Scalar in
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator: "?"
            default: scalar.properties.isBidiControl ? "?" : scalar
            }
        }
        return String(String.UnicodeScalarView(scalars))
    }

    /// The text for a terminal, inside quotes. Control characters, characters that change the writing direction, line
    /// ends, quotes and backslashes become `\u{…}`, `\'` and `\\`.
    package var escapedForTerminal: String {
        unicodeScalars.map { scalar in
            switch (scalar, scalar.properties.generalCategory) {
            case ("\\", _), ("'", _): "\\\(scalar)"
            case (_, .control), (_, .format), (_, .lineSeparator), (_, .paragraphSeparator), (_, .unassigned),
                (_, .privateUse):
                "\\u{\(String(scalar.value, radix: 16))}"
            default: String(scalar)
            }
        }.joined()
    }
}
