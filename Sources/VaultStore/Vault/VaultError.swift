internal import FileSystem
package import LinuxSystem
package import SystemPackage
internal import VaultCrypto
package import VaultFormat

/// The reason why a vault as a whole could not be opened, locked, unlocked, made or changed. Its description is the
/// message for the user.
package enum VaultError: Error, Equatable, Sendable {
    /// Nothing exists at the path.
    case notFound(FilePath)
    /// The path is something other than a directory.
    case notADirectory(FilePath)
    /// A directory without `vaultfs.json`.
    case notAVault(FilePath)
    /// `vaultfs.json` is malformed, or its MAC does not verify. The text is the reason.
    case damaged(FilePath, String)
    /// A newer vaultfs wrote `vaultfs.json`. The text names what is new.
    case newerVersion(FilePath, String)
    /// Another process has the vault locked. Nil if it is unknown which.
    case inUse(FilePath, LockOwner?)
    /// The secret opens no slot of its kind.
    case wrongSecret(FilePath, SlotKind)
    /// The vault has no slot of this kind.
    case noSlot(FilePath, SlotKind)
    /// The secret opens none of the slots that were tried, and trying the others takes too long. The text is the
    /// reason.
    case tooCostly(FilePath, String)
    /// No slot has this id and takes such a secret.
    case noSuchSlot(FilePath, id: Int, SlotKind)
    /// The secret is right, but its slot has expired.
    case slotExpired(FilePath, id: Int, expires: String)
    /// The secret is right, but its slot expires, and the clock is before a time that the slot has seen.
    case clockSetBack(FilePath, id: Int, clock: String, seen: String)
    /// A change of slots was refused. The text is the reason.
    case slotRefused(String)
    /// A rekey was killed in the middle of a step. The step must be finished before anything can be read.
    case halfRekeyed(FilePath)
    /// The directory for a new vault has files in it.
    case notEmpty(FilePath)
    /// The directory for a new vault is a vault already.
    case vaultExists(FilePath)
    /// A system call failed. The text names the operation, such as "cannot open".
    case system(Errno, String, FilePath)
    /// libcrypto failed, or a parameter is out of bounds.
    case format(FormatError)
}

extension VaultError: CustomStringConvertible {
    package var description: String {
        switch self {
        case .notFound(let path): "no such directory: \(path.shown)"
        case .notADirectory(let path): "not a directory: \(path.shown)"
        case .notAVault(let path): "not a vault: no vaultfs.json in \(path.shown); make one with 'vaultfs init'"
        case .damaged(let path, let reason): "\(path.shown): damaged: \(reason)"
        case .newerVersion(let path, let what): "\(path.shown): made by a newer vaultfs: \(what)"
        case .inUse(let path, let owner):
            if let owner, let host = owner.host {
                "\(path.shown) is in use by \(owner): end it there, for example with 'vaultfs unmount'. If \(host) has "
                    + "died, try again when the store has released its lock"
            } else if let owner {
                "\(path.shown) is in use by \(owner)"
            } else {
                "\(path.shown) is in use by another process, here or on another machine"
            }
        // The secret unwraps the master key only together with the fields that matter (FileFormat, Slots).
        case .wrongSecret(let path, .passphrase):
            "\(path.shown): wrong passphrase, or vaultfs.json was changed: try a copy of it"
        case .wrongSecret(let path, .keyfile):
            "\(path.shown): wrong keyfile, or vaultfs.json was changed: try a copy of it"
        case .wrongSecret(let path, .recovery):
            "\(path.shown): wrong recovery key: it belongs to another vault, its slot was removed, or vaultfs.json was "
                + "changed: try a copy of it"
        case .noSlot(let path, .passphrase): "\(path.shown): no passphrase slot; use --keyfile or --recovery-key"
        case .noSlot(let path, .keyfile): "\(path.shown): no keyfile slot; 'vaultfs slot list' shows the slots"
        case .noSlot(let path, .recovery): "\(path.shown): no recovery key slot; 'vaultfs slot list' shows the slots"
        case .tooCostly(let path, let reason):
            "\(path.shown): \(reason): name the slot with --slot, or try all with --allow-costly"
        case .noSuchSlot(let path, let id, let kind):
            "\(path.shown): slot \(id) does not exist or takes no "
                + "\(kind == .recovery ? "recovery key" : kind.rawValue); 'vaultfs slot list' shows the slots"
        case .slotExpired(let path, let id, let expires):
            "\(path.shown): slot \(id) expired at \(expires): renew it with 'vaultfs slot change' and another slot's secret"
        case .clockSetBack(let path, let id, let clock, let seen):
            "\(path.shown): slot \(id) expires, and the clock was set back: it shows \(clock), the slot has seen \(seen). "
                + "Correct the clock, or change the slot with another slot's secret"
        case .slotRefused(let reason): reason
        case .halfRekeyed(let path):
            "\(path.shown): a rekey was killed in the middle of a step: run 'vaultfs rekey' to continue it, or mount the "
                + "vault for writing"
        case .notEmpty(let path): "directory is not empty: \(path.shown)"
        case .vaultExists(let path): "a vault already exists: \(path.shown)"
        case .system(let errno, let operation, let path): "\(operation) \(path.shown): \(errno)"
        case .format(let error): error.reason
        }
    }
}

