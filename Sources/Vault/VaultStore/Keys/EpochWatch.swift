package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// A watch for a rekey of a vault that is read beside its writer. Names rekeyed after the opening do not authenticate,
/// but must not count as missing. Any thread.
package final class EpochWatch: Sendable {
    private static let rekeyed = "the vault was rekeyed since it was mounted: unmount it, and mount it again"
    private static let incomplete = "a step of a rekey is incomplete, and nothing can be listed before it is finished"

    private let root: Descriptor
    private let epochs: KeyEpochs
    private let state = Mutex<String?>(nil)

    /// - Parameter epochs: the vault's epochs at its opening.
    init(root: Descriptor, epochs: KeyEpochs) {
        self.root = root
        self.epochs = epochs
    }

    /// Text for the user. Nil if there is no problem.
    var problem: String? { state.withLock(\.self) }

    /// Checks, after names of `directory` were read or not found, that its keys were the right ones. A step of a rekey
    /// replaces the record last, and removes `vaultfs.rekey` after that. The checks must be in the same order.
    /// - Throws: `ESTALE` if the vault or the directory was rekeyed since its opening; `EIO` while a step is
    ///   incomplete.
    package func check(_ directory: OpenDirectory, isRoot: Bool) throws(StoreError) {
        if problem == Self.rekeyed { throw .system(.staleNFSFileHandle) }
        // The MAC cannot be checked here, because a new master key signs the file. But an attacker who can forge the
        // file could just as well remove the vault.
        if let now = try? VaultDirectory.readConfiguration(of: root, path: "").epochs, now != epochs {
            throw rekeyed()
        }
        if epochs.previous != nil, try RekeySteps.isIncomplete(in: root) {
            state.withLock { if $0 != Self.rekeyed { $0 = Self.incomplete } }
            throw .refused(.ioError)
        }
        let record = try? DirectoryRecord.parse(
            OpenDirectory.readRecord(of: directory.descriptor), epochs: epochs)
        guard record?.epoch == directory.epoch else { throw isRoot ? rekeyed() : .system(.staleNFSFileHandle) }
        state.withLock { if $0 != Self.rekeyed { $0 = nil } }
    }

    private func rekeyed() -> StoreError {
        state.withLock { $0 = Self.rekeyed }
        return .system(.staleNFSFileHandle)
    }
}
