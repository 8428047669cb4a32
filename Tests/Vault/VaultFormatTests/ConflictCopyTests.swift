import LinuxSystem
import Testing
import VaultFormat

@Suite struct ConflictCopyTests {
    private static let short = String(repeating: "Ab-_", count: 10) + "AbA"
    private static let digits = String(repeating: "Zz09", count: 10) + "ZzA"
    private static let long = "vaultfs.long." + digits

    /// Additions by Syncthing, Nextcloud, Dropbox, Seafile, rclone, editors, and by clients that number the copies.
    private static let additions = [
        ".sync-conflict-20261124-101010-ABCDEFG", " (conflicted copy 2026-11-24 101010)",
        " (Ada's conflicted copy 2026-11-24)", " (SFConflict ada@example.org 2026-11-24-10-10-10)", ".conflict1",
        "..path1", "~", ".~1~", " 2", "(1)", ".", " ",
    ]

    @Test("Names-6: an entry with an addition is a conflict copy, of short and of long names", arguments: additions)
    func spelling(_ addition: String) throws {
        let copies = [
            Self.short + addition: Self.short, Self.long + addition: Self.long,
            "vaultfs.long" + addition + "." + Self.digits: Self.long,
        ]
        for (entry, twin) in copies {
            let copy = try #require(ConflictCopy(ascii(entry)), "\(entry)")
            #expect(copy.twin.bytes == ascii(twin) && copy.addition == ascii(addition))
            #expect(EntryName.kind(of: ascii(entry)) == .conflictCopy)
            #expect(!EntryName.isObject(ascii(entry)) && !EntryName.canBeEncrypted(ascii(entry)))
        }
    }

