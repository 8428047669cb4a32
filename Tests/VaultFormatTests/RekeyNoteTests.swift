import Testing
import VaultCrypto

@testable import VaultFormat

/// `vaultfs.modes` (FileFormat, Rekeying).
@Suite struct RekeyNoteTests {
    private static let notes = [
        RekeyNote(path: [], mode: 0o755, times: [1, 2, 3, UInt64.max]),
        RekeyNote(path: [ascii("aaa"), ascii("bbb")], mode: 0o7777, times: [0, 0, 0, 0]),
    ]

    private let cipher: SivCipher
    private let bytes: [UInt8]

    init() throws {
        let cipher = try SivCipher(key: .random(count: 64))
        self.cipher = cipher
        bytes = try Self.notes.flatMap { try $0.serialized(epoch: 1, cipher: cipher) }
    }

    private func parse(_ bytes: [UInt8], epoch: UInt8 = 1) -> (notes: [RekeyNote], count: Int) {
        RekeyNote.parse(bytes, epoch: epoch, cipher: cipher)
    }

    @Test("Rekeying-2: what is written is read, up to the first record that is cut or changed, or of another epoch")
    func roundTrip() throws {
        #expect(parse(bytes) == (Self.notes, bytes.count))
        let first = try Self.notes[0].serialized(epoch: 1, cipher: cipher).count
        for position in bytes.indices {
            var changed = bytes
            changed[position] ^= 4
            let expected = position < first ? [] : [Self.notes[0]]
            #expect(parse(changed) == (expected, position < first ? 0 : first))
            #expect(parse(Array(bytes.prefix(position))).notes == expected)
        }
        #expect(parse(bytes + [UInt8](repeating: 0, count: 100)) == (Self.notes, bytes.count))
        #expect(parse([UInt8](repeating: 255, count: 100)).notes.isEmpty && parse(bytes, epoch: 2).notes.isEmpty)
    }

    @Test("Rekeying-2: a record that is sealed right, and is not laid out so, is the end")
    func layout() throws {
        let number = { (value: UInt8, count: Int) in [value] + [UInt8](repeating: 0, count: count - 1) }
        let whole = [ascii("a/b"), number(7, 8), number(1, 32)]
        var wrong = ["..", "a/..", "/a", "a/", "a//b"].map { [ascii($0), whole[1], whole[2]] }
        wrong += [
            [whole[0], whole[1]], whole + [[]], [whole[0], number(7, 7), whole[2]], [whole[0], whole[1], whole[1]],
        ]
        wrong.append([whole[0], [0, 16] + number(0, 6), whole[2]])
        #expect(try parse(sealed(whole)).notes.count == 1)
        for fields in wrong { #expect(try parse(sealed(fields)).notes.isEmpty, "\(fields)") }
    }

    private func sealed(_ fields: [[UInt8]]) throws -> [UInt8] {
        let sealed = try cipher.seal(
            fields.flatMap { [UInt8($0.count), 0, 0, 0, 0, 0, 0, 0] + $0 },
            associatedData: [ascii("VFSM") + [1, 0, 0, 1]])
        return [UInt8(sealed.count), 0, 0, 0, 0, 0, 0, 0] + sealed
    }
}
