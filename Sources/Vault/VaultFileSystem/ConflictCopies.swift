internal import LinuxSystem
internal import Synchronization

/// The conflict copies that programs have seen in listings or by name, for `status`. Any thread. A leaf lock.
final class ConflictCopies: Sendable {
    /// Maximum number of remembered copies.
    private static let mostKnown = 1000

    private struct Key: Hashable {
        let directory: ObjectIdentifier
        let entry: Component
    }

    /// The directory of each copy, by the directory's identity and the copy's entry.
    private let known = Mutex<[Key: Node]>([:])

    func insert(_ entry: Component, in directory: Node) {
        known.withLock { known in
            if known.count < Self.mostKnown {
                known[Key(directory: ObjectIdentifier(directory), entry: entry)] = directory
            }
        }
    }

    /// Counts the copies for which `isThere` returns true. Forgets the others: a sync client may have removed them.
    func count(isThere: (Node, Component) -> Bool) -> Int {
        let seen = known.withLock { $0 }
        let absent = seen.filter { !isThere($1, $0.entry) }.keys
        return known.withLock { known in
            for key in absent { known[key] = nil }
            return known.count
        }
    }
}
