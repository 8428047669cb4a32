import LinuxSystem
import Testing
import VaultCrypto

@testable import VaultFormat

/// `vaultfs.rekey` (FileFormat, Rekeying).
@Suite struct RekeyIntentTests {
    private let cipher: SivCipher

    private static let directory = RekeyIntent.Directory(
        path: ["aaa", "bbb"], oldRecord: [UInt8](repeating: 1, count: 64),
        newRecord: [UInt8](repeating: 2, count: 64), times: [1, 2, 3, UInt64.max],
        attributes: [.init(name: ascii("user.vaultfs.x"), value: []), .init(name: ascii("y"), value: [0, 1])])
    private static let links = RekeyIntent.Links(
        old: .file(77), temporary: "vaultfs.tmp.ab", paths: [["x"], ["y", "z"]])

    private static let intents: [RekeyIntent] = {
        var root = directory
        (root.path, root.attributes) = ([], [])
        var symbolic = links
        symbolic.old = .link(ascii("1abc"))
        return [.directory(directory), .directory(root), .links(links), .links(symbolic)]
    }()

    init() throws {
        cipher = try SivCipher(key: .random(count: 64))
    }

    private func parse(_ bytes: [UInt8], epoch: UInt8 = 1) throws -> RekeyIntent {
        try RekeyIntent.parse(bytes, epoch: epoch, cipher: cipher)
    }

    /// A correctly encrypted intent with these `fields`.
    private func sealed(kind: UInt8, _ fields: [[UInt8]]) throws -> [UInt8] {
        let head = ascii("VFSK") + [1, kind, 0, 1]
        var body: [UInt8] = []
        for field in fields { body += [UInt8(field.count & 0xFF), UInt8(field.count >> 8), 0, 0, 0, 0, 0, 0] + field }
        return head + (try cipher.encrypt(body, associatedData: [head]))
    }

    @Test("Rekeying-1: an intent decodes again, and any changed bit is an error", arguments: intents)
    func roundTrip(intent: RekeyIntent) throws {
        let bytes = try intent.serialized(epoch: 1, cipher: cipher)
        #expect(try parse(bytes) == intent)
        #expect(throws: FormatError.self) { try parse(bytes, epoch: 2) }
        for position in bytes.indices {
            var changed = bytes
            changed[position] ^= 4
            #expect(throws: FormatError.self) { try parse(changed) }
        }
        for count in [0, 4, 8, 9, 24, bytes.count - 1] {
            #expect(throws: FormatError.self) { try parse(Array(bytes.prefix(count))) }
        }
        #expect(throws: FormatError.self) {
            try RekeyIntent.parse(bytes, epoch: 1, cipher: SivCipher(key: .random(count: 64)))
        }
    }

    @Test("Rekeying-1: a path leads only downwards, and another layout is refused")
    func paths() throws {
        let (record, times) = ([UInt8](repeating: 0, count: 64), [UInt8](repeating: 0, count: 32))
        #expect(try parse(sealed(kind: 1, [record, record, times, ascii("a/b")])) != Self.intents[0])
        for path in ["..", "a/..", ".", "a/./b", "/a", "a/", "a//b", "a\0b", String(repeating: "a", count: 256)] {
            #expect(throws: FormatError.self) { try parse(sealed(kind: 1, [record, record, times, ascii(path)])) }
            let id = [UInt8](repeating: 1, count: 8)
            #expect(throws: FormatError.self) {
                try parse(sealed(kind: 2, [id, ascii("vaultfs.tmp.a"), ascii("b"), ascii(path)]))
            }
        }
        let id = [UInt8](repeating: 1, count: 8)
        for temporary in ["", "a", "vaultfs.dir", "vaultfs.tmp.a/b", "vaultfs.tmp./../x"] {
            #expect(throws: FormatError.self) { try parse(sealed(kind: 2, [id, ascii(temporary), ascii("b")])) }
        }
        #expect(throws: FormatError.self) { try parse(sealed(kind: 2, [id, ascii("vaultfs.tmp.a")])) }
        #expect(throws: FormatError.self) { try parse(sealed(kind: 2, [id, ascii("vaultfs.tmp.a"), []])) }
        #expect(throws: FormatError.self) { try parse(sealed(kind: 2, [[1], ascii("vaultfs.tmp.a"), ascii("b")])) }
        #expect(throws: FormatError.self) { try parse(sealed(kind: 4, [id, ascii("vaultfs.tmp.a"), ascii("b")])) }
        #expect(throws: FormatError.self) { try parse(sealed(kind: 1, [record, record, times])) }
        #expect(throws: FormatError.self) { try parse(sealed(kind: 1, [record, [1], times, ascii("a")])) }
        #expect(throws: FormatError.self) {
            try parse(sealed(kind: 1, [record, record, times, ascii("a"), ascii("odd")]))
        }
        let head = ascii("VFSK") + [1, 1, 0, 1]
        for body in [[UInt8]](arrayLiteral: [1], [9, 0, 0, 0, 0, 0, 0, 0], [UInt8](repeating: 0xFF, count: 20)) {
            #expect(throws: FormatError.self) { try parse(head + cipher.encrypt(body, associatedData: [head])) }
        }
    }
}
