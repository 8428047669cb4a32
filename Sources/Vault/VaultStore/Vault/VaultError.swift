package import LinuxSystem
package import SystemPackage
package import VaultFormat

/// The reason why a vault as a whole could not be opened, locked, unlocked, made or changed. Its description is the
/// message for the user.
package enum VaultError: Error, Equatable, Sendable {
    case notFound(FilePath)
    /// A directory without `vaultfs.json`.
    case notAVault(FilePath)
    /// Not a directory, or its `vaultfs.json` is damaged or of a newer version. The text is the reason.
    case unusable(String)
    /// Another process has the vault locked. Nil if it is unknown which.
    case inUse(FilePath, LockOwner?)
    case wrongSecret(FilePath, SlotKind)
    case noSlot(FilePath, SlotKind)
    /// The secret opens none of the tried slots, and trying the others takes too long. The text is the reason.
    case tooCostly(FilePath, String)
    /// The secret is right, but its slot has expired, or expires and the clock was set back. The text is the reason.
    case slotEnded(String)
    /// A value from the user is out of bounds, or names nothing. The text is the reason.
    case invalid(String)
    /// The vault is not opened, made or changed. The text is the reason.
    case refused(String)
    /// The store or this machine lacks a resource for writing the vault. The text says what to do.
    case unavailable(FilePath, String)
    /// A system call failed. The text names the operation, such as "cannot open".
    case system(Errno, String, FilePath)

    /// Returns the error for `vaultfs.json` or another file of the vault that is malformed or does not authenticate.
    package static func damaged(_ path: FilePath, _ reason: String) -> VaultError {
        .unusable("\(path.shown): damaged: \(reason)")
    }

    /// Returns the same for `vaultfs.json`, of which there should be copies.
    static func damagedConfiguration(_ file: FilePath, _ reason: some StringProtocol) -> VaultError {
        .damaged(file, "\(reason): put a copy of it back")
    }

    /// Returns the error of libcrypto, or for a parameter out of bounds.
    package static func format(_ error: FormatError) -> VaultError {
        error.kind == .invalidValue ? .invalid(error.reason) : .refused(error.reason)
    }
}

extension VaultError: CustomStringConvertible {
    package var description: String {
        switch self {
        case .notFound(let path): "no such directory: \(path.shown)"
        case .notAVault(let path):
            "not a vault: no vaultfs.json in \(path.shown); check the path, or make one with 'vaultfs init'"
        case .inUse(let path, let owner):
            if let owner, let host = owner.host {
                "\(path.shown) is in use by \(owner): end it there, for example with 'vaultfs unmount'. If \(host) has "
                    + "died, try again when the store has released its lock"
            } else if let owner {
                "\(path.shown) is in use by \(owner)"
            } else {
                "\(path.shown) is in use by another process, here or on another machine"
            }
        // Perhaps vaultfs.json was changed: the secret unwraps the key only with the right fields (FileFormat, Slots).
        case .wrongSecret(let path, .passphrase): "\(path.shown): wrong passphrase"
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
        case .unusable(let reason), .slotEnded(let reason), .invalid(let reason), .refused(let reason): reason
        case .unavailable(let path, let reason): "\(path.shown): \(reason)"
        case .system(let errno, let operation, let path): "\(operation) \(path.shown): \(errno)"
        }
    }
}

extension VaultError {
    package init(_ error: StoreError, _ operation: String, _ path: FilePath) {
        switch error {
        case .system(let errno), .refused(let errno): self = .system(errno, operation, path)
        case .unavailable(_, let reason): self = .unavailable(path, reason)
        case .damaged(let reason), .crypto(let reason): self = .damaged(path, reason)
        }
    }

    /// Makes the error for a format error in `vaultfs.json`, which is at `file`.
    init(_ error: FormatError, configuration file: FilePath) {
        // Omit the name, because the path has it.
        let reason = error.reason.trimmingPrefix("vaultfs.json: ")
        self =
            switch error.kind {
            case .newerVersion: .unusable("\(file.shown): \(reason)")
            case .malformed, .doesNotAuthenticate: .damagedConfiguration(file, reason)
            case .tooLong, .invalidValue, .tooCostly, .cryptography, .keyForgotten: .format(error)
            }
    }

    /// Runs `body` and throws its error as a `VaultError` about `path`.
    @discardableResult
    package static func wrapping<Result>(
        _ operation: String, _ path: FilePath, _ body: () throws(StoreError) -> Result
    ) throws(VaultError) -> Result {
        do throws(StoreError) { return try body() } catch { throw VaultError(error, operation, path) }
    }

    /// Evaluates `body` and throws its error as a `VaultError` about `path`.
    @discardableResult
    package static func wrapping<Result>(
        _ operation: String, _ path: FilePath, _ body: @autoclosure () throws(StoreError) -> Result
    ) throws(VaultError) -> Result {
        do throws(StoreError) { return try body() } catch { throw VaultError(error, operation, path) }
    }
}

extension StoreError {
    /// Makes the error for bytes that do not parse or authenticate: damage. A forgotten key means a locked object.
    package init(_ error: FormatError) { self = error.kind == .keyForgotten ? .locked : .damaged(error.reason) }

    /// Evaluates `body` and throws its error as a `StoreError`.
    @inline(__always)
    package static func ofFormat<Result>(_ body: @autoclosure () throws(FormatError) -> Result) throws(StoreError)
        -> Result
    {
        do throws(FormatError) { return try body() } catch { throw StoreError(error) }
    }
}
