internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension EncryptedFile {
    /// What `seal` compares with: moves with every change of length.
    var lengthMark: UInt64 { writing.withLock { $0.lengthChanges } }

    /// True while somebody else than the sealer holds the file: it will be closed once more. Kept by the handles.
    var isBusy: Bool { openHandles.load(ordering: .acquiring) > 0 }

    /// True where it was opened for writing and its header does not vouch for its length.
    package var needsSeal: Bool { writing.withLock { $0.writer != nil && !$0.header.isSealed } }

    /// Whether the header vouches for the length, which it does only of what is durable.
    package var isSealed: Bool { writing.withLock { $0.header.isSealed } }

    /// Vouches for the length in the header, keeping the times. Returns false where the length has changed since
    /// `mark` was taken, or where a torn last record must not be vouched for.
    /// - Parameter isDurable: chunks and size are on disk already (syncfs); else they are put there first.
    func seal(ifStill mark: UInt64, isDurable: Bool) throws(StoreError) -> Bool {
        if !isDurable { try synchronize(dataOnly: true) }
        return try writing.withLock { (state) throws(StoreError) -> Bool in
            guard let writer = state.writer, !state.header.isSealed else { return true }
            // What could not be sealed before a lock wiped its keys stays unsealed, which reads as well.
            guard hasKeys else { return true }
            guard state.lengthChanges == mark else { return false }
            try store.admitChange()
            // Before the last record is read: that too moves atime.
            let before = try writer.status()
            if state.lastRecordIsUnproven {
                guard try lastRecordVerifies(state.header.isSparse) else { return true }
                state.lastRecordIsUnproven = false
            }
            // A file without a name is gone when it is closed.
            if before.st_nlink == 0 { return true }
            let capability = Self.capability(of: writer)
            state.header.isSealed = true
            state.header.length = length
            try unseen(writer, before) { () throws(StoreError) in
                do throws(StoreError) {
                    try writeHeader(&state, writer)
                } catch {
                    state.header.isSealed = false
                    state.header.length = 0
                    throw error
                }
                try Self.restore(writer, before, capability)
            }
            store.counters.filesSealed.count()
            return true
        }
    }

    /// Writes the header and puts back what that moves, while whoever shows attributes shows those of before.
    func unseen(
        _ writer: Descriptor, _ before: stat, _ body: () throws(StoreError) -> Void
    ) throws(StoreError) {
        let told = onSealing.withLock { $0 }
        told?(before, nil)
        defer { told?(before, (try? writer.status()) ?? before) }
        try body()
    }

    /// The file capability that a write of the header takes away. What cannot be executed may have one already: an import gives
    /// the mode last.
    static func capability(of writer: Descriptor) -> [UInt8]? {
        try? ExtendedAttributes(writer).value(of: Self.capabilityName)
    }

    /// Changes the backing file's mode, owner, times or attributes while no seal is at work, which would put the old ones back.
    package func excludingSeals<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        try writing.withLock { (_) throws(StoreError) -> Result in try body() }
    }

    /// A header written is a file written, to the store: its times move, and the set-id bits (for an ordinary user's
    /// daemon) and file capabilities go, as after a program's write(2). They are put back; ctime cannot be.
    static func restore(_ writer: Descriptor, _ before: stat, _ capability: [UInt8]?) throws(StoreError) {
        if before.st_mode & (S_ISUID | S_ISGID) != 0 { try retrying { fchmod(writer.fd, before.st_mode & 0o7777) } }
        if let capability { try ExtendedAttributes(writer).set(Self.capabilityName, capability, flags: 0) }
        let times = [before.st_atim, before.st_mtim]
        try retrying { futimens(writer.fd, times) }
    }

    private static let capabilityName = Array("security.capability".utf8)

    /// Whether the last record is whole. What cannot be read is not told: only what was read and is damaged is false, for a
    /// caller cuts it off.
    func lastRecordVerifies(_ isSparse: Bool) throws(StoreError) -> Bool {
        guard length > 0 else { return true }
        let workspace = try Workspace(layout: layout)
        let last = layout.chunkIndex(ofPlaintextOffset: length - 1)
        let n = layout.plaintextSize(ofChunk: last, length: length)
        let piece = UnsafeMutableRawBufferPointer(rebasing: workspace.assembly[..<n])
        do throws(StoreError) {
            try readChunk(last, into: piece, workspace)
            return true
        } catch .damaged { return false }
    }

    /// Clears the sealed flag before the length changes. The caller holds the write lock.
    func unseal(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        guard state.header.isSealed else { return }
        let before = state.header
        state.header.isSealed = false
        state.header.length = 0
        do {
            try writeHeader(&state, writer)
        } catch {
            state.header = before
            throw error
        }
        currentAuthenticLength.store(.max, ordering: .releasing)
    }

    /// Sets the sparse flag before a hole is made. The caller holds the write lock.
    func beSparse(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        guard !state.header.isSparse else { return }
        state.header.isSparse = true
        do {
            try writeHeader(&state, writer)
        } catch {
            state.header.isSparse = false
            throw error
        }
        isSparse.store(true, ordering: .releasing)
    }

    /// Writes the header as it is in `state`, with its counter moved on: 128 bytes of one page, old or new.
    func writeHeader(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        state.header.sealCounter += 1
        let bytes: [UInt8]
        do { bytes = try state.header.serialized(keys: keys) } catch { throw StoreError(error) }
        try bytes.withBytes { (bytes) throws(StoreError) in try writer.write(bytes, at: 0) }
    }
}
