internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
package import VaultStore

/// What open(2) gave a program: an open file and how it may be used. Any thread.
package final class FileHandle: Sendable {
    package let file: EncryptedFile
    let node: Node
    let isWriting: Bool
    /// O_SYNC or O_DSYNC: each write is durable when it returns; nil where neither was asked.
    let synchronizesDataOnly: Bool?
    /// Of the file's failed synchronizations, how many this handle's program has been told of, or came before it.
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

    /// fsync(2): also fails once for a failure that another program, or the sealer, has met.
    func synchronize(dataOnly: Bool) throws(StoreError) {
        let result = Result { () throws(StoreError) in try file.synchronize(dataOnly: dataOnly) }
        let failures = file.failedSynchronizations.load(ordering: .acquiring)
        let reported = reportedFailures.exchange(failures, ordering: .acquiringAndReleasing)
        try result.get()
        if failures > reported { throw .system(.ioError) }
    }
}

/// What opendir(3) gave a program: a place in a directory. Any thread.
package final class DirectoryHandle: Sendable {
    let node: Node
    let directory: OpenDirectory
    let reader: Mutex<DirectoryReader>

    /// - Parameter directory: open for reading, for this handle alone.
    init(node: Node, directory: OpenDirectory) {
        self.node = node
        self.directory = directory
        reader = Mutex(DirectoryReader(directory.descriptor))
    }
}
