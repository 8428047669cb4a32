internal import CallWatch
package import Glibc

/// A user other than root, for this thread and those started by it. If root does not run the tests, every thread is
/// one.
package enum OrdinaryUser {
    private static let root: uid_t = 0
    /// An arbitrary id.
    package static let id: uid_t = 54321
    private static let isRootsProcess = geteuid() == 0

    package static func act<Result>(_ body: () throws -> Result) rethrows -> Result {
        guard isRootsProcess else { return try body() }
        become(id)
        defer { become(root) }
        return try body()
    }

    /// Runs `body` as root within `act`, if root runs the tests.
    package static func actAsRoot<Result>(_ body: () throws -> Result) rethrows -> Result {
        guard isRootsProcess, geteuid() == id else { return try body() }
        become(root)
        defer { become(id) }
        return try body()
    }

    private static func become(_ user: uid_t) {
        precondition(thread_user_set(user), "cannot act as user \(user)")
    }
}
