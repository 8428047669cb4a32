import TestSupport

@testable import VaultStore

/// A store with three open files of four chunks each.
struct LogPlace {
    static let c = 4096
    /// Bytes from one entry of a whole chunk to the next entry.
    static let space = 4224

    let vault: TestStore
    let store: Store
    let files: [EncryptedFile]

    init(_ vault: TestStore) throws {
        self.vault = vault
        for name in ["a", "b", "c"] { try vault.make(pattern(4 * Self.c), entry: name) }
        let store = try vault.open(cacheSize: 0)
        self.store = store
        files = try ["a", "b", "c"].map { try vault.reopen($0, in: store) }
    }

    /// Overwrites a chunk of each file, and syncs it.
    func overwrite(chunk: Int, seed: UInt64) throws {
        for file in files {
            try file.put(pattern(Self.c, seed: seed), at: chunk * Self.c)
            try file.synchronize(dataOnly: true)
        }
    }

    /// Returns a file's content after overwrites of chunks with these seeds.
    static func content(_ seeds: [Int: UInt64]) -> [UInt8] {
        var bytes = pattern(4 * c)
        for (chunk, seed) in seeds {
            bytes.replaceSubrange((chunk * c)..<((chunk + 1) * c), with: pattern(c, seed: seed))
        }
        return bytes
    }

    /// Changes a byte of the log's entry at this index.
    static func damageEntry(_ index: Int, byte: Int, in vault: TestStore) throws {
        try vault.change("vaultfs.log") { $0[4096 + index * space + byte] ^= 1 }
    }
}
