internal import CLinux
internal import Control
internal import Daemon
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import SystemPackage
internal import VaultCrypto
internal import ViewFileSystem
internal import ViewFormats

struct ViewMount: Codable, Sendable {
    let arguments: ViewArguments
    let cacheSize: Int
    /// True to fetch or derive all keys in the background.
    let prewarms: Bool

    /// Opens the view.
    /// - Parameter secret: its passphrase or key; empty for none.
    func open(_ request: MountRequest, secret: SecretBytes, logger: Logger) throws -> OpenedView {
        let location = try ViewLocation(request.source)
        // Copy the secret and wipe the given one, because callers keep a reference to it while this process serves.
        let own = secret.subrange(0..<secret.count)
        secret.forget()
        let secrets = try ViewSecrets(arguments.origin, secret: own.count > 0 ? own : nil)
        let source = try arguments.source(location, secrets: secrets, keyFile: own) { logger.notice("\($0)") }
        source.interruption.setLock { Signals.isEndPending }
        let fileSystem = try ViewFileSystem(
            source: source, secrets: secrets, gate: LockGate(request.lock), cacheSize: cacheSize,
            logger: logger)
        if prewarms { fileSystem.prefetchAll() }
        let left = source.left.map { "\(FilePath(bytes: $0.path).shown): \($0.text)" }
        return OpenedView(
            view: fileSystem, arguments: arguments, secrets: secrets, format: source.format.name.rawValue,
            warnings: Self.warnings(source.missingKeys(), more: "more key", end: " missing")
                + Self.warnings(left, more: "more line", end: " in 'vaultfs status'"))
    }

    /// Returns the first lines, and the number of the others.
    private static func warnings(_ lines: [String], more: String, end: String) -> [String] {
        let shown = 10
        let rest = lines.count - shown
        return lines.prefix(shown) + (rest > 0 ? ["\(AmountText.counted(rest, more))\(end)"] : [])
    }
}

struct OpenedView: OpenedSource {
    let view: ViewFileSystem
    let arguments: ViewArguments
    let secrets: ViewSecrets
    let format: String
    let warnings: [String]

    var fileSystem: any LockableFileSystem { view }
    var problems: [String] { view.problems() }

    func secretSource(_ secret: ClientSecret) -> LockController.SecretSource {
        { [secrets] () throws(UnlockRefusal) in
            guard secret.kind == "passphrase" else {
                throw .wrongSecret("a view is unlocked with its passphrase")
            }
            try secrets.check(secret.bytes)
            return UnlockSecret(secret.bytes)
        }
    }

    func checkForgetting() throws(ControlFailure) {
        do throws(CommandFailure) { try arguments.checkKeyFileStays() } catch {
            throw ControlFailure(.notSupported, error.message)
        }
    }

    func complete(_ status: inout MountStatus) {
        status.view = format
        status.problems = status.problems ?? []
    }
}

/// The source of a view: a directory, or one file in it.
struct ViewLocation {
    let root: Descriptor
    /// The entry of `root` that is the source; nil for the whole directory.
    let onlyName: [UInt8]?

    /// - Parameter path: absolute, without links.
    init(_ path: FilePath) throws(CommandFailure) {
        let kind = try CommandFailure.wrapping(
            "cannot open", path, try Descriptor(path: path, flags: linux_O_PATH).status().st_mode & S_IFMT)
        guard kind == S_IFDIR || kind == S_IFREG else {
            throw CommandFailure(.failure, "\(path.shown) is neither a directory nor a file")
        }
        let directory = kind == S_IFDIR ? path : path.removingLastComponent()
        root = try CommandFailure.wrapping(
            "cannot open", directory, try Descriptor(path: directory, flags: O_RDONLY | O_DIRECTORY))
        onlyName = kind == S_IFDIR ? nil : path.lastComponent.map { FilePath(root: nil, [$0]).bytes }
    }

    /// Reads `view.json` in the source. Ignores one beside a single file, because another user may have put it there.
    func manifest() throws(ViewError) -> ViewManifest? { onlyName == nil ? try ViewManifest.read(in: root) : nil }
}
