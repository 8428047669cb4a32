internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
package import VaultStore

/// What open(2) gave a program: an open file and how it may be used. Any thread.
package final class FileHandle: Sendable {
    package let file: EncryptedFile
    let node: Node
    /// O_SYNC or O_DSYNC: each write is durable when it returns; nil where neither was asked.
    let synchronizesDataOnly: Bool?

    init(file: EncryptedFile, node: Node, flags: Int32) {
        self.file = file
        self.node = node
        // O_SYNC contains O_DSYNC's bit, open(2).
        synchronizesDataOnly = flags & O_SYNC == O_SYNC ? false : flags & O_DSYNC != 0 ? true : nil
        file.openHandles.add(1, ordering: .acquiringAndReleasing)
    }
}

/// What opendir(3) gave a program: a place in a directory. Any thread.
package final class DirectoryHandle: Sendable {
    let node: Node
    let directory: OpenDirectory
    let descriptor: Descriptor
    let reader: Mutex<DirectoryReader>

    init(node: Node, directory: OpenDirectory, descriptor: Descriptor) {
        self.node = node
        self.directory = directory
        self.descriptor = descriptor
        reader = Mutex(DirectoryReader(descriptor))
    }
}
