internal import COpenSSL

/// The protection of the memory that holds secrets. Later cases are weaker.
package enum SecretMemoryKind: String, Codable, Sendable {
    /// memfd_secret(2): not in the kernel's own map of memory, out of reach of ptrace(2), never swapped out.
    case memfdSecret = "memfd_secret"
    /// mlock(2): never swapped out.
    case locked = "mlock"
    /// Neither: it may reach swap.
    case unlocked

    private var weakness: Int {
        switch self {
        case .memfdSecret: 0
        case .locked: 1
        case .unlocked: 2
        }
    }

    func weaker(_ other: SecretMemoryKind) -> SecretMemoryKind { weakness > other.weakness ? self : other }
}

/// The state of the memory that holds secrets.
package enum SecretMemory {
    /// The weakest kind that any secret of this process has lain in so far. Any thread.
    package static var kind: SecretMemoryKind { SecretArena.weakestKind }

    /// False once a secret had to lie in memory that may be swapped out (mlock(2), RLIMIT_MEMLOCK). Any thread.
    package static var allLocked: Bool { kind != .unlocked }

    /// Takes 1 MiB of the best kind available, the keys of some 5,000 open files, before caches and buffers use
    /// up what this process may lock (RLIMIT_MEMLOCK). If that is too much, memory is taken as keys arrive.
    /// Call it once, before the first secret.
    package static func reserve() {
        SecretArena.reserve()
    }
}

/// Overwrites memory with zeros in a way that the compiler keeps (OPENSSL_cleanse).
func wipe(_ base: UnsafeMutableRawPointer, count: Int) {
    OPENSSL_cleanse(base, count)
}
