internal import Synchronization

/// The class of an object, which decides when it can be read. Headers and records have one byte for it (FileFormat,
/// Keys).
package enum ProtectionClass: UInt8, Sendable, CaseIterable, AtomicRepresentable {
    /// Keys are wiped at every lock.
    case complete = 1
    /// An open file stays usable during a lock.
    case unlessOpen = 2
    /// Usable from the first unlock until the mount ends.
    case untilFirstUnlock = 3
    /// Never locked.
    case none = 4
    /// A directory in which programs can make files and directories during a lock. Its keys decrypt names only.
    case inbox = 5

    package static let ofFiles: [ProtectionClass] = [.complete, .unlessOpen, .untilFirstUnlock, .none]

    /// The class of new files and links in a directory of this class.
    package var ofNewFiles: ProtectionClass { self == .inbox ? .unlessOpen : self }

    /// The class's spelling in `user.vaultfs.class` and for people.
    package var name: String {
        switch self {
        case .complete: "complete"
        case .unlessOpen: "unless-open"
        case .untilFirstUnlock: "until-first-unlock"
        case .none: "none"
        case .inbox: "inbox"
        }
    }

    package init?(name: String) {
        guard let found = Self.allCases.first(where: { $0.name == name }) else { return nil }
        self = found
    }
}
