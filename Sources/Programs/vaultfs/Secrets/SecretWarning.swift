internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Warnings about working secrets that may protect less than their owner believes. Each is a line on stderr.
enum SecretWarning {
    /// The number of characters below which a new passphrase is called short.
    private static let fewCharacters = 8

    /// Warns if every user can read a file with a secret. Pipes and devices do not count.
    static func checkMode(of file: Descriptor, path: FilePath) {
        guard let mode = try? file.status().st_mode, mode & S_IFMT == S_IFREG, mode & S_IROTH != 0 else { return }
        report(
            "every user can read \(path.shown): "
                + modeAdvice(path, isModeless: FileSystemType(of: file).isModeless))
    }

    /// - Parameter isModeless: true on a file system such as FAT, where chmod(1) has no effect.
    static func modeAdvice(_ path: FilePath, isModeless: Bool) -> String {
        isModeless
            ? "its file system keeps no modes: mount that with the option umask=077"
            : "chmod 600 \(path.quotedForShell)"
    }

    /// Warns about a line end inside a passphrase, left by a text file of another system or by two commands in a pipe.
    /// - Parameter isFirstLine: true if only the first line counts.
    static func checkLineBreaks(_ text: WipedBytes, from option: String, isFirstLine: Bool) {
        let (lineFeed, carriageReturn) = (UInt8(ascii: "\n"), UInt8(ascii: "\r"))
        let isSuspect = text.withBytes { bytes in
            let all = bytes.last == lineFeed ? bytes.dropLast() : bytes[...]
            let passphrase = isFirstLine ? all.prefix { $0 != lineFeed } : all
            return passphrase.contains { $0 == lineFeed || $0 == carriageReturn }
        }
        guard isSuspect else { return }
        report(
            "the passphrase from \(option) has a line break or a CR in it, which counts; only one LF at the end does not"
        )
    }

    /// Warns about a short new passphrase.
    static func checkLength(_ secret: SlotSecret) {
        guard secret.kind == .passphrase else { return }
        // Each UTF-8 character has exactly one byte that is not a continuation byte (RFC 3629, section 3).
        let count = secret.bytes.withUnsafeBytes { bytes in bytes.count { $0 & 0xC0 != 0x80 } }
        guard count < fewCharacters else { return }
        report("the passphrase has fewer than \(fewCharacters) characters, and is easy to guess")
    }

    /// Warns if a new secret already opens another slot, which will open the vault even without the new slot.
    /// - Parameter id: the id of the slot that gets the secret; nil for an added slot.
    static func checkOtherSlots(of vault: VaultConfiguration, for secret: SlotSecret, changing id: Int? = nil) {
        // Ignore an error, because the slot can be made all the same.
        let others = (try? vault.slots(openedBy: secret, except: id)) ?? []
        guard !others.isEmpty else { return }
        report(
            "the new secret opens \(SlotReport.names(others)) too: to withdraw it, change or remove each of these slots"
        )
    }

    private static func report(_ warning: String) { Console.report("warning: " + warning) }
}
