internal import Synchronization
internal import VaultFormat

/// The name that was encoded last: the kernel looks a new name up before it is made, and the reply needs its entry
/// again. A lock forgets it, because it is plaintext. Any thread.
package final class LastName: Sendable {
    struct Known: Sendable {
        /// Kept alive, so that no later keys have the same address.
        let keys: DirectoryKeys
        let name: [UInt8]
        let encoded: EntryName.Encoded
    }

    let known = Mutex<Known?>(nil)

    /// Returns the backing form of a name in the directory of `keys`.
    /// - Throws: as `EntryName.encode`.
    func encode(_ name: [UInt8], _ keys: DirectoryKeys) throws(FormatError) -> EntryName.Encoded {
        let last = known.withLock { known -> EntryName.Encoded? in
            guard let known, known.keys === keys, known.name == name else { return nil }
            return known.encoded
        }
        if let last { return last }
        let encoded = try EntryName.encode(name, keys: keys)
        known.withLock { $0 = Known(keys: keys, name: name, encoded: encoded) }
        return encoded
    }

    package func forget() { known.withLock { $0 = nil } }
}
