internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import VaultStore

extension VaultFileSystem {
    /// A file that is about to lose its last name.
    struct GoingFile {
        let descriptor: Descriptor
        /// Nil if the kernel does not know it. It leaves the table with its name.
        let node: Node?
    }

    /// Opens a file that is about to lose a name, if the journal may hold records of it.
    func openIfJournaled(_ entry: [UInt8], _ status: stat, in directory: OpenDirectory) -> GoingFile? {
        guard store.hasJournaledRecords, status.st_mode & S_IFMT == S_IFREG, status.st_nlink <= 1,
            let descriptor = try? Descriptor(at: directory.descriptor.fd, entry, flags: O_RDONLY | O_NONBLOCK)
        else { return nil }
        return GoingFile(descriptor: descriptor, node: nodes.find(status))
    }

    /// Frees the journal slots of a file that has lost its last name, or later when it is closed. Nobody reads these records
    /// again, and slots are few.
    func forgetSlots(of gone: GoingFile?) {
        guard let gone, gone.node?.openFile == nil else { return }
        store.forgetSlots(of: gone.descriptor)
    }
}