    @Test(
        "Names-6: any other entry is none",
        arguments: [
            short, long, long + ".name", long + ".sync-conflict-1.name", long + ".name.conflict1",
            "vaultfs.long.sync-conflict-1.name",
            "vaultfs.long", "vaultfs.long.", "vaultfs.long." + digits.dropLast(), "vaultfs.json", "vaultfs.json~",
            "vaultfs.tmp.1f", "notes.txt", "." + short, short.dropLast() + ".txt", "", "~", "vaultfs.longX." + digits,
        ])
    func others(_ entry: String) { #expect(ConflictCopy(ascii(entry)) == nil) }

    @Test(
        "Names-7: the addition stands before the extension",
        arguments: [
            ("report.odt", ".conflict1", "report (conflict conflict1).odt"),
            ("report", " (copy)", "report (conflict (copy))"), ("a.tar.gz", "~", "a.tar (conflict ~).gz"),
            (".bashrc", "~", ".bashrc (conflict ~)"), ("..a.b", "~", "..a (conflict ~).b"),
            ("a.", "~", "a (conflict ~)."),
            ("a", " . ", "a (conflict  . )"), ("a", "..path1", "a (conflict ..path1)"),
            ("a", ".path1", "a (conflict path1)"), ("a", "(1)", "a (conflict  (1))"), ("a", " (1)", "a (conflict (1))"),
            ("a.2026 was a year of many words and more", "~", "a.2026 was a year of many words and more (conflict ~)"),
        ])
    func names(_ name: String, _ addition: String, _ shown: String) throws {
        let copy = try #require(ConflictCopy(ascii(Self.short + addition)))
        #expect(copy.name(twin: ascii(name)) == ascii(shown))
        #expect(ConflictCopy.canHave(ascii(shown)) && !ConflictCopy.canHave(ascii(name)))
    }

    @Test(
        "Names-7: hidden characters and invalid UTF-8 of an addition are shown as bytes, and so are percent signs",
        arguments: [
            ([0x7E, 0x1B, 0x5B], "~%1B["), (ascii("~\u{202E}txt"), "~%E2%80%AEtxt"), ([0x7E, 0xFF, 0xC3], "~%FF%C3"),
            (ascii("~é\n"), "~é%0A"), (ascii("~\u{85}\u{AD}\u{200B}"), "~%C2%85%C2%AD%E2%80%8B"),
            (ascii("%1B"), "%251B"), ([0x1B], "%1B"), ([0x7E, 0xED, 0xA0, 0x80], "~%ED%A0%80"),
            ([0xE2, 0x82, 0x41], "%E2%82A"), (ascii("~\u{E0041}\u{1F600}"), "~%F3%A0%81%81\u{1F600}"),
        ])
    func hidden(_ addition: [UInt8], _ shown: String) throws {
        let copy = try #require(ConflictCopy(ascii(Self.short) + addition))
        #expect(copy.name(twin: ascii("a.b")) == ascii("a (conflict \(shown)).b"))
    }

    @Test("Names-7: two long additions of escaped bytes have two names, which end before a character")
    func longAdditions() throws {
        let twins = [Self.short, Self.long]
        for twin in twins {
            var names: Set<[UInt8]> = []
            let room = 255 - twin.utf8.count
            for last in [UInt8](1...9) {
                let copy = try #require(ConflictCopy(ascii(twin) + [UInt8](repeating: 0x1B, count: room - 1) + [last]))
                let name = copy.name(twin: ascii("name"))
                let text = String(decoding: name, as: UTF8.self)
                #expect(text.wholeMatch(of: /n.* \(conflict (%1B)+~[A-Za-z0-9_-]{8}\)/) != nil, "\(text)")
                #expect(name.count <= 255)
                names.insert(name)
            }
            #expect(names.count == 9)
        }
    }

    @Test("Names-7: of the two places of one addition, the one before the digits is marked")
    func places() throws {
        let end = try #require(ConflictCopy(ascii(Self.long + "~")))
        let middle = try #require(ConflictCopy(ascii("vaultfs.long~." + Self.digits)))
        let name = [UInt8](repeating: 0x61, count: 255)
        #expect(end.name(twin: name).suffix(13).elementsEqual(ascii(" (conflict ~)")))
        #expect(middle.name(twin: name).suffix(14).elementsEqual(ascii(" (conflict ~%)")))
    }

    @Test("Names-7: a name that would be too long is cut before a character, and differs from that of another file")
    func longNames() throws {
        let copy = try #require(ConflictCopy(ascii(Self.long + ".conflict1")))
        for length in 230...255 {
            let stem = String(repeating: "é", count: length / 2) + (length % 2 == 0 ? "" : "x")
            let name = ascii(stem + ".b")
            let shown = copy.name(twin: Array(name.suffix(255)))
            #expect((254...255).contains(shown.count) || shown.count == name.count + 21)
            #expect(String(validating: shown, as: UTF8.self) != nil || length == 254)
            #expect(shown.suffix(23).elementsEqual(ascii(" (conflict conflict1).b")))
        }
        let name = [UInt8](repeating: 0x61, count: 255)
        let other = try #require(ConflictCopy(ascii("vaultfs.long." + Self.digits.reversed() + ".conflict1")))
        #expect(copy.name(twin: name).suffix(30).starts(with: ascii("~Zz09Zz09 (conflict")))
        #expect(copy.name(twin: name) != other.name(twin: name))
    }

    @Test("Names-6: arbitrary bytes")
    func arbitrary() {
        func bytes(_ count: ClosedRange<Int>) -> [UInt8] {
            (0..<Int.random(in: count)).map { _ in UInt8.random(in: 1...255) }
        }
        for _ in 0..<500 {
            let start = [Self.short, Self.long, "vaultfs.long", ""].randomElement() ?? ""
            let rest = bytes(0...60)
            guard let copy = ConflictCopy(ascii(start) + rest) else { continue }
            let shown = copy.name(twin: bytes(1...255))
            #expect((1...255).contains(shown.count) && ConflictCopy.canHave(shown))
        }
    }
}
