internal import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// A file that another machine may be writing (`Store.followsWriter`): what is known of it is looked at again, and what
/// does not verify is read again, since a record is not written in one piece over a network.
extension EncryptedFile {
    /// Milliseconds for which a look is believed.
    package static let checkInterval = 1000
    /// Milliseconds before each further try at what does not verify.
    private static let pauses: [UInt32] = [10, 20, 40, 80, 160, 320]

    /// `body`, and again after a while where it finds damage: a writer elsewhere may be at work.
    static func retryingDamage<Result>(
        in store: Store, reader: Descriptor, _ body: () throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        guard store.followsWriter else { return try body() }
        for pause in pauses {
            do throws(StoreError) { return try body() } catch {
                guard case .damaged = error else { throw error }
            }
            usleep(pause * 1000)
            // Not as the page cache remembers it, which may be one page of before and one of now.
            posix_fadvise(reader.fd, 0, 0, POSIX_FADV_DONTNEED)
        }
        do throws(StoreError) { return try body() } catch {
            if case .damaged = error { store.counters.damagedReads.count() }
            throw error
        }
    }

    /// Reads plaintext as it is on the store now.
    func readFollowing(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, workspace: Workspace
    ) throws(StoreError) -> Int {
        var isAgain = false
        return try Self.retryingDamage(in: store, reader: reader) { () throws(StoreError) in
            try follow(isAgain: isAgain)
            isAgain = true
            return try readKnown(at: plaintextOffset, into: buffer, workspace: workspace)
        }
    }

    /// Takes over changes that another machine may have made to the file, unless that was done within the last
    /// second.
    func followIfNeeded() throws(StoreError) {
        guard store.followsWriter else { return }
        var isAgain = false
        try Self.retryingDamage(in: store, reader: reader) { () throws(StoreError) in
            try follow(isAgain: isAgain)
            isAgain = true
        }
    }

    /// Takes in what has become of the file, unless that was done within the last second.
    /// - Parameter isAgain: whatever was done.
    /// - Throws: `ESTALE` where it is another file by now.
    private func follow(isAgain: Bool) throws(StoreError) {
        let now = monotonicMilliseconds()
        if !isAgain && now - lastCheck.load(ordering: .acquiring) < Self.checkInterval { return }
        try follow(try reader.status(), isAgain: isAgain)
        lastCheck.store(now, ordering: .releasing)
    }

    /// The same, of what fstat(2) has just told.
    package func follow(_ status: stat, isAgain: Bool = false) throws(StoreError) {
        guard store.followsWriter else { return }
        let stamp = FileStamp(status)
        try writing.withLock { (state) throws(StoreError) in
            if state.stamp == stamp && !isAgain { return }
            let header: FileHeader
            do throws(StoreError) {
                header = try Self.readHeader(of: reader, keyRing: store.keyRing).0
            } catch {
                // A class whose key is forgotten: what is open of it goes on as it is known.
                if error == .locked { return }
                throw error
            }
            guard header.fileID == fileID else { throw .system(.staleNFSFileHandle) }
            let there = layout.plaintextLength(ofBackingSize: UInt64(max(0, status.st_size)))
            if header.isSealed && there < header.length {
                throw .damaged("sealed at \(header.length) bytes, \(there) are there")
            }
            state.header = header
            state.stamp = stamp
            currentLength.store(there, ordering: .releasing)
            let authentic = header.isSealed && header.length < there ? header.length : .max
            currentAuthenticLength.store(authentic, ordering: .releasing)
            isSparse.store(header.isSparse, ordering: .releasing)
            currentClass.store(header.protectionClass, ordering: .releasing)
        }
    }

    /// At another open(2) of an open file: that the name still leads to it.
    /// - Parameter fresh: what the name leads to, opened just now.
    /// - Throws: `ESTALE` where that is another file under the same inode number.
    package func confirm(_ fresh: Descriptor) throws(StoreError) {
        try Self.retryingDamage(in: store, reader: fresh) { () throws(StoreError) in
            let (header, _, _) = try Self.readHeader(of: fresh, keyRing: store.keyRing)
            guard header.fileID == fileID else { throw .system(.staleNFSFileHandle) }
            try follow(try fresh.status())
        }
    }
}
