internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import VaultStore

extension VaultFileSystem {
    /// A file that is about to lose its last name.
    struct GoingFile {
        let descriptor: Descriptor
        /// Nil where the kernel does not know it. It leaves the table with the name.
        let node: Node?
    }

    /// Opens what is about to lose a name, where the journal holds records: they may be of this file.
    func openIfJournaled(_ entry: [UInt8], _ status: stat, in directory: OpenDirectory) -> GoingFile? {
        guard store.hasJournaledRecords, status.st_mode & S_IFMT == S_IFREG, status.st_nlink <= 1,
            let descriptor = try? Descriptor(at: directory.descriptor.fd, entry, flags: O_RDONLY | O_NONBLOCK)
        else { return nil }
        return GoingFile(descriptor: descriptor, node: nodes.find(status))
    }

    /// Frees the slots of a file that has lost its last name, where it is open when it is closed: nobody will ask for
    /// what they hold, and there are few of them.
    func forgetSlots(of gone: GoingFile?) {
        guard let gone, gone.node?.openFile == nil else { return }
        store.forgetSlots(of: gone.descriptor)
    }
}
