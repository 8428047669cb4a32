internal import VaultCrypto

/// Recognizes names of one key: URIs that differ in a token can lead to one file, and two files can hold the same key.
/// Keeps nothing, so rotated keys of days take no memory. Any thread.
struct KeyMeanings: Sendable {
    /// A number of 64 random bits, the same for all names of a key.
    typealias Meaning = Int

    /// The most keys of a playlist to read. Further ones are compared by name, because each read takes a file.
    private static let maximumReads = 4096

    /// Returns a key in memory or in a file, but nil for a key that takes a key command.
    private let find: @Sendable (KeyName) -> KeyMaterial?
    /// Authenticated with each key, so the result reveals nothing of the key after a lock.
    private let message = (0..<32).map { _ in UInt8.random(in: 0...255) }

    init(_ find: @escaping @Sendable (KeyName) -> KeyMaterial?) { self.find = find }

    /// Returns the meanings of the keys of one playlist, in order. Reads key files.
    func meanings(of names: [KeyName]) -> [Meaning] {
        names.enumerated().map { $0 < Self.maximumReads ? meaning(of: $1) : $1.hashValue }
    }

    private func meaning(of name: KeyName) -> Meaning {
        guard let material = find(name),
            let digest = try? HmacSha256.authenticate(message, key: material.key)
        else { return name.normalized.hashValue }
        return digest.withUnsafeBytes { $0.loadUnaligned(as: Int.self) }
    }
}