extension VaultError {
    /// The error of a call on the store, about `path`.
    init(_ error: StoreError, _ operation: String, _ path: FilePath) {
        switch error {
        case .system(let errno): self = .system(errno, operation, path)
        case .damaged(let reason), .crypto(let reason): self = .damaged(path, reason)
        }
    }

    /// A format error in `vaultfs.json`, which is at `file`.
    init(_ error: FormatError, configuration file: FilePath) {
        self =
            switch error.kind {
            case .newerVersion: .newerVersion(file, error.reason)
            case .malformed, .doesNotAuthenticate: .damaged(file, error.reason)
            case .tooLong, .invalidValue, .tooCostly, .cryptography, .keyForgotten: .format(error)
            }
    }

    /// Runs `body` and throws its error as a `VaultError` about `path`.
    @discardableResult
    static func wrapping<Result>(
        _ operation: String, _ path: FilePath, _ body: () throws(StoreError) -> Result
    ) throws(VaultError) -> Result {
        do throws(StoreError) { return try body() } catch { throw VaultError(error, operation, path) }
    }
}

extension StoreError {
    /// Bytes that do not parse or authenticate are damage. A key that was forgotten means that the object is locked.
    package init(_ error: FormatError) { self = error.kind == .keyForgotten ? .locked : .damaged(error.reason) }

    /// Evaluates `body` and throws its error as a `StoreError`.
    @inline(__always)
    static func ofFormat<Result>(_ body: @autoclosure () throws(FormatError) -> Result) throws(StoreError) -> Result {
        do throws(FormatError) { return try body() } catch { throw StoreError(error) }
    }

    /// Evaluates `body` and throws its error as a `StoreError`.
    @inline(__always)
    static func ofCrypto<Result>(_ body: @autoclosure () throws(CryptoError) -> Result) throws(StoreError) -> Result {
        do throws(CryptoError) { return try body() } catch { throw StoreError(error) }
    }

    /// Runs `body` and throws its error as a `StoreError`.
    @inline(__always)
    static func ofFormat<Result>(_ body: () throws(FormatError) -> Result) throws(StoreError) -> Result {
        do throws(FormatError) { return try body() } catch { throw StoreError(error) }
    }

    /// Runs `body` and throws its error as a `StoreError`.
    @inline(__always)
    static func ofCrypto<Result>(_ body: () throws(CryptoError) -> Result) throws(StoreError) -> Result {
        do throws(CryptoError) { return try body() } catch { throw StoreError(error) }
    }
}
