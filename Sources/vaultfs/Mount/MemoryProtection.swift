internal import CLinux
internal import VaultCrypto

/// How keys and plaintext in this process's memory are protected, as it came out. The names of the fields are part of the
/// interface of `vaultfs status --json`.
struct MemoryProtection: Codable, Equatable, Sendable {
    /// Where the block cache and the workers' buffers lie: the kernel writes and reads some of it, so never memfd_secret.
    enum Cache: String, Codable, Sendable {
        case locked = "mlock"
        case unlocked
    }

    /// The weakest memory that any key has lain in.
    let keys: SecretMemoryKind
    let cache: Cache
    /// Whether the process is never written to a core dump (RLIMIT_CORE is 0).
    let coreDumpsOff: Bool
    /// Whether no other process of the same user may read its memory or attach a debugger (PR_SET_DUMPABLE is 0).
    let notDumpable: Bool

    /// As it is now.
    init(cacheIsLocked: Bool) {
        self.init(
            keys: SecretMemory.kind, cache: cacheIsLocked ? .locked : .unlocked,
            coreDumpsOff: ProcessSetup.isWithoutCoreDumps, notDumpable: linux_is_dumpable() == 0)
    }

    init(keys: SecretMemoryKind, cache: Cache, coreDumpsOff: Bool, notDumpable: Bool) {
        self.keys = keys
        self.cache = cache
        self.coreDumpsOff = coreDumpsOff
        self.notDumpable = notDumpable
    }

    /// What could not be had, a phrase each, for people.
    var shortcomings: [String] {
        var phrases: [String] = []
        switch keys {
        case .memfdSecret: break
        case .locked: phrases.append("no memfd_secret for keys: locked memory only, which root can read")
        case .unlocked: phrases.append("keys are not locked in memory and may reach swap (raise 'ulimit -l')")
        }
        if cache == .unlocked {
            phrases.append("the block cache is not locked in memory and may reach swap (raise 'ulimit -l')")
        }
        if !coreDumpsOff { phrases.append("core dumps could not be turned off") }
        if !notDumpable { phrases.append("processes of the same user can read the daemon's memory") }
        return phrases
    }
}
