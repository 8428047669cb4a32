internal import LinuxSystem
internal import SystemPackage
internal import ViewFormats

/// The command lines that would mount a file.
struct ViewCommandLines {
    private let path: FilePath

    init(_ path: FilePath) {
        self.path = path
    }

    /// The likeliest first.
    func lines(for found: SourceInspection) -> [String] {
        switch found.content {
        case .salted:
            // What 'openssl enc' takes, with -pbkdf2 and without.
            return [line("openssl", "--pbkdf2-iterations 10000"), line("openssl", "")]
        case .playlist:
            let directory = path.removingLastComponent()
            return ["vaultfs view hls \(Self.quoted(directory.isEmpty ? "." : directory)) MOUNTPOINT"]
        case .opaque:
            let exact = found.chunkSizes.filter(\.isExact).map { "\(ByteSize(Int($0.size)))" }
            let sizes = exact.isEmpty && !found.chunkSizes.isEmpty ? ["SIZE"] : exact
            let chunks = sizes.map { line("cbc-chunks", "--chunk-size \($0) --key-file KEY") }
            return chunks + [line("cbc", "--key-file KEY --iv HEX")]
                + (found.size >= 32 ? [line("cbc", "--key-file KEY --iv-in-file")] : [])
        case .empty, .plaintext, .other: return []
        }
    }

    private func line(_ format: String, _ options: String) -> String {
        "vaultfs view \(format) \(Self.quoted(path)) MOUNTPOINT" + (options.isEmpty ? "" : " " + options)
    }

    /// As a shell reads it.
    static func quoted(_ path: FilePath) -> String {
        let text = path.shown
        // Not to be taken for an option.
        if text.hasPrefix("-") { return quoted(FilePath("./").appending(path.components)) }
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
