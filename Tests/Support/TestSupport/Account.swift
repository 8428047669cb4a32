import Foundation

/// The user who runs a command: this process's user, or an ordinary one. The ordinary user gets copies of the programs
/// and of the Python reader, because the checkout may be unreadable for that user.
package final class Account: Sendable {
    /// The user who runs the tests.
    package static let current = Account(
        name: Products.isRoot ? "root" : "user", prefix: [], binary: Products.binary, support: Products.support)

    /// An ordinary user: the current one, or `nobody` if root runs the tests. Nil if that is not possible. root starts
    /// its commands in a separate mount namespace, with a device node open to all bound over /dev/fuse, so the machine
    /// stays unchanged.
    package static let ordinary: Account? = {
        guard Products.isRoot else { return current }
        guard let namespace = try? PrivateNamespace() else { return nil }
        return Account(name: "user", prefix: namespace.entering + namespace.becoming, namespace: namespace)
    }()

    /// The same ordinary user outside that namespace, who sees root's mounts but cannot make any. Nil unless root runs
    /// the tests.
    package static let visitor: Account? = {
        guard Products.isRoot, let ordinary, let namespace = ordinary.namespace else { return nil }
        return Account(name: "visitor", prefix: namespace.becoming, namespace: namespace)
    }()

    /// Another ordinary user, with only one test's mounts: `games`, which every Debian has. Nil unless root runs the
    /// tests.
    package static let newcomer: Account? = {
        guard Products.isRoot, let namespace = ordinary?.namespace else { return nil }
        let becoming = PrivateNamespace.becoming(uid: newcomerID, gid: 60)
        return Account(name: "newcomer", prefix: namespace.entering + becoming, namespace: namespace)
    }()

    package static let newcomerID = 5

    package let name: String
    package let binary: String
    package let support: String
    private let prefix: [String]
    private let namespace: PrivateNamespace?

    private init(name: String, prefix: [String], binary: String, support: String) {
        (self.name, self.prefix, self.binary, self.support, namespace) = (name, prefix, binary, support, nil)
    }

    private init(name: String, prefix: [String], namespace: PrivateNamespace) {
        (self.name, self.prefix, self.namespace) = (name, prefix, namespace)
        binary = namespace.binary
        support = namespace.support
    }

    /// True if the account's commands run as root.
    package var isRoot: Bool { Products.isRoot && namespace == nil }

    /// Returns a command of this account.
    package func command(
        _ arguments: [String], environment: [String: String] = [:], directory: String? = nil, input: String? = nil,
        timeout: Duration = .seconds(60)
    ) -> Command {
        var environment = environment
        if let namespace { environment.merge(namespace.environment) { given, _ in given } }
        return Command(
            prefix + (directory.map { ["env", "-C", $0] } ?? []) + arguments, environment: environment, input: input,
            timeout: timeout)
    }

    /// Runs a command of this account to its end.
    @discardableResult
    package func run(
        _ arguments: [String], environment: [String: String] = [:], directory: String? = nil, input: String? = nil,
        timeout: Duration = .seconds(60)
    ) throws -> CommandResult {
        try command(arguments, environment: environment, directory: directory, input: input, timeout: timeout).run()
    }

    /// Runs a program of `Tests/Support/Programs`.
    package func program(_ name: String, _ arguments: [String], timeout: Duration = .seconds(60)) throws
        -> CommandResult
    {
        try run([Products.python, "\(support)/Programs/\(name)"] + arguments, timeout: timeout)
    }

    /// Makes this account the owner of `path`, which root made.
    package func own(_ path: String) throws {
        guard namespace != nil else { return }
        try Command(["chown", "-R", "\(PrivateNamespace.uid):\(PrivateNamespace.gid)", path]).run().succeeded()
    }
}
