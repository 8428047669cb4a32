internal import Daemon
internal import LinuxSystem
internal import Locking
internal import Logging
internal import VaultCrypto

/// The vault or view served by a daemon.
enum VaultOrView: MountSource {
    case vault(VaultMount)
    case view(ViewMount)

    static let version = VaultFS.version

    var command: String {
        switch self {
        case .vault: "mount"
        case .view: "view"
        }
    }

    func open(
        _ request: MountRequest, secret: SecretBytes, logger: Logger, report: @escaping @Sendable (String) -> Void
    ) throws -> any OpenedSource {
        switch self {
        case .vault(let vault): try vault.open(request, masterKey: secret, logger: logger, report: report)
        case .view(let view): try view.open(request, secret: secret, logger: logger)
        }
    }

    static func failure(_ error: any Error) -> DaemonFailure {
        let failure = CommandFailure(any: error) ?? CommandFailure(.failure, "\(error)")
        return DaemonFailure(exitCode: failure.code.rawValue, message: failure.message)
    }

    /// Mounts, and returns when the mount is ready. In the foreground, returns only by throwing.
    func mount(
        _ request: MountRequest, on mountpoint: CheckedMountpoint, secret: SecretBytes, inForeground: Bool
    ) throws {
        let warnings = try Mountpoint.use(mountpoint) { directory in
            try DaemonLaunch.run(request, self, on: directory, secret: secret, inForeground: inForeground)
        }
        for warning in warnings { Console.report("warning: \(warning)") }
        let suffix = request.options.isReadOnly ? ", read-only" : ""
        Console.confirm("\(request.mountpoint.shown): mounted from \(request.source.shown)\(suffix)")
        // Report lock files, because a locked mount refuses everything.
        for file in request.lock.lockFiles {
            let state = file.check()
            if state.isLocked {
                Console.report("\(request.mountpoint.shown) is locked: \(file.describe(state))")
            }
        }
    }
}
