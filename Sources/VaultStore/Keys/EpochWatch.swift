internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// Whether a vault that is read beside its writer is still of the key epochs that were there when it was opened. Names that
/// were rekeyed since do not authenticate, and must not be taken for none. Any thread.
package final class EpochWatch: Sendable {
    private struct State {
        var problem: String?
        var isRekeyed = false
    }

    private let root: Descriptor
    private let epochs: KeyEpochs
    private let state = Mutex(State())

    init(root: Descriptor, epochs: KeyEpochs) {
        self.root = root
        self.epochs = epochs
    }

    /// For people; nil where nothing is wrong.
    var problem: String? { state.withLock { $0.problem } }

    /// After names of `directory` were read, or not found: makes sure that they were looked for with its keys. In this
    /// order: a step of a rekey replaces the record last, and takes `vaultfs.rekey` away after that.
    /// - Throws: `ESTALE` where the vault, or the directory, was rekeyed since it was opened; `EIO` while a step is half done.
    package func check(_ directory: OpenDirectory, isRoot: Bool) throws(StoreError) {
        if state.withLock({ $0.isRekeyed }) { throw .system(.staleNFSFileHandle) }
        // Of another master key, so its MAC tells nothing here; whoever forges it could as well take the vault away.
        if let now = try? VaultDirectory.readConfiguration(of: root, path: "").epochs, now != epochs {
            throw rekeyed()
        }
        if epochs.previous != nil, try RekeyIntentFile.isThere(in: root) {
            state.withLock {
                $0.problem = "a step of a rekey is half done, and nothing can be listed before it is finished"
            }
            throw .system(.ioError)
        }
        let record = try? DirectoryRecord.parse(
            OpenDirectory.readRecord(of: directory.descriptor).bytes, epochs: epochs)
        guard record?.epoch == directory.epoch else { throw isRoot ? rekeyed() : .system(.staleNFSFileHandle) }
        state.withLock { if !$0.isRekeyed { $0.problem = nil } }
    }

    private func rekeyed() -> StoreError {
        state.withLock {
            $0.isRekeyed = true
            $0.problem = "the vault was rekeyed since it was mounted: unmount it, and mount it again"
        }
        return .system(.staleNFSFileHandle)
    }
}
