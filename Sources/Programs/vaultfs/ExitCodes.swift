internal import Control
internal import Daemon
internal import FuseSession
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore
internal import ViewFormats

/// The exit codes, documented in --help and stable.
enum FailureCode: Int32, CaseIterable {
    case failure = 1
    case usage = 2
    case notAVault = 3
    case wrongSecret = 4
    case inUse = 5
    case mountpoint = 6
    case cannotMount = 7
    case damageFound = 8
    case notPurged = 9
    case lockFileExists = 10
    case incomplete = 11
    case notKept = 12
    case notEnded = 13
    case undetermined = 14
    case notDurable = 15
    case problems = 16

    var explanation: String {
        switch self {
        case .failure: "something else failed"
        case .usage: "wrong usage: unknown option, value out of bounds; no terminal to ask on"
        case .notAVault: "not a vault, or its vaultfs.json is damaged or of a newer version"
        case .wrongSecret: "wrong secret; its slot has expired or expires too soon; clock set back"
        case .inUse: "the vault is mounted already, or the mount is in use"
        case .mountpoint: "the mountpoint cannot be used, or nothing is mounted there"
        case .cannotMount: "FUSE is not available, or mounting failed"
        case .damageFound: "damage was found (verify, export, import --verify, rekey), or stays"
        case .notPurged: "locked, but not everything could be purged from memory"
        case .lockFileExists: "not unlocked: a lock file exists"
        case .incomplete: "import, export: not everything was copied; rekey: access denied"
        case .notKept: "import, export: not every owner, mode, attribute or device was kept"
        case .notEnded: "unmounted, but the daemon has not ended: it waits for the store"
        case .undetermined: "verify of a mounted vault: no damage, but some objects kept changing"
        case .notDurable: "unmount, sync, lock: done, but written data may be lost, or not in place"
        case .problems: "status: a mount has problems, which it lists"
        }
    }

    static var table: String {
        let rows = allCases.map { "\($0.rawValue < 10 ? " " : "") \($0.rawValue)  \($0.explanation)" }
        let interrupted = " 128+n  interrupted by signal n: 130 for SIGINT, 143 for SIGTERM"
        return (["  0  success"] + rows + [interrupted]).joined(separator: "\n")
    }
}

/// A command's failure: a line for people (lower case, no full stop) and an exit code.
struct CommandFailure: Error, Equatable {
    let code: FailureCode
    let message: String

    init(_ code: FailureCode, _ message: String) {
        self.code = code
        self.message = message
    }

    init(_ error: VaultError) {
        let code: FailureCode =
            switch error {
            case .notAVault, .notFound, .unusable: .notAVault
            case .inUse: .inUse
            case .wrongSecret, .noSlot, .slotEnded: .wrongSecret
            case .invalid: .usage
            case .tooCostly, .refused, .unavailable, .system: .failure
            }
        self.init(code, error.description)
    }

    init(_ error: MountError) { self.init(FailureCode(rawValue: error.kind.rawValue) ?? .failure, error.reason) }

    /// Evaluates `body`, which uses a lower layer.
    static func mapping<Result>(_ body: @autoclosure () throws -> Result) throws(CommandFailure) -> Result {
        do { return try body() } catch { throw CommandFailure(any: error) ?? CommandFailure(.failure, "\(error)") }
    }

    /// Makes the failure for an error of the lower layers; nil for any other error.
    init?(any error: any Error) {
        switch error {
        case let error as CommandFailure: self = error
        case let error as VaultError: self.init(error)
        case let error as MountError: self.init(error)
        case let error as DaemonFailure:
            self.init(FailureCode(rawValue: error.exitCode) ?? .failure, error.message)
        case let error as ControlError: self.init(.failure, error.description)
        case let error as FormatError: self.init(.failure, error.reason)
        case StoreError.system(let errno), StoreError.refused(let errno):
            self.init(.failure, "the vault cannot be used: \(errno)")
        case StoreError.unavailable(_, let reason): self.init(.failure, reason)
        case StoreError.damaged(let reason): self.init(.notAVault, "the vault is damaged: \(reason)")
        case StoreError.crypto(let reason): self.init(.failure, reason)
        case ViewError.malformed(let reason), ViewError.noKey(let reason): self.init(.failure, reason)
        case ViewError.store(.system(let errno)): self.init(.failure, "the source cannot be used: \(errno)")
        case ViewError.store(let error): self.init(.failure, error.reason)
        default: return nil
        }
    }

    /// Evaluates `body`, which uses the file at a path given by a person, and throws `StoreError` or `Errno`.
    /// - Parameter problem: `cannot open`
    static func wrapping<Result>(
        _ problem: String, _ path: FilePath, _ body: @autoclosure () throws -> Result
    ) throws(CommandFailure) -> Result {
        do { return try body() } catch {
            let reason = (error as? StoreError)?.reason ?? "\(error)"
            throw CommandFailure(.failure, "\(problem) \(path.shown): \(reason)")
        }
    }
}
