package import Control
internal import FuseSession
package import Locking
package import Logging
package import SystemPackage
package import VaultCrypto

/// A mount to be made. The command checks everything that needs no key, and sends it to its daemon.
package struct MountRequest: Codable, Sendable {
    /// The path that mount(8) and `status` show. Absolute.
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

    var mountOptions: MountOptions {
        MountOptions(
            mountpoint: mountpoint, fuseOptions: options.fuseOptions + (options.isReadOnly ? ["ro"] : []),
            sourceName: source.string, bypassesKernelCache: options.bypassesKernelCache)
    }
}

/// The settings of a mount that any file system can have.
package struct ServingOptions: Codable, Equatable, Sendable {
    /// The words for libfuse and the kernel, in the order given.
    package var fuseOptions: [String] = []
    package var isReadOnly = false
    /// Other users may use the mount, which fuse.conf must permit.
    package var allowsOthers = false
    package var mayBeNonEmpty = false
    package var bypassesKernelCache = false
    /// Bytes.
    package var readAhead: Int?
    /// The time without use after which the mount ends. Nil for never.
    package var idleUnmountMilliseconds: Int?
    package var guardsMountpoint = false
    /// True if the command makes the mountpoint. It is then guarded by its mode alone, and `vaultfs unmount` removes it.
    package var makesMountpoint = false

    package init() {}
}

/// A thing that a daemon can mount. The command makes it, and the daemon opens it.
package protocol MountSubject: Codable, Sendable {
    /// The program's version, for `status`.
    static var version: String { get }
    /// The name of the command, for ps(1).
    var command: String { get }
    /// Opens the file system. Runs in the daemon, in its only thread.
    /// - Parameters:
    ///   - secret: the bytes that the command has read.
    ///   - report: logs a problem of the store, and sends it to subscribers. Any thread.
    /// - Throws: an error that `failure` knows.
    func open(
        _ request: MountRequest, secret: SecretBytes, logger: Logger, report: @escaping @Sendable (String) -> Void
    ) throws -> MountContents
    /// The exit code and message for an error of `open`, or of the mount.
    static func failure(_ error: any Error) -> DaemonFailure
}

extension MountSubject {
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

/// An opened file system, with what its daemon needs to know about it.
package struct MountContents: Sendable {
    package let fileSystem: any LockableFileSystem
    /// Returns the function that makes the file system's own secret of the one that a client gives.
    package let secretSource: @Sendable (ClientSecret) throws(ControlFailure) -> LockController.SecretSource
    /// Throws if an unlock could not restore forgotten keys.
    package var checkForgetting: @Sendable () throws(ControlFailure) -> Void = {}
    /// Fetches a secret when only that is missing to unlock.
    package var prefetch: (any SecretPrefetching)?
    package var lease: (any LeaseKeeper)?
    /// True if nothing can be written, also because the store lacks what it takes.
    package var isReadOnly = true
    /// Returns what does not work, a line each.
    package var problems: @Sendable () -> [String] = { [] }
    /// Returns the time since which the store has not answered some work in the background, in nanoseconds of
    /// CLOCK_MONOTONIC. Nil without work.
    package var unansweredSince: @Sendable () -> Int? = { nil }
    /// Warnings for the user, a line each.
    package var warnings: [String] = []
    /// Problems that the store had at the mount, and that were logged, a line each.
    package var problemsAtStart: [String] = []
    /// Adds what only the file system knows to an answer to `status`.
    package var completeStatus: @Sendable (inout MountStatus) -> Void = { _ in }

    package init(
        fileSystem: any LockableFileSystem,
        secretSource: @escaping @Sendable (ClientSecret) throws(ControlFailure) -> LockController.SecretSource
    ) {
        (self.fileSystem, self.secretSource) = (fileSystem, secretSource)
    }
}

/// Fetches a secret in the background. Any thread.
package protocol SecretPrefetching: Sendable {
    /// Requests a fetch, and another one after the fetch that is under way. Does not wait.
    func start(_ receiver: @escaping @Sendable (ClientSecret) -> Void)
    /// Ends the fetch that is under way.
    func stop()
}
