internal import BackingStore
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
        guard blob != nil || LostObject.find(entry, in: directory, keyRing) != nil else { return nil }
        throw .damaged("the name of \(Self.shown(entry)) does not authenticate")
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

    /// An entry of a backing directory, for messages.
    static func shown(_ entry: [UInt8]) -> String { FilePath(String(decoding: entry, as: UTF8.self)).shown }
}
