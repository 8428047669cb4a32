package import SystemPackage

/// Paths in command lines that a message offers for pasting.
extension FilePath {
    /// The path, quoted for a shell.
    package var quotedForShell: String {
        let text = shown
        // The shell's command would mistake this path for an option.
        if text.hasPrefix("-") { return FilePath("./").appending(components).quotedForShell }
        let plain = text.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: "/._-+,:@%".utf8.contains(byte)
            }
        }
        if plain { return text }
        return "'" + text.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
    }
}
