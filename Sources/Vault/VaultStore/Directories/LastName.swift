internal import Synchronization
internal import VaultFormat

/// The name that was encoded last: the kernel looks a new name up before it is made, and the reply needs its entry
/// again. A lock forgets it, because it is plaintext. Any thread.
package final class LastName: Sendable {
    /// The keys are kept alive, so that no later ones have the same address.
    let known = Mutex<(keys: DirectoryKeys, name: [UInt8], encoded: EntryName.Encoded)?>(nil)

    /// Returns the backing form of a name in the directory of `keys`.
    /// - Throws: as `EntryName.encode`.
    func encode(_ name: [UInt8], _ keys: DirectoryKeys) throws(FormatError) -> EntryName.Encoded {
        let last = known.withLock { known -> EntryName.Encoded? in
            guard let known, known.keys === keys, known.name == name else { return nil }
            return known.encoded
        }
        if let last { return last }
        let encoded = try EntryName.encode(name, keys: keys)
        known.withLock { $0 = (keys, name, encoded) }
        return encoded
    }

    package func forget() { known.withLock { $0 = nil } }
}
