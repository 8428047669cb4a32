internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import VaultFormat

/// A directory on the way from the vault's root to what is being looked at.
struct VerifierFrame {
    /// What an open directory needs; dropped in the outer ones of a deep tree.
    struct Open {
        let descriptor: Descriptor
        /// Nil where the record does not authenticate: then no name in it can be read.
        let keys: DirectoryKeys?
        var reader: DirectoryReader
    }

    let object: VerifierObject
    let identity: FileIdentity
    /// Where in the directory reading goes on.
    var offset: Int64 = 0
    var open: Open?
    /// Nothing in it is of this vault.
    var isForeign = false
}
