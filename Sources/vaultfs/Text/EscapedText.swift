/// Text from `vaultfs.json`, which anybody may have written, as a terminal may show it.
enum EscapedText {
    /// Control characters, what changes the direction of writing, line ends, quotes and backslashes as `\u{…}`, `\'`, `\\`.
    static func escaped(_ text: String) -> String {
        text.unicodeScalars.map { scalar in
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
