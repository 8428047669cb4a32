package import VaultCrypto

/// `vaultfs.rekey`, in the vault's root: a step of a rekey that takes more than one system call, written before it begins, so
/// that whoever opens the vault next can finish it (FileFormat, Rekeying).
package enum RekeyIntent: Sendable, Equatable {
    case directory(Directory)
    case links(Links)

    /// A directory whose secret changes: its names, its attributes and its record.
    package struct Directory: Sendable, Equatable {
        /// From the root, the entries that lead to it; none for the root.
        package var path: [[UInt8]]
        package var oldRecord: [UInt8]
        package var newRecord: [UInt8]
        /// Of the directory: atime and mtime, in seconds and nanoseconds, which stay.
        package var times: [UInt64]
        /// The directory's own attributes as they are to be stored.
        package var attributes: [Attribute]

        package init(
            path: [[UInt8]], oldRecord: [UInt8], newRecord: [UInt8], times: [UInt64], attributes: [Attribute]
        ) {
            self.path = path
            self.oldRecord = oldRecord
            self.newRecord = newRecord
            self.times = times
            self.attributes = attributes
        }
    }

    package struct Attribute: Sendable, Equatable {
        package var name: [UInt8]
        package var value: [UInt8]

        package init(name: [UInt8], value: [UInt8]) {
            self.name = name
            self.value = value
        }
    }

    /// A file or symbolic link with several names, each of which is to lead to the new object.
    package struct Links: Sendable, Equatable {
        /// What the old object is known by, wherever it was copied.
        package var old: Identity
        /// The entry in the root that leads to the new object.
        package var temporary: [UInt8]
        /// Each from the root, the entries that lead to a name.
        package var paths: [[[UInt8]]]

        package init(old: Identity, temporary: [UInt8], paths: [[[UInt8]]]) {
            self.old = old
            self.temporary = temporary
            self.paths = paths
        }
    }

    package enum Identity: Sendable, Equatable {
        /// The id in its header.
        case file(UInt64)
        /// The target as it is stored, which no other link has.
        case link([UInt8])
    }

    /// More than any that is written: what is larger is not read.
    package static let maximumSize = 1 << 26
    private static let magic: [UInt8] = Array("VFSK".utf8)
    private static let headSize = 8

    /// The bytes of the file. `cipher` is under the intent key of `epoch`.
    package func serialized(epoch: UInt8, cipher: SivCipher) throws(FormatError) -> [UInt8] {
        let (kind, fields) = encoded
        let head = Self.magic + [1, kind, 0, epoch]
        let body = RekeyFields.encode(fields)
        let sealed = try cryptography("vaultfs.rekey") { [body] () throws(CryptoError) in
            try cipher.seal(body, associatedData: [head])
        }
        return head + sealed
    }

    /// Authenticates and reads the file. Throws `malformed`, `newerVersion`, `doesNotAuthenticate`.
    package static func parse(_ bytes: [UInt8], epoch: UInt8, cipher: SivCipher) throws(FormatError) -> RekeyIntent {
        guard bytes.count > headSize, bytes.count <= maximumSize, bytes.starts(with: magic) else {
            throw FormatError(.malformed, "vaultfs.rekey: no magic")
        }
        guard bytes[4] == 1 else { throw FormatError(.newerVersion, "vaultfs.rekey: unknown version \(bytes[4])") }
        guard bytes[6] == 0, bytes[7] == epoch else {
            throw FormatError(.malformed, "vaultfs.rekey: of key epoch \(bytes[7]), not \(epoch)")
        }
        let body = try cryptography("vaultfs.rekey") { () throws(CryptoError) in
            try cipher.open(Array(bytes[headSize...]), associatedData: [Array(bytes[..<headSize])])
        }
        guard let fields = RekeyFields.decode(body), let intent = decoded(kind: bytes[5], fields) else {
            throw FormatError(.malformed, "vaultfs.rekey: not laid out as the format says")
        }
        return intent
    }

    private var encoded: (kind: UInt8, fields: [[UInt8]]) {
        switch self {
        case .directory(let step):
            let attributes = step.attributes.flatMap { [$0.name, $0.value] }
            let (times, path) = (RekeyFields.encode(times: step.times), RekeyFields.joined(step.path))
            return (1, [step.oldRecord, step.newRecord, times, path] + attributes)
        case .links(let step):
            let paths = step.paths.map(RekeyFields.joined)
            switch step.old {
            case .file(let id): return (2, [RekeyFields.number(id), step.temporary] + paths)
            case .link(let stored):
                return (3, [stored, step.temporary] + paths)
            }
        }
    }

    private static func decoded(kind: UInt8, _ fields: [[UInt8]]) -> RekeyIntent? {
        if kind == 1 { return directory(fields).map { .directory($0) } }
        guard fields.count >= 3, EntryName.kind(of: fields[1]) == .temporary, RekeyFields.isEntry(fields[1])
        else { return nil }
        let paths = fields[2...].compactMap { RekeyFields.split($0) }.filter { !$0.isEmpty }
        guard paths.count == fields.count - 2 else { return nil }
        switch kind {
        case 2:
            guard fields[0].count == 8 else { return nil }
            let id = fields[0].withUnsafeBytes { $0.littleEndian64(at: 0) }
            return .links(Links(old: .file(id), temporary: fields[1], paths: paths))
        case 3:
            return .links(Links(old: .link(fields[0]), temporary: fields[1], paths: paths))
        default: return nil
        }
    }

    private static func directory(_ fields: [[UInt8]]) -> Directory? {
        guard fields.count >= 4, fields.count % 2 == 0, fields[0].count == DirectoryRecord.size,
            fields[1].count == DirectoryRecord.size, fields[2].count == RekeyFields.timesSize,
            let path = RekeyFields.split(fields[3])
        else { return nil }
        let attributes = stride(from: 4, to: fields.count, by: 2).map {
            Attribute(name: fields[$0], value: fields[$0 + 1])
        }
        guard attributes.allSatisfy({ !$0.name.contains(0) }) else { return nil }
        return Directory(
            path: path, oldRecord: fields[0], newRecord: fields[1], times: RekeyFields.times(fields[2]),
            attributes: attributes)
    }
}
