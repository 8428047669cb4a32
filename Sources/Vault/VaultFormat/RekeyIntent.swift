package import LinuxSystem
package import VaultCrypto

/// The content of `vaultfs.rekey`, in the vault's root: a rekey step of several system calls. The rekey writes it
/// before the step, so that the next opening for writing can complete the step (FileFormat, Rekeying).
package enum RekeyIntent: Sendable, Equatable {
    case directory(Directory)
    case links(Links)

    /// A directory that gets a new secret, so also new names, attributes and a new record.
    package struct Directory: Sendable, Equatable {
        /// The backing entries from the root to the directory. Empty for the root.
        package var path: [Component]
        package var oldRecord, newRecord: [UInt8]
        /// atime and mtime of the directory, in seconds and nanoseconds, for restoring them.
        package var times: [UInt64]
        /// The directory's stored attributes under the new record.
        package var attributes: [Attribute]

        package init(
            path: [Component], oldRecord: [UInt8], newRecord: [UInt8], times: [UInt64], attributes: [Attribute]
        ) {
            self.path = path
            self.oldRecord = oldRecord
            self.newRecord = newRecord
            self.times = times
            self.attributes = attributes
        }
    }

    package struct Attribute: Sendable, Equatable {
        package var name, value: [UInt8]

        package init(name: [UInt8], value: [UInt8]) {
            self.name = name
            self.value = value
        }
    }

    /// A file or symbolic link whose several names all move to the new object.
    package struct Links: Sendable, Equatable {
        /// Identifies the old object, even in a copy of the vault.
        package var old: Identity
        /// The entry of the new object in the root.
        package var temporary: Component
        /// The backing entries from the root to each name.
        package var paths: [[Component]]

        package init(old: Identity, temporary: Component, paths: [[Component]]) {
            self.old = old
            self.temporary = temporary
            self.paths = paths
        }
    }

    package enum Identity: Sendable, Equatable {
        /// The id in the file's header.
        case file(UInt64)
        /// The stored target of a link, which is unique because of its nonce.
        case link([UInt8])
    }

    /// Maximum size in bytes. A larger file is refused.
    package static let maximumSize = 1 << 26
    private static let magic: [UInt8] = Array("VFSK".utf8)
    private static let headSize = 8
    private static let timesSize = 32

    /// Returns the bytes of the file. `cipher` has the intent key of `epoch`.
    /// - Throws: `cryptography`; `keyForgotten`.
    package func serialized(epoch: UInt8, cipher: SivCipher) throws(FormatError) -> [UInt8] {
        let (kind, fields) = encoded
        let head = Self.magic + [1, kind, 0, epoch]
        return head + (try cryptography("vaultfs.rekey", cipher.encrypt(Self.encode(fields), associatedData: [head])))
    }

    /// Authenticates and parses the file. Throws `malformed`, `newerVersion`, `doesNotAuthenticate`.
    package static func parse(_ bytes: [UInt8], epoch: UInt8, cipher: SivCipher) throws(FormatError) -> RekeyIntent {
        try require(
            bytes.count > headSize && bytes.count <= maximumSize && bytes.starts(with: magic), .malformed,
            "vaultfs.rekey: no magic")
        try require(bytes[4] == 1, .newerVersion, "vaultfs.rekey: unknown version \(bytes[4])")
        try require(
            bytes[6] == 0 && bytes[7] == epoch, .malformed, "vaultfs.rekey: of key epoch \(bytes[7]), not \(epoch)")
        let (head, sealed) = (Array(bytes[..<headSize]), Array(bytes[headSize...]))
        let body = try cryptography("vaultfs.rekey", cipher.decrypt(sealed, associatedData: [head]))
        guard let fields = decode(body), let intent = decoded(kind: bytes[5], fields) else {
            throw FormatError(.malformed, "vaultfs.rekey: not laid out as the format says")
        }
        return intent
    }

    private var encoded: (kind: UInt8, fields: [[UInt8]]) {
        switch self {
        case .directory(let step):
            let attributes = step.attributes.flatMap { [$0.name, $0.value] }
            let times = step.times.prefix(4).flatMap(Self.number)
            return (1, [step.oldRecord, step.newRecord, times, Self.joined(step.path)] + attributes)
        case .links(let step):
            let (kind, old): (UInt8, [UInt8]) =
                switch step.old {
                case .file(let id): (2, Self.number(id))
                case .link(let stored): (3, stored)
                }
            return (kind, [old, step.temporary.bytes] + step.paths.map(Self.joined))
        }
    }

    private static func decoded(kind: UInt8, _ fields: [[UInt8]]) -> RekeyIntent? {
        let old: Identity
        switch kind {
        case 1: return directory(fields).map { .directory($0) }
        case 2 where fields.first?.count == 8: old = .file(fields[0].littleEndian64(at: 0))
        case 3: old = .link(fields.first ?? [])
        default: return nil
        }
        guard fields.count >= 3, EntryName.kind(of: fields[1]) == .temporary, let temporary = entry(fields[1]) else {
            return nil
        }
        let paths = fields[2...].compactMap { split($0) }.filter { !$0.isEmpty }
        return paths.count == fields.count - 2 ? .links(Links(old: old, temporary: temporary, paths: paths)) : nil
    }

    private static func directory(_ fields: [[UInt8]]) -> Directory? {
        guard fields.count >= 4, fields.count % 2 == 0, fields[0].count == DirectoryRecord.size,
            fields[1].count == DirectoryRecord.size, fields[2].count == timesSize,
            let path = split(fields[3])
        else { return nil }
        let attributes = stride(from: 4, to: fields.count, by: 2).map {
            Attribute(name: fields[$0], value: fields[$0 + 1])
        }
        guard attributes.allSatisfy({ !$0.name.contains(0) }) else { return nil }
        let times = (0..<4).map { fields[2].littleEndian64(at: $0 * 8) }
        return Directory(path: path, oldRecord: fields[0], newRecord: fields[1], times: times, attributes: attributes)
    }

    private static func encode(_ fields: [[UInt8]]) -> [UInt8] { fields.flatMap { number(UInt64($0.count)) + $0 } }

    /// Decodes fields. Returns nil if they do not fill the body exactly.
    private static func decode(_ body: [UInt8]) -> [[UInt8]]? {
        var fields: [[UInt8]] = []
        var position = 0
        while position < body.count {
            guard body.count - position >= 8 else { return nil }
            let size = body.littleEndian64(at: position)
            position += 8
            guard let size = Int(exactly: size), size <= body.count - position else { return nil }
            fields.append(Array(body[position..<(position + size)]))
            position += size
        }
        return fields
    }

    private static func number(_ value: UInt64) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 8)
        bytes.storeLittleEndian64(value, at: 0)
        return bytes
    }

    private static func joined(_ path: [Component]) -> [UInt8] { Array(path.joined(separator: [UInt8(ascii: "/")])) }

    /// Splits a path. Returns nil if one of its entries is invalid.
    private static func split(_ path: [UInt8]) -> [Component]? {
        if path.isEmpty { return [] }
        let entries = path.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        let components = entries.compactMap { entry(Array($0)) }
        return components.count == entries.count ? components : nil
    }

    /// Returns nil unless the bytes are an entry's name within its directory.
    private static func entry(_ bytes: [UInt8]) -> Component? {
        bytes.count <= EntryName.maximumLength ? try? Component(bytes) : nil
    }
}
