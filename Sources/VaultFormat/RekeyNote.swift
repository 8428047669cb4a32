package import VaultCrypto

/// A record of `vaultfs.modes`, in the vault's root: what a directory or file was before a rekey opened it to its owner, or
/// changed entries in it, so that whoever opens the vault after a kill can put that back (FileFormat, Rekeying).
package struct RekeyNote: Sendable, Equatable {
    /// From the root, the entries that lead to it; none for the root.
    package var path: [[UInt8]]
    /// The permissions, 12 bits.
    package var mode: UInt32
    /// atime and mtime, in seconds and nanoseconds.
    package var times: [UInt64]

    package init(path: [[UInt8]], mode: UInt32, times: [UInt64]) {
        self.path = path
        self.mode = mode
        self.times = times
    }

    private static let magic: [UInt8] = Array("VFSM".utf8)
    /// A path of `PATH_MAX` many times over: what claims to be larger is not read.
    private static let maximumSize = 1 << 20

    private static func head(_ epoch: UInt8) -> [UInt8] { magic + [1, 0, 0, epoch] }

    /// The bytes of the record. `cipher` is under the intent key of `epoch`.
    package func serialized(epoch: UInt8, cipher: SivCipher) throws(FormatError) -> [UInt8] {
        let body = RekeyFields.encode([
            RekeyFields.joined(path), RekeyFields.number(UInt64(mode)), RekeyFields.encode(times: times),
        ])
        let sealed = try cryptography("vaultfs.modes") { [body] () throws(CryptoError) in
            try cipher.seal(body, associatedData: [Self.head(epoch)])
        }
        return RekeyFields.number(UInt64(sealed.count)) + sealed
    }

    /// The records up to the first that does not authenticate, which was being written, and how many bytes they take.
    package static func parse(
        _ bytes: [UInt8], epoch: UInt8, cipher: SivCipher
    ) -> (notes: [RekeyNote], count: Int) {
        var notes: [RekeyNote] = []
        var position = 0
        while bytes.count - position > 8 {
            let size = bytes.withUnsafeBytes { $0.littleEndian64(at: position) }
            let start = position + 8
            guard size <= UInt64(min(maximumSize, bytes.count - start)) else { break }
            let end = start + Int(size)
            guard let body = try? cipher.open(Array(bytes[start..<end]), associatedData: [head(epoch)]),
                let note = RekeyNote(body)
            else { break }
            notes.append(note)
            position = end
        }
        return (notes, position)
    }

    private init?(_ body: [UInt8]) {
        guard let fields = RekeyFields.decode(body), fields.count == 3, let path = RekeyFields.split(fields[0]),
            fields[1].count == 8, fields[2].count == RekeyFields.timesSize
        else { return nil }
        let mode = fields[1].withUnsafeBytes { $0.littleEndian64(at: 0) }
        guard mode <= 0o7777 else { return nil }
        self.init(path: path, mode: UInt32(mode), times: RekeyFields.times(fields[2]))
    }
}
