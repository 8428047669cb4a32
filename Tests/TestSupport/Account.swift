import Foundation

/// On whose behalf a command runs: this process's user, or an ordinary one. Programs and the Python reader are given to
/// the ordinary user as copies, since the checkout need not be readable to it.
package final class Account: Sendable {
    /// Whoever runs the tests.
    package static let current = Account(
        name: Products.isRoot ? "root" : "user", prefix: [], binary: Products.binary, tests: Products.tests)

    /// An ordinary user: the current one, or `nobody` where root runs the tests; nil where that cannot be had. Root
    /// starts its commands in a mount namespace of their own, with a device node open to all bound over /dev/fuse, so
    /// that nothing on the machine changes.
    package static let ordinary: Account? = {
        guard Products.isRoot else { return current }
        guard let namespace = try? PrivateNamespace() else { return nil }
        return Account(name: "user", prefix: namespace.entering + namespace.becoming, namespace: namespace)
    }()

    /// The same ordinary user outside that namespace, where it sees root's mounts but cannot make any; nil unless root
    /// runs the tests.
    package static let visitor: Account? = {
        guard Products.isRoot, let ordinary, let namespace = ordinary.namespace else { return nil }
        return Account(name: "visitor", prefix: namespace.becoming, namespace: namespace)
    }()

    package let name: String
    package let binary: String
    package let tests: String
    private let prefix: [String]
    private let namespace: PrivateNamespace?

    private init(name: String, prefix: [String], binary: String, tests: String) {
        (self.name, self.prefix, self.binary, self.tests, namespace) = (name, prefix, binary, tests, nil)
    }

    private init(name: String, prefix: [String], namespace: PrivateNamespace) {
        (self.name, self.prefix, self.namespace) = (name, prefix, namespace)
        binary = namespace.binary
        tests = namespace.tests
    }

    /// True where its commands run as root.
    package var isRoot: Bool { Products.isRoot && namespace == nil }

    /// A command of this account.
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

    /// Runs a program of `Tests/Programs`.
    package func program(_ name: String, _ arguments: [String], timeout: Duration = .seconds(60)) throws
        -> CommandResult
    {
        try run([Products.python, "\(tests)/Programs/\(name)"] + arguments, timeout: timeout)
    }

    /// Gives what root made at `path` to this account.
    package func own(_ path: String) throws {
        guard namespace != nil else { return }
        try Command(["chown", "-R", "\(PrivateNamespace.uid):\(PrivateNamespace.gid)", path]).run().succeeded()
    }
}
