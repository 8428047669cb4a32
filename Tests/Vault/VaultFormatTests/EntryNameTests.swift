import LinuxSystem
import Testing
import VaultCrypto
import VaultFormat

@Suite struct EntryNameTests {
    let keys: DirectoryKeys
    let vault: TestVault

    init() throws {
        vault = try TestVault()
        keys = try vault.directory()
    }

    private func decode(_ encoded: EntryName.Encoded) -> [UInt8]? {
        EntryName.decode(encoded.entry.bytes, sidecarBlob: encoded.sidecarBlob, keys: keys)
    }

    private func seal(_ padded: [UInt8]) throws -> [UInt8] {
        try keys.nameCipher.encrypt(padded, associatedData: [ascii("name")])
    }

    private func longEntry(_ blob: [UInt8]) throws -> [UInt8] {
        ascii("vaultfs.long.") + Base64.url.encode(try Sha256.digest(blob))
    }

    @Test(
        "a short name of FAT is known by its spelling",
        arguments: [
            ("ABCDEF~1", true), ("abcde~12.TMP", true), ("A~1", true), ("VAULTF~1.X", true), ("ABCDEF~A", false),
            ("ABCDEFGH", false), ("ABCDEFG~1", false), ("~1", false), ("ABCDEF~1.", false), ("A~1.TOOL", false),
            ("A~1.B.C", false), ("", false),
        ])
    func shortNames(name: String, isShort: Bool) {
        #expect(EntryName.isShortened(Array(name.utf8)) == isShort)
    }

    @Test("Names-2: every length has the entry of the table and decodes again")
    func lengths() throws {
        for length in 1...255 {
            let name = (0..<length).map { UInt8(0x80 + $0 % 100) }
            let encoded = try EntryName.encode(name, keys: keys)
            let padded = name + [UInt8](repeating: 0, count: (16 - length % 16) % 16)
            let blob = try seal(padded)
            if length <= 160 {
                #expect(encoded.entry.bytes == Base64.url.encode(blob) && encoded.sidecarBlob == nil)
                #expect(EntryName.kind(of: encoded.entry.bytes) == .name)
            } else {
                #expect(try encoded.entry.bytes == longEntry(blob) && encoded.sidecarBlob == blob)
                #expect(EntryName.kind(of: encoded.entry.bytes) == .longName)
            }
            #expect(encoded.entry.count <= EntryName.maximumLength)
            #expect(decode(encoded) == name)
        }
    }

    @Test(
        "Names-2: the sizes of the table",
        arguments: [
            (1, 43, 0), (16, 43, 0), (17, 64, 0), (32, 64, 0), (145, 235, 0), (160, 235, 0), (161, 56, 192),
            (176, 56, 192), (241, 56, 272), (255, 56, 272),
        ])
    func table(length: Int, entrySize: Int, blobSize: Int) throws {
        let encoded = try EntryName.encode([UInt8](repeating: 0x61, count: length), keys: keys)
        #expect(encoded.entry.count == entrySize)
        #expect((encoded.sidecarBlob?.count ?? 0) == blobSize)
        #expect(EntryName.sidecar(of: encoded.entry) == encoded.entry + ".name")
    }

