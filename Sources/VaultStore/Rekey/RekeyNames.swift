internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Reads the names of a directory, one of which a rekey must not lose. Any thread.
struct RekeyNames {
    let directory: Descriptor
    let keyRing: KeyRing

    /// The plaintext name of an entry under the first of the keys under which it authenticates, and which that is; nil where
    /// the entry is not the vault's.
    /// - Throws: `.damaged` where it is the vault's, or may be, and its name does not authenticate; `system` where its sidecar
    ///   cannot be read.
    func name(of entry: [UInt8], under keys: [DirectoryKeys]) throws(StoreError) -> (name: [UInt8], key: Int)? {
        let isLong = EntryName.kind(of: entry) == .longName
        let blob = isLong ? try sidecar(of: entry) : nil
        for (index, keys) in keys.enumerated() {
            if let name = EntryName.decode(entry, sidecarBlob: blob, keys: keys) { return (name, index) }
        }
        // With a sidecar it is a name of some vault, and it may be one of this.
        if blob == nil, try !isLost(entry) { return nil }
        throw .damaged("the name of \(Self.shown(entry)) does not authenticate")
    }

    /// Whether an entry without a name is the vault's.
    private func isLost(_ entry: [UInt8]) throws(StoreError) -> Bool {
        do throws(StoreError) {
            return try LostObject.look(at: entry, in: directory, keyRing) != nil
        } catch .system(let errno) where !StoreError.system(errno).endsRekey {
            if Self.isFileSystems(entry, in: directory) { return false }
            throw .damaged("\(Self.shown(entry)) cannot be looked at, and may be the vault's: \(errno)")
        }
    }

    /// The same for an entry of which nothing is asked but that its name is not lost; what is wrong says which entry.
    func check(_ entry: [UInt8], under keys: [DirectoryKeys]) throws(StoreError) {
        do throws(StoreError) {
            _ = try name(of: entry, under: keys)
        } catch .system(let errno) {
            if StoreError.system(errno).endsRekey { throw .system(errno) }
            throw .damaged("the sidecar of \(Self.shown(entry)) cannot be read: \(errno)")
        }
    }

    private func sidecar(of entry: [UInt8]) throws(StoreError) -> [UInt8]? {
        do throws(StoreError) {
            return try directory.readSidecar(of: entry)
        } catch .system(let errno)
            where [.tooManySymbolicLinkLevels, .isDirectory, .noSuchAddressOrDevice].contains(errno)
        {
            throw .damaged("the sidecar of \(Self.shown(entry)) is not a regular file")
        }
    }

    /// Whether an entry is, by its spelling, that of a file, link or directory of a vault.
    static func isObject(_ entry: [UInt8]) -> Bool { [.name, .longName].contains(EntryName.kind(of: entry)) }

    /// Whether an entry is what mkfs(8) makes for fsck(8) at the root of a file system, into which root alone may look.
    static func isFileSystems(_ entry: [UInt8], in directory: Descriptor) -> Bool {
        guard entry == Array("lost+found".utf8), geteuid() != 0, let status = try? directory.status(of: entry) else {
            return false
        }
        return status.st_uid == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    /// An entry of a backing directory, for messages.
    static func shown(_ entry: [UInt8]) -> String { FilePath(String(decoding: entry, as: UTF8.self)).shown }
}
