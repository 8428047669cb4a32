internal import ArgumentParser
internal import CLinux
internal import Daemon
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// The words offered by a shell for an argument. The completion script runs this program for them, on each press of the
/// key. They are neither quoted nor expanded. The script of `CompletionScript` quotes them where the shell does not.
enum Completions {
    /// The mountpoints of this user's vaults and views, or for root of all users', and labels of the list of vaults.
    static let mounts = CompletionKind.custom { _, _, word in mountpoints(word) + knownLabels(word) }

    /// They begin like the typed word: with `/`, with `~/`, or with a name in the working directory.
    private static func mountpoints(_ word: String) -> [String] {
        let mounts = (try? MountTable.read().mountsOfThisUser) ?? []
        let start = unquoted(word)
        let paths = mounts.map(\.path.string)
        let base = start.hasPrefix("~") ? home : FileManager.default.currentDirectoryPath
        guard let first = start.first, first != "/", let base, base != "/" else { return offered(paths) }
        return offered(
            paths.filter { $0.hasPrefix(base + "/") }.map { path in
                first == "~" ? "~" + path.dropFirst(base.count) : String(path.dropFirst(base.count + 1))
            })
    }

    /// The labels of the list of vaults.
    static let labels = CompletionKind.custom { _, _, word in knownLabels(word) }

    /// The labels of the list of vaults, and directories. A completion of our own replaces the shell's.
    static let vaults = CompletionKind.custom { _, _, word in
        let directories = paths(from: unquoted(word)).filter { path in
            (try? Descriptor(path: FilePath(expanded(path)), flags: linux_O_PATH | O_DIRECTORY)) != nil
        }
        return knownLabels(word) + directories
    }

    private static func knownLabels(_ word: String) -> [String] {
        offered(((try? KnownVaults.read())?.vaults ?? []).map(\.label)).filter { $0.hasPrefix(unquoted(word)) }
    }

    /// The ids and labels of the slots of the vault named in the same line.
    static let slots = CompletionKind.custom { words, _, _ in
        let vaults = words.lazy.compactMap {
            try? VaultDirectory.open(GivenVault.path(FilePath(expanded(unquoted($0)))))
        }
        let slots = vaults.first?.configuration.slots ?? []
        return slots.map { "\($0.id)" } + offered(slots.map(\.label).filter { !$0.isEmpty && Int($0) == nil })
    }

    /// Protection classes and files. A completion of our own replaces the shell's, so it must offer the files, too.
    static let classesAndFiles = CompletionKind.custom { _, _, word in
        let start = unquoted(word)
        return ProtectionClass.allCases.map(\.name).filter { $0.hasPrefix(start) } + paths(from: start)
    }

    /// The paths that begin with this text. Hidden ones only if it names one.
    private static func paths(from start: String) -> [String] {
        let end = start.lastIndex(of: "/").map(start.index(after:)) ?? start.startIndex
        let directory = String(start[..<end])
        let path = directory.isEmpty ? "." : expanded(directory)
        let names = (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
        let shown = names.sorted().filter { $0.first != "." || start[end...].first == "." }
        return offered(shown.map { directory + $0 }).filter { $0.hasPrefix(start) }
    }

    /// Leaves out words that the shell or the command would take for options, or for several words.
    private static func offered(_ words: [String]) -> [String] {
        words.filter { $0.first != "-" && $0.withoutControlCharacters == $0 }
    }

    /// Returns the word as the shell will pass it. The shell gives it as typed.
    private static func unquoted(_ word: String) -> String {
        if let quote = word.first, "'\"".contains(quote) { return String(word.dropFirst().filter { $0 != quote }) }
        var isEscaped = false
        return word.filter { character in
            isEscaped = character == "\\" && !isEscaped
            return !isEscaped
        }
    }

    private static func expanded(_ path: String) -> String {
        guard path.hasPrefix("~/"), let home else { return path }
        return home + path.dropFirst()
    }

    private static var home: String? { getenv("HOME").map { String(cString: $0) } }
}
