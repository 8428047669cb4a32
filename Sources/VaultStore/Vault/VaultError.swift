internal import FileSystem
internal import LinuxSystem
package import SystemPackage
package import VaultFormat

/// Why a vault as a whole could not be opened, locked, unlocked or made. Its description is the one line a person sees.
package enum VaultError: Error, Equatable, Sendable {
    /// There is nothing at the path.
    case notFound(FilePath)
    /// The path is something other than a directory.
    case notADirectory(FilePath)
    /// A directory without `vaultfs.json`.
    case notAVault(FilePath)
    /// `vaultfs.json` is not as the format says, or its MAC does not verify; the reason.
    case damaged(FilePath, String)
    /// A newer vaultfs wrote `vaultfs.json`; what is new.
    case newerVersion(FilePath, String)
    /// Another process holds the vault; nil where the kernel does not tell which.
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
    /// The secret is right, but its slot is past its date.
    case slotExpired(FilePath, id: Int, expires: String)
    /// The secret is right, but its slot expires, and the clock is before a time that the slot has seen.
    case clockSetBack(FilePath, id: Int, clock: String, seen: String)
    /// A change of slots that is not made; why.
    case slotRefused(String)
    /// A rekey was killed in the middle of a step, which has to be finished before anything can be read.
    case halfRekeyed(FilePath)
    /// A vault is to be made where there are files already.
    case notEmpty(FilePath)
    /// A vault is to be made where there is one.
    case vaultExists(FilePath)
    /// A system call failed; what was being done, as a phrase such as "cannot open".
    case system(Errno, String, FilePath)
    /// libcrypto failed, or a parameter is out of bounds; the reason.
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
        case .inUse(let path, let holder):
            if let holder, let host = holder.host {
                "\(path.shown) is in use by \(holder): end that there, as by 'vaultfs unmount'; where \(host) has died, try "
                    + "again when the store has let go of its lock"
            } else if let holder {
                "\(path.shown) is in use by \(holder)"
            } else {
                "\(path.shown) is in use by another process, here or on another machine"
            }
        case .wrongSecret(let path, .passphrase): "\(path.shown): wrong passphrase"
        case .wrongSecret(let path, .keyfile): "\(path.shown): wrong keyfile"
        case .wrongSecret(let path, .recovery):
            "\(path.shown): wrong recovery key: it belongs to another vault, or its slot was removed"
        case .noSlot(let path, .passphrase): "\(path.shown): no passphrase slot; use --keyfile or --recovery-key"
        case .noSlot(let path, .keyfile): "\(path.shown): no keyfile slot; 'vaultfs slot list' shows the slots"
        case .noSlot(let path, .recovery):
            "\(path.shown): no recovery key slot; 'vaultfs slot list' shows the slots"
        case .tooCostly(let path, let reason):
            "\(path.shown): \(reason): name the slot with --slot, or try all with --allow-costly"
        case .noSuchSlot(let path, let id, let kind):
            "\(path.shown): slot \(id) does not exist or takes no "
                + "\(kind == .recovery ? "recovery key" : kind.rawValue); 'vaultfs slot list' shows the slots"
        case .slotExpired(let path, let id, let expires):
            "\(path.shown): slot \(id) expired at \(expires): renew it with the secret of another, by 'vaultfs slot change'"
        case .clockSetBack(let path, let id, let clock, let seen):
            "\(path.shown): slot \(id) expires, and the clock was set back: it says \(clock), the slot has seen \(seen); set "
                + "it right, or have the slot changed with another's secret"
        case .slotRefused(let reason): reason
        case .halfRekeyed(let path):
            "\(path.shown): a rekey was killed in the middle of a step: run 'vaultfs rekey' to go on with it, or mount it "
                + "for writing"
        case .notEmpty(let path): "directory is not empty: \(path.shown)"
        case .vaultExists(let path): "there is a vault already: \(path.shown)"
        case .system(let errno, let operation, let path): "\(operation) \(path.shown): \(errno)"
        case .format(let error): error.reason
        }
    }
}

extension VaultError {
    /// Runs `body`, turning the error of a system call into a `VaultError` about `path`.
    @discardableResult
    static func wrapping<Result>(
        _ operation: String, _ path: FilePath, _ body: () throws(StoreError) -> Result
    ) throws(VaultError) -> Result {
        do throws(StoreError) {
            return try body()
        } catch {
            switch error {
            case .system(let errno): throw .system(errno, operation, path)
            case .damaged(let reason), .crypto(let reason): throw .damaged(path, reason)
            }
        }
    }
}
