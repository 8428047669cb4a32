internal import ArgumentParser
internal import FoundationEssentials
internal import Glibc
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// The words that a shell offers for an argument. The completion script runs this program for them, on each press of the key.
/// bash expands them as if they had been typed (`compgen -W`), so a name that others choose could run a command: names with
/// other characters than plain ones are left out.
enum Completions {
    /// The mountpoints of this user's vaults and views, as root of all users'.
    static let mounts = CompletionKind.custom { _, _, _ in
        let mounts = (try? MountTable.read().vaultsOfThisUser) ?? []
        return mounts.map { FilePath(bytes: $0.mountpoint).string }.filter(isPlain)
    }

    /// The ids of the slots of the vault that is named in the same line.
    static let slots = CompletionKind.custom { words, _, _ in
        let vaults = words.lazy.compactMap { try? VaultDirectory.open(FilePath(expanded($0))) }
        return vaults.first?.configuration.slots.map { "\($0.id)" } ?? []
    }

    /// Protection classes and files. A completion of one's own replaces the shell's, so files must be found here.
    static let classesAndFiles = CompletionKind.custom { _, _, word in
        let end = word.lastIndex(of: "/").map(word.index(after:)) ?? word.startIndex
        let directory = String(word[..<end])
        let path = directory.isEmpty ? "." : expanded(directory)
        let names = (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
        let paths = names.filter(isPlain).sorted().map { directory + $0 }
        return (ProtectionClass.allCases.map(\.name) + paths).filter { $0.hasPrefix(word) }
    }

    private static func isPlain(_ word: String) -> Bool {
        word.first != "-"
            && word.unicodeScalars.allSatisfy {
                $0.properties.isAlphabetic || "0123456789/._+@%,:-".unicodeScalars.contains($0)
            }
    }

    /// The shell passes words as they were typed.
    private static func expanded(_ path: String) -> String {
        guard path.hasPrefix("~/"), let home = getenv("HOME") else { return path }
        return String(cString: home) + path.dropFirst()
    }
}
