internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultStore

/// An open file and its flags: the result of open(2). Any thread.
package final class FileHandle: Sendable {
    package let file: EncryptedFile
    let node: Node
    let isWriting: Bool
    /// With O_SYNC or O_DSYNC each write is durable when it returns. Nil without them.
    let synchronizesDataOnly: Bool?
    /// Number of the file's failed synchronizations that this handle has reported, or that came before it.
    private let reportedFailures: Atomic<Int>

    init(file: EncryptedFile, node: Node, flags: Int32) {
        self.file = file
        self.node = node
        isWriting = flags & O_ACCMODE != O_RDONLY
        reportedFailures = Atomic(file.failedSynchronizations.load(ordering: .acquiring))
        // O_SYNC contains O_DSYNC's bit, open(2).
        synchronizesDataOnly = flags & O_SYNC == O_SYNC ? false : flags & O_DSYNC != 0 ? true : nil
        file.openHandles.add(1, ordering: .acquiringAndReleasing)
    }

    /// fsync(2). Also fails once for a failure that another handle or the sealer has met.
    func synchronize(dataOnly: Bool) throws(StoreError) {
        let result = Result { () throws(StoreError) in try file.synchronize(dataOnly: dataOnly) }
        let failures = file.failedSynchronizations.load(ordering: .acquiring)
        let reported = reportedFailures.exchange(failures, ordering: .acquiringAndReleasing)
        try result.get()
        if failures > reported { throw .system(.ioError) }
    }
}

/// An open directory and a position in it: the result of opendir(3). Any thread.
package final class DirectoryHandle: Sendable {
    let node: Node
    let directory: OpenDirectory
    let reader: Mutex<DirectoryReader>

    /// - Parameter directory: opened for reading, for this handle only.
    init(node: Node, directory: OpenDirectory) {
        self.node = node
        self.directory = directory
        reader = Mutex(DirectoryReader(directory.descriptor))
    }
}
