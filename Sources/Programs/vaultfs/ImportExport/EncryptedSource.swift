internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// Recognizes the encrypted side of a vault as an import's source. Its ciphertext would be encrypted again.
enum EncryptedSource {
    /// The file at the top of each kind of vault, and the program that makes it.
    private static let programs: [(file: Component, program: String)] = [
        ("gocryptfs.conf", "gocryptfs"), (".encfs6.xml", "EncFS"), ("cryfs.config", "CryFS"),
        ("vault.cryptomator", "Cryptomator"), ("masterkey.cryptomator", "Cryptomator"), (".securefs.json", "securefs"),
        (VaultDirectory.configurationEntry, "vaultfs"),
    ]

    /// Returns the configuration file and the program of another program's encrypted directory.
    static func foreign(_ directory: FilePath) -> (file: Component, program: String)? {
        programs.first { file, program in
            program != "vaultfs" && directory.appending(entry: file).withPlatformString { access($0, F_OK) } == 0
        }
    }

    /// Refuses an encrypted source.
    /// - Parameter path: as the user typed it.
    /// - Throws: code `usage`, with the advice.
    static func check(_ directory: Descriptor, path: FilePath) throws(CommandFailure) {
        for (name, program) in programs {
            guard (try? directory.status(of: name)) != nil else { continue }
            throw CommandFailure(
                .usage,
                "\(path.shown) holds \(name), so it is the encrypted side of a \(program) vault: mount it and import the "
                    + "mount, or import it as it is with --force")
        }
    }
}
