internal import Synchronization

/// When an object can be read: the one byte that headers and directory records carry (FileFormat, Keys).
package enum ProtectionClass: UInt8, Sendable, CaseIterable, AtomicRepresentable {
    /// Keys are wiped at every lock.
    case complete = 1
    /// A file that is open stays usable while locked.
    case unlessOpen = 2
    /// Usable from the first unlock until the mount ends.
    case untilFirstUnlock = 3
    /// Never locked.
    case none = 4
    /// A directory in which new files and directories can be made while locked. Its keys open nothing but names.
    case inbox = 5

    /// The classes of files and links.
    package static let ofFiles: [ProtectionClass] = [.complete, .unlessOpen, .untilFirstUnlock, .none]

    /// The class of new files and links in a directory of this class.
    package var ofNewFiles: ProtectionClass { self == .inbox ? .unlessOpen : self }

    /// The class as people and `user.vaultfs.class` spell it.
    package var name: String {
        switch self {
        case .complete: "complete"
        case .unlessOpen: "unless-open"
        case .untilFirstUnlock: "until-first-unlock"
        case .none: "none"
        case .inbox: "inbox"
        }
    }

    /// The class called `name`, or nil.
    package init?(name: String) {
        guard let found = Self.allCases.first(where: { $0.name == name }) else { return nil }
        self = found
    }
}
