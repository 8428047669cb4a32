package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// A file that another machine may be writing (`Store.followsWriter`). Old metadata is read again. So is data that does
/// not verify, because a record may arrive in several parts over a network.
package struct FollowedFile {
    let file: EncryptedFile

    private var parts: FileParts { file.parts }
    private var store: Store { parts.store }

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

    /// Takes over another machine's changes to the file, unless the last check is less than a second old. Then runs
    /// `body`. Retries both while they find damage.
    func upToDate<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        var tries = 0
        return try Self.retryingDamage(in: store, reader: parts.reader) { () throws(StoreError) in
            let (now, isRetry) = (monotonicMilliseconds(), tries > 0)
            tries += 1
            if isRetry || now - parts.lastCheck.load(ordering: .acquiring) >= Self.checkInterval {
                try follow(try parts.reader.status(), isRetry: isRetry)
                parts.lastCheck.store(now, ordering: .releasing)
            }
            return try body()
        }
    }

    /// Takes over changes of another machine, if `status`, from fstat(2), shows any.
    /// - Parameter isRetry: true to read the header even if it shows none.
    /// - Throws: `ESTALE` if it is another file by now.
    package func follow(_ status: stat, isRetry: Bool = false) throws(StoreError) {
        let found = store.foundChanges?.refreshed(isRetry: isRetry)
        try file.writing.withLock { (writer) throws(StoreError) in
            try writer.follow(status, found, isRetry: isRetry)
        }
    }

    /// Checks, when an open file is opened again, that its name still leads to it.
    /// - Parameter fresh: a new descriptor of the file to which the name leads.
    /// - Throws: `ESTALE` if this is another file with the same inode number.
    package func confirm(_ fresh: Descriptor) throws(StoreError) {
        try Self.retryingDamage(in: store, reader: fresh) { () throws(StoreError) in
            let header = try StoredHeader(of: fresh, keyRing: store.keyRing).header
            guard header.fileID == parts.fileID else { throw .system(.staleNFSFileHandle) }
            try follow(try fresh.status())
        }
    }
}

extension FileWriter {
    /// Takes over another writer's changes, if `status`, from fstat(2), or the log shows any.
    /// - Parameters:
    ///   - found: the changes in the log.
    ///   - isRetry: true to read the header even if neither shows any.
    fileprivate mutating func follow(
        _ status: stat, _ found: FoundChanges.Found?, isRetry: Bool
    ) throws(StoreError) {
        let now = Followed(stamp: FileStamp(status), logNumber: found?.number ?? 0)
        if case .reading(let followed) = phase, followed == now, !isRetry { return }
        var header: FileHeader
        do throws(StoreError) {
            header = try StoredHeader(of: parts.reader, keyRing: store.keyRing).header
        } catch .locked {
            // The class key is forgotten, so open handles continue with the known header.
            return
        }
        guard header.fileID == parts.fileID else { throw .system(.staleNFSFileHandle) }
        guard header.sealCounter >= self.header.sealCounter else {
            // Writers only raise the counter, but a server's copies may differ for a moment, so report this only after
            // a retry.
            if isRetry { store.faults.add(.oldState, StoreFaults.olderFile) }
            throw .damaged("header: older than it was")
        }
        let newLength = layout.plaintextLength(ofBackingSize: UInt64(max(0, status.st_size)))
        let isCut = header.isSealed && newLength < header.length
        if isCut, found?.files[parts.fileID]?.exactLength == nil {
            throw .damaged(FileParts.wrongLength(newLength, expected: header.length))
        }
        parts.setLength(newLength, by: header)
        parts.setHeader(header)
        if let found { adopt(found, UInt64(clamping: status.st_size), &header) }
        follow(header, now)
    }

    /// Takes over the changes found in the log by a read-only store, and makes the header, just read, fit them.
    func adopt(_ found: FoundChanges.Found, _ backingSize: UInt64, _ header: inout FileHeader) {
        let sealCounter = header.sealCounter
        let changes = found.changes(of: parts.fileID, sealCounter: sealCounter)
        // Report this only if writers are excluded: one may have sealed the file since the log was read.
        if !store.followsWriter, found.files[parts.fileID]?.outdated(sealCounter) ?? 0 > 0 {
            store.faults.add(.foundLog, LogRecovery.outdated)
        }
        parts.log.adopt(changes, in: found.log)
        if changes.isEmpty { return }
        let length = changes.length(backingSize, layout)
        if changes.unseal(header, layout) { header.isSealed = false }
        header.keepLost(changes, length, layout)
        parts.setLength(length, by: header)
        if !changes.holes.isEmpty { parts.isSparse.store(true, ordering: .releasing) }
    }
}
