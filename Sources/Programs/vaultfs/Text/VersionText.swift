internal import CBuild
internal import FuseSession
internal import VaultCrypto

/// The text of `--version`. Scripts read its second word.
enum VersionText {
    /// `vaultfs 0.1.0 (commit 1a2b3c4d5e6f, libfuse 3.14.0, OpenSSL 3.0.17)`
    static var line: String {
        let commit = String(cString: vaultfs_build_commit())
        let parts =
            (commit.isEmpty ? [] : ["commit \(commit)"])
            + ["libfuse \(FuseVersion.text)", "OpenSSL \(CryptoVersion.text)"]
        return "vaultfs \(VaultFS.version) (\(parts.joined(separator: ", ")))"
    }
}
