internal import ArgumentParser
internal import Control
internal import LinuxSystem
internal import Locking
internal import SystemPackage
internal import VaultStore

/// The options for the times and effects of locks.
struct LockArguments: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Lock while anything is at this path; may be given several times. Default: device.lock in the run-time directory.",
            valueName: "path"))
    var lockFile: [PathArgument] = []

    @Option(
        help: ArgumentHelp(
            "Effect of a lock on the keys: refuse (they stay in protected memory) or forget (unlocking needs a secret).",
            valueName: "policy"))
    var onLock: LockPolicy = .refuse

    @Option(
        help: ArgumentHelp("Lock after this time without a request, even if files are open.", valueName: "duration"),
        transform: DurationArgument.parse)
    var idleLock: DurationArgument?

    @Option(
        help: ArgumentHelp(
            "Time before a lock in which programs may finish writing their open files.", valueName: "duration"))
    var grace = DurationArgument(milliseconds: 0)

    /// The name of the lock file in the run-time directory.
    private static let defaultName = "device.lock"

    func validate() throws {
        if let idleLock, idleLock.milliseconds == 0 { throw ValidationError("--idle-lock 0 would always lock") }
    }

    /// Takes the values from `-o`.
    mutating func take(_ list: MountOptionList) throws(CommandFailure) {
        if let text = list.ours["lock_file"] { lockFile.append(try Self.value(text, of: "lock_file", like: "a path")) }
        if let text = list.ours["on_lock"] { onLock = try Self.value(text, of: "on_lock", like: "refuse or forget") }
        if let text = list.ours["idle_lock"] { idleLock = try Self.value(text, of: "idle_lock") as DurationArgument }
        if let text = list.ours["grace"] { grace = try Self.value(text, of: "grace") }
    }

    private static func value<Value: ExpressibleByArgument>(
        _ text: String, of name: String, like form: String = DurationArgument.form
    ) throws(CommandFailure) -> Value {
        guard let value = Value(argument: text) else {
            throw CommandFailure(.usage, "mount option \(name)='\(text)' is not valid; it takes \(form)")
        }
        return value
    }

    /// Resolves and checks the lock files' directories.
    /// - Parameter mountpoint: refused as the directory of a lock file: the mount would ask itself.
    func options(mountpoint: FilePath) throws(CommandFailure) -> LockOptions {
        var files: [LockFile] = []
        for path in try paths() {
            let file: LockFile
            do throws(LockFileError) { file = try LockFile(path: path) } catch {
                throw CommandFailure(.failure, error.description)
            }
            guard !file.path.starts(with: mountpoint) else {
                throw CommandFailure(.usage, "lock file \(file.path.shown) lies in the mount that it locks")
            }
            files.append(file)
        }
        return LockOptions(
            lockFiles: files, policy: onLock, graceMilliseconds: grace.milliseconds,
            idleMilliseconds: idleLock?.milliseconds)
    }

    private func paths() throws(CommandFailure) -> [FilePath] {
        guard lockFile.isEmpty else { return lockFile.map(\.path) }
        do throws(ControlError) {
            return [try RuntimeDirectory.make().path.appending(Self.defaultName)]
        } catch {
            throw CommandFailure(.failure, "\(error): name a lock file with --lock-file")
        }
    }
}

extension LockPolicy: ExpressibleByArgument {}
