package import Control
internal import FuseSession
package import Locking
package import Logging
package import SystemPackage
package import VaultCrypto

/// A requested mount. The command checks everything that needs no key, and sends the request to its daemon.
package struct MountRequest: Codable, Sendable {
    /// The path shown by mount(8) and `status`. Absolute.
    package let source: FilePath
    /// Absolute, without links.
    package let mountpoint: FilePath
    package var options: ServingOptions
    package let lock: LockOptions
    /// Messages below this level are not logged.
    package let logLevel: Logger.Level

    package init(
        source: FilePath, mountpoint: FilePath, options: ServingOptions = ServingOptions(),
        lock: LockOptions = LockOptions(), logLevel: Logger.Level = .info
    ) {
        (self.source, self.mountpoint, self.options) = (source, mountpoint, options)
        (self.lock, self.logLevel) = (lock, logLevel)
    }

    var sessionOptions: SessionOptions {
        SessionOptions(
            mountpoint: mountpoint, fuseOptions: options.fuseOptions + (options.isReadOnly ? ["ro"] : []),
            sourceName: source.string, bypassesKernelCache: options.bypassesKernelCache)
    }
}

/// The settings that every file system's mount can have.
package struct ServingOptions: Codable, Equatable, Sendable {
    /// The words for libfuse and the kernel, in their given order.
    package var fuseOptions: [String] = []
    package var isReadOnly = false
    /// True if other users may use the mount, which fuse.conf must permit.
    package var allowsOthers = false
    package var mayBeNonEmpty = false
    package var bypassesKernelCache = false
    /// The read-ahead in bytes. Nil for the kernel's default.
    package var readAhead: Int?
    /// The milliseconds without use after which the mount ends. Nil for never.
    package var idleUnmountMilliseconds: Int?
    package var guardsMountpoint = false
    /// True if the command makes the mountpoint. Then only its mode guards it, and `vaultfs unmount` removes it.
    package var makesMountpoint = false

    package init() {}
}

/// A source of mounts, such as a vault. The command makes it, and the daemon opens it.
package protocol MountSource: Codable, Sendable {
    /// The program's version, for `status`.
    static var version: String { get }
    /// The name of the command, for ps(1).
    var command: String { get }
    /// Opens the file system. Called in the daemon, in its only thread.
    /// - Parameters:
    ///   - secret: the bytes read by the command.
    ///   - report: logs a problem of the store, and sends it to subscribers. Any thread.
    /// - Throws: an error known to `failure`.
    func open(
        _ request: MountRequest, secret: SecretBytes, logger: Logger, report: @escaping @Sendable (String) -> Void
    ) throws -> any OpenedSource
    /// Returns the exit code and message for an error of `open`, or of the mount.
    static func failure(_ error: any Error) -> DaemonFailure
}

extension MountSource {
    package static func failure(_ error: any Error) -> DaemonFailure {
        switch error {
        case let failure as DaemonFailure: failure
        case let error as MountError: DaemonFailure(exitCode: error.kind.rawValue, message: error.reason)
        default: DaemonFailure(exitCode: MountError.Kind.failure.rawValue, message: "\(error)")
        }
    }
}

/// The failure of a daemon before its mount was ready.
package struct DaemonFailure: Error, Codable, Equatable {
    package let exitCode: Int32
    /// A line for people: lower case, no full stop.
    package let message: String

    package init(exitCode: Int32, message: String) { (self.exitCode, self.message) = (exitCode, message) }
}

/// An opened source, with everything that its daemon needs to know about it. Any thread.
package protocol OpenedSource: Sendable {
    var fileSystem: any LockableFileSystem { get }
    /// Fetches a secret as soon as an unlock lacks only the secret.
    var prefetch: (any SecretPrefetching)? { get }
    var lease: (any LeaseKeeper)? { get }
    /// True if nothing can be written, for example because the store lacks an ability.
    var isReadOnly: Bool { get }
    /// The current problems, a line each.
    var problems: [String] { get }
    /// The time since which some work in the background waits for the store, in nanoseconds of CLOCK_MONOTONIC. Nil
    /// without work.
    var unansweredSince: Int? { get }
    /// Warnings for the user, a line each.
    var warnings: [String] { get }
    /// Problems of the store at the mount, already logged, a line each.
    var problemsAtStart: [String] { get }
    /// Returns the function that turns a client's secret into the file system's own.
    /// - Throws: for bytes that cannot be a secret of this source.
    func secretSource(_ secret: ClientSecret) throws(ControlFailure) -> LockController.SecretSource
    /// Throws if an unlock could not restore forgotten keys.
    func checkForgetting() throws(ControlFailure)
    /// Adds the facts known only to the source to an answer to `status`.
    func complete(_ status: inout MountStatus)
}

extension OpenedSource {
    package var prefetch: (any SecretPrefetching)? { nil }
    package var lease: (any LeaseKeeper)? { nil }
    package var isReadOnly: Bool { true }
    package var problems: [String] { [] }
    package var unansweredSince: Int? { nil }
    package var warnings: [String] { [] }
    package var problemsAtStart: [String] { [] }
    package func checkForgetting() throws(ControlFailure) {}
    package func complete(_ status: inout MountStatus) {}
}

/// Fetches a secret in the background. Any thread.
package protocol SecretPrefetching: Sendable {
    /// Requests a fetch, or another one after the running fetch. Does not wait.
    func start(_ receiver: @escaping @Sendable (ClientSecret) -> Void)
    func stop()
}
