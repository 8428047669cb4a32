package import VaultCrypto

/// The protection of keys and plaintext in the daemon's memory. `vaultfs status --json` documents the names of the
/// fields. All are optional, because the daemon may be of another version.
package struct MemoryProtection: Codable, Equatable, Sendable {
    /// The weakest kind of memory that has held a key: the raw value of a `SecretMemoryKind`, or of a later version.
    package let keys: String?
    /// The memory of the block cache and the workers' buffers: `mlock` or `swappable`. Never memfd_secret: the kernel
    /// reads and writes it.
    package let cache: String?
    /// True if RLIMIT_CORE is 0.
    package let coreDumpsOff: Bool?
    /// True if PR_SET_DUMPABLE is 0, so other processes of the user cannot read the memory or attach a debugger.
    package let notDumpable: Bool?

    package init(keys: SecretMemoryKind, cacheIsLocked: Bool, coreDumpsOff: Bool, notDumpable: Bool) {
        (self.keys, cache) = (keys.rawValue, cacheIsLocked ? "mlock" : "swappable")
        (self.coreDumpsOff, self.notDumpable) = (coreDumpsOff, notDumpable)
    }

    /// The protections that failed, each as a phrase for people.
    package var shortcomings: [String] {
        var phrases: [String] = []
        switch keys.flatMap(SecretMemoryKind.init) {
        case .memfdSecret, nil: break
        case .locked: phrases.append("no memfd_secret for keys: locked memory only, which root can read")
        case .unlocked: phrases.append("keys are not locked in memory and may reach swap (raise 'ulimit -l')")
        }
        if cache == "swappable" {
            phrases.append("the block cache is not locked in memory and may reach swap (raise 'ulimit -l')")
        }
        if coreDumpsOff == false { phrases.append("core dumps could not be turned off") }
        if notDumpable == false { phrases.append("processes of the same user can read the daemon's memory") }
        return phrases
    }
}
