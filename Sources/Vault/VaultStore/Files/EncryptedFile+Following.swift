internal import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// Files that another machine may be writing (`Store.followsWriter`). Metadata is read again when it is old. Data that
/// does not verify is read again, because a record may arrive in several parts over a network.
extension EncryptedFile {
    /// Milliseconds for which a check for changes stays valid.
    package static let checkInterval = 1000
    /// Milliseconds before each retry.
    private static let pauses: [UInt32] = [10, 20, 40, 80, 160, 320]

    /// Runs `body`. If the store follows a writer and `body` throws `.damaged`, retries after a pause.
    static func retryingDamage<Result>(
        in store: Store, reader: Descriptor, _ body: () throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        guard store.followsWriter else { return try body() }
        for pause in pauses {
            do throws(StoreError) { return try body() } catch .damaged {}
            usleep(pause * 1000)
            // The page cache may have one page from before a write and one from after it.
            reader.dropPages()
        }
        return try body()
    }

    /// Reads plaintext from the store as it is now.
    func readFollowing(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, workspace: Workspace
    ) throws(StoreError) -> Int {
        try following { () throws(StoreError) in
            try readKnown(at: plaintextOffset, into: buffer, mayCache: false, workspace: workspace)
        }
    }

    /// Takes over changes that another machine may have made to the file, unless that was done within the last
    /// second.
    func followIfNeeded() throws(StoreError) {
        guard store.followsWriter else { return }
        try following { () throws(StoreError) in }
    }

    /// Takes over changes, then runs `body`. Retries both while they find damage.
    private func following<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        var tries = 0
        return try Self.retryingDamage(in: store, reader: reader) { () throws(StoreError) in
            let (now, isRetry) = (monotonicMilliseconds(), tries > 0)
            tries += 1
            if isRetry || now - lengths.lastCheck.load(ordering: .acquiring) >= Self.checkInterval {
                try follow(try reader.status(), isRetry: isRetry)
                lengths.lastCheck.store(now, ordering: .releasing)
            }
            return try body()
        }
    }

    /// Takes over changes, if `status`, from fstat(2), shows any.
    /// - Parameter isRetry: also if it shows none.
    /// - Throws: `ESTALE` if it is another file by now.
    package func follow(_ status: stat, isRetry: Bool = false) throws(StoreError) {
        guard store.followsWriter else { return }
        let found = store.foundChanges?.refreshed(isRetry: isRetry)
        try writing.withLock { (state) throws(StoreError) in
            let now = WriteState.Followed(stamp: FileStamp(status), logNumber: found?.number ?? 0)
            if case .reading(let followed) = state.phase, followed == now, !isRetry { return }
            var header: FileHeader
            do throws(StoreError) {
                header = try Self.readHeader(of: reader, keyRing: store.keyRing).0
            } catch .locked {
                // The key of its class is forgotten. Open handles continue with the known header.
                return
            }
            guard header.fileID == fileID else { throw .system(.staleNFSFileHandle) }
            guard header.sealCounter >= state.header.sealCounter else {
                // Only raised by writers. A server's copies may differ for a moment.
                if isRetry { store.faults.add(.oldState, StoreFaults.olderFile) }
                throw .damaged("header: older than it was")
            }
            let newLength = layout.plaintextLength(ofBackingSize: UInt64(max(0, status.st_size)))
            let isCut = header.isSealed && newLength < header.length
            if isCut, found?.files[fileID]?.exactLength == nil {
                throw .damaged(Self.wrongLength(newLength, expected: header.length))
            }
            lengths.set(newLength, by: header)
            records.adopt(header)
            if let found { adopt(found, UInt64(clamping: status.st_size), &header) }
            state.follow(header, now)
        }
    }

    /// Checks, when an open file is opened again, that its name still leads to it.
    /// - Parameter fresh: the file that the name leads to, just opened.
    /// - Throws: `ESTALE` if that is another file with the same inode number.
    package func confirm(_ fresh: Descriptor) throws(StoreError) {
        try Self.retryingDamage(in: store, reader: fresh) { () throws(StoreError) in
            let (header, _, _) = try Self.readHeader(of: fresh, keyRing: store.keyRing)
            guard header.fileID == fileID else { throw .system(.staleNFSFileHandle) }
            try follow(try fresh.status())
        }
    }
}