    @Test("Names-1: names are bytes: invalid UTF-8, control characters, dots and spaces decode again")
    func bytes() throws {
        let names: [[UInt8]] = [
            [0xFF, 0xFE], [0xC3, 0x28], ascii("..."), ascii(".a"), ascii("a."), ascii(" "), ascii("\n"), [0x01],
            ascii("vaultfs.json"), ascii("été 写真.txt"), ascii("\\"), ascii("..a"),
        ]
        for name in names { #expect(decode(try EntryName.encode(name, keys: keys)) == name) }
    }

    @Test("Names-1: impossible file names are refused in writing")
    func invalid() throws {
        for name in [[], ascii("."), ascii(".."), ascii("a/b"), ascii("/"), [0x61, 0], [0]] as [[UInt8]] {
            #expect(formatError { _ = try EntryName.encode(name, keys: keys) }?.kind == .invalidValue)
        }
        let long = [UInt8](repeating: 0x61, count: 256)
        #expect(formatError { _ = try EntryName.encode(long, keys: keys) }?.kind == .tooLong)
    }

    @Test("Names-1: impossible file names are refused in reading, under a valid SIV")
    func invalidSealed() throws {
        let blank = [UInt8](repeating: 0, count: 16)
        let names = [ascii("."), ascii(".."), ascii("a/b"), [0x61, 0, 0x62], [0, 0x61], []]
        for name in names {
            let padded = Array((name + blank).prefix(16))
            #expect(EntryName.decode(Base64.url.encode(try seal(padded)), sidecarBlob: nil, keys: keys) == nil)
        }
        let long = try seal([UInt8](repeating: 0x61, count: 256))
        #expect(EntryName.decode(try longEntry(long), sidecarBlob: long, keys: keys) == nil)
        let longer = try seal([UInt8](repeating: 0x61, count: 272))
        #expect(EntryName.decode(try longEntry(longer), sidecarBlob: longer, keys: keys) == nil)
    }

    @Test("Names-3: other padding is refused, under a valid SIV", arguments: [1, 8, 15, 17, 32, 48])
    func padding(size: Int) throws {
        let padded = Array((ascii("a") + [UInt8](repeating: 0, count: 64)).prefix(size))
        #expect(EntryName.decode(Base64.url.encode(try seal(padded)), sidecarBlob: nil, keys: keys) == nil)
    }

    @Test("Names-3: another spelling of the same blob is refused")
    func spelling() throws {
        let entry = try EntryName.encode(ascii("hello"), keys: keys).entry.bytes
        for other in [entry + ascii("="), entry + ascii("A"), entry.dropLast(), [0x20] + entry, entry + [0x0A]] {
            #expect(EntryName.decode(Array(other), sidecarBlob: nil, keys: keys) == nil)
        }
        for digit in UInt8.min...UInt8.max where digit != entry.last {
            #expect(EntryName.decode(entry.dropLast() + [digit], sidecarBlob: nil, keys: keys) == nil)
        }
    }

    @Test("Names-3: the short form of a long name, and the long form of a short one, are refused")
    func wrongForm() throws {
        let short = try seal(ascii("short name, 16 b"))
        #expect(EntryName.decode(try longEntry(short), sidecarBlob: short, keys: keys) == nil)
        let long = try #require(try EntryName.encode([UInt8](repeating: 0x61, count: 161), keys: keys).sidecarBlob)
        #expect(EntryName.decode(Base64.url.encode(long), sidecarBlob: nil, keys: keys) == nil)
        #expect(EntryName.decode(Base64.url.encode(long), sidecarBlob: long, keys: keys) == nil)
    }

    @Test("Names-3: every bit of an entry flipped, and every truncation, does not authenticate")
    func damage() throws {
        let entry = try EntryName.encode(ascii("some name of 21 bytes"), keys: keys).entry.bytes
        for (bit, damaged) in entry.withOneBitChanged {
            #expect(EntryName.decode(damaged, sidecarBlob: nil, keys: keys) == nil, "bit \(bit)")
        }
        for count in 0..<entry.count {
            #expect(EntryName.decode(Array(entry[..<count]), sidecarBlob: nil, keys: keys) == nil)
        }
    }

    @Test("Names-3: a sidecar missing, damaged, cut or exchanged does not authenticate")
    func sidecars() throws {
        let name = [UInt8](repeating: 0x62, count: 200)
        let encoded = try EntryName.encode(name, keys: keys)
        let other = try EntryName.encode([UInt8](repeating: 0x63, count: 200), keys: keys)
        let blob = try #require(encoded.sidecarBlob)
        #expect(EntryName.decode(encoded.entry.bytes, sidecarBlob: nil, keys: keys) == nil)
        #expect(EntryName.decode(encoded.entry.bytes, sidecarBlob: other.sidecarBlob, keys: keys) == nil)
        #expect(EntryName.decode(other.entry.bytes, sidecarBlob: blob, keys: keys) == nil)
        for index in blob.indices {
            var damaged = blob
            damaged[index] ^= 0x10
            #expect(EntryName.decode(encoded.entry.bytes, sidecarBlob: damaged, keys: keys) == nil)
            #expect(EntryName.decode(encoded.entry.bytes, sidecarBlob: Array(blob[..<index]), keys: keys) == nil)
            let entry = try longEntry(damaged)
            #expect(EntryName.decode(entry, sidecarBlob: damaged, keys: keys) == nil)
        }
    }

    @Test("Names-4: an entry moved to another directory does not authenticate there")
    func moved() throws {
        let other = try vault.directory()
        let entry = try EntryName.encode(ascii("a"), keys: keys).entry.bytes
        #expect(EntryName.decode(entry, sidecarBlob: nil, keys: other) == nil)
        let long = try EntryName.encode([UInt8](repeating: 0x61, count: 255), keys: keys)
        #expect(EntryName.decode(long.entry.bytes, sidecarBlob: long.sidecarBlob, keys: other) == nil)
    }

    @Test("Names-5: an entry's kind follows from its spelling")
    func kinds() {
        let digest = String(repeating: "A", count: 43)
        let cases: [(String, EntryName.Kind)] = [
            ("abc", .name), ("vaultfs", .name), ("Vaultfs.json", .name), (".hidden", .name), ("", .name),
            ("vaultfs.", .reserved), ("vaultfs.json", .reserved), ("vaultfs.dir", .reserved),
            ("vaultfs.journal", .reserved),
            ("vaultfs.other", .reserved), ("vaultfs.tmp.00ff", .temporary), ("vaultfs.long.\(digest)", .longName),
            ("vaultfs.long.\(digest).name", .sidecar),
        ]
        for (entry, kind) in cases { #expect(EntryName.kind(of: ascii(entry)) == kind, "\(entry)") }
        #expect(EntryName.kind(of: EntryName.temporary("00ff").bytes) == .temporary)
        for entry in ["vaultfs.json", "vaultfs.tmp.0", "vaultfs.long.\(digest).name", ""] {
            #expect(EntryName.decode(ascii(entry), sidecarBlob: nil, keys: keys) == nil)
        }
    }
}
