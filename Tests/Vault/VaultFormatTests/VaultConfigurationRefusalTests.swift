import LinuxSystem
import Testing
import VaultFormat

/// Single changes of the text, all refused by the parser.
@Suite struct VaultConfigurationRefusalTests {
    let test: TestConfiguration

    init() throws { test = try TestConfiguration() }

    private func parsing(_ old: String, _ new: String, sourceLocation: SourceLocation = #_sourceLocation) throws
        -> FormatError?
    {
        let bytes = try #require(test.text(replacing: old, with: new), "no '\(old)'", sourceLocation: sourceLocation)
        return formatError("\(old) → \(new)", sourceLocation: sourceLocation) {
            _ = try VaultConfiguration.parse(bytes)
        }
    }

    @Test(
        "Syntax-1: anything but one JSON object in UTF-8 is refused",
        arguments: [
            "", " ", "\u{FEFF}{}", "[]", "1", "null", "\"a\"", "{", "}", "{]", "{} {}", "{},", "{\"a\"}", "{\"a\":}",
            "{\"a\":1,}",
            "{,}", "{a:1}", "{'a':1}", "{\"a\":1 \"b\":2}", "{\"a\":[1,]}", "{\"a\":[1 2]}", "{\"a\":nul}",
            "{\"a\":nulll}",
            "{\"a\":True}", "{\"a\":NaN}", "{\"a\":1}//", "{\"a\"/**/:1}", "{\"a\":\"", "{\"a\":\"\\", "{\"a\":\"\\u00",
            "\0{}",
        ])
    func notJSON(document: String) {
        #expect(formatError { _ = try VaultConfiguration.parse(ascii(document)) }?.kind == .malformed)
    }

    @Test("Syntax-1: invalid UTF-8 and control characters in strings are refused")
    func encoding() throws {
        let invalid: [[UInt8]] = [
            [0xFF], [0xC3], [0xC0, 0x80], [0xED, 0xA0, 0x80], [0xF5, 0x80, 0x80, 0x80], [0x80], [0x0A], [0x00], [0x1F],
        ]
        let bytes = test.configuration.serialized()
        let start = try #require(bytes.indices.first { bytes[$0...].starts(with: ascii("usb stick")) })
        for inserted in invalid {
            let changed = Array(bytes[..<start]) + inserted + Array(bytes[start...])
            #expect(formatError("\(inserted)") { _ = try VaultConfiguration.parse(changed) }?.kind == .malformed)
        }
    }

    @Test("Syntax-1: depth and size are bounded")
    func bounds() throws {
        let deep = ascii(String(repeating: "[", count: 500_000))
        #expect(formatError { _ = try VaultConfiguration.parse(deep) }?.reason.contains("nested") == true)
        let deepObjects = ascii(String(repeating: "{\"a\":", count: 100_000))
        #expect(formatError { _ = try VaultConfiguration.parse(deepObjects) }?.reason.contains("nested") == true)
        let padded = test.configuration.serialized() + [UInt8](repeating: 0x20, count: 1 << 20)
        #expect(formatError { _ = try VaultConfiguration.parse(padded) }?.reason.contains("more than") == true)
        let large = Array(padded.prefix(1 << 20))
        #expect(try VaultConfiguration.parse(large) == test.configuration)
    }

    @Test("Syntax-2: duplicate keys are refused at every level, however they are spelt")
    func duplicates() throws {
        for (old, new) in [
            ("\"version\": 1", "\"version\": 1, \"version\": 1"), ("\"id\": 1", "\"id\": 1, \"id\": 1"),
            ("\"logN\": 10", "\"logN\": 10, \"logN\": 10"), ("\"version\": 1", #""version": 1, "\u0076ersion": 2"#),
            ("\"version\": 1", "\"version\": 1, \"x\": 1, \"x\": 1"),
        ] {
            #expect(try parsing(old, new)?.reason.contains("duplicate member") == true)
        }
    }

    @Test("Syntax-3: unknown keys are refused at every level")
    func unknownKeys() throws {
        for (old, new) in [
            ("\"version\": 1", "\"version\": 1, \"comment\": null"), ("\"id\": 1", "\"id\": 1, \"comment\": []"),
            ("\"logN\": 10", "\"logN\": 10, \"comment\": {}"), ("\"version\": 1", "\"version\": 1, \"\": true"),
            ("\"name\": \"hkdf-sha256\"", "\"name\": \"hkdf-sha256\", \"logN\": 10"),
        ] {
            #expect(try parsing(old, new)?.reason.contains("unknown key") == true)
        }
    }

    @Test(
        "Syntax-3: every key must exist, with exactly this spelling",
        arguments: [
            "format", "version", "vault", "chunkSize", "features", "generation", "slots", "mac", "id", "kind", "label",
            "created",
            "expires", "kdf", "sealed", "name", "logN", "r", "p", "salt",
        ])
    func missingKeys(key: String) throws {
        #expect(try parsing("\"\(key)\":", "\"\(key.uppercased())\":")?.reason.contains("no \(key)") == true)
        #expect(try parsing("\"\(key)\":", "\"\(key) \":") != nil)
        #expect(try parsing("\"\(key)\":", "\"\(key)\": {}, \"x\":") != nil)
    }

    @Test("Syntax-3: a key that is only canonically equivalent is another key")
    func equivalentKeys() throws {
        _ = try parsing("\"kind\":", "\"\u{212A}ind\":")
        _ = try parsing("\"mac\":", "\"mac\u{301}\":")
    }

    @Test(
        "Syntax-4: integers have one spelling",
        arguments: [
            "01", "1.0", "1e0", "1E0", "+1", "-1", "-0", "0x1", "1_0", "\"1\"", "true", "null", "[]",
            "18446744073709551616",
        ])
    func integers(spelling: String) throws {
        for key in ["version", "generation", "id"] {
            #expect(try parsing("\"\(key)\": 1", "\"\(key)\": \(spelling)") != nil)
        }
    }

    @Test(
        "Syntax-5: times have one spelling and exist",
        arguments: [
            "2026-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z",
            "2026-01-01t00:00:00Z",
            "2026-01-01T00:00:00z", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.0Z",
            "2026-1-01T00:00:00Z",
            "2026-01-01T00:00:00", "", "-", "2026-01-01T00:00:0éZ",
        ])
    func times(spelling: String) throws {
        #expect(try parsing("2026-02-28T00:00:00Z", spelling)?.reason.contains("not a time") == true)
        #expect(try parsing("2030-01-31T23:59:59Z", spelling)?.reason.contains("not a time") == true)
    }

    @Test(
        "Syntax-5: leap days of leap years are times",
        arguments: ["2024-02-29T00:00:00Z", "2000-02-29T23:59:59Z", "0000-12-31T00:00:00Z"])
    func leapDays(spelling: String) throws {
        let bytes = try #require(test.text(replacing: "2026-02-28T00:00:00Z", with: spelling))
        #expect(try VaultConfiguration.parse(bytes).slots[0].created == spelling)
    }

    @Test(
        "Syntax-6: half a surrogate pair and unknown escapes are refused",
        arguments: [
            #"\ud834"#, #"\udd1e"#, #"\ud834x"#, #"\ud834\u0041"#, #"\ud834\ud834"#, #"\x41"#, #"\u12"#, #"\u12g4"#,
            #"\'"#,
        ])
    func wrongEscapes(spelling: String) throws {
        #expect(try parsing("usb stick", spelling)?.kind == .malformed)
    }

    @Test("Values-1, Conventions-3: the error for values of a newer version says so")
    func newer() throws {
        for (old, new) in [
            ("\"version\": 1", "\"version\": 2"), ("\"version\": 1", "\"version\": 2, \"unheard\": [true]"),
            ("\"features\": []", "\"features\": [\"later\"]"), ("\"kind\": \"recovery\"", "\"kind\": \"token\""),
            ("\"name\": \"scrypt\"", "\"name\": \"argon2id\""), ("\"kind\": \"recovery\"", "\"kind\": \"Recovery\""),
        ] {
            let error = try parsing(old, new)
            #expect(error?.kind == .newerVersion)
            #expect(error?.reason.contains("written by a newer version") == true)
        }
        #expect(try parsing("\"version\": 1", "\"version\": 0")?.kind == .malformed)
        #expect(try parsing("\"features\": []", "\"features\": [1]")?.kind == .malformed)
        #expect(try parsing("\"format\": \"vaultfs\"", "\"format\": \"other\"")?.reason.contains("not vaultfs") == true)
    }

    @Test(
        "Values-2: chunk sizes",
        arguments: ["0", "1", "2048", "4095", "4097", "6144", "2097152", "18446744073709551615"])
    func chunkSizes(size: String) throws {
        #expect(try parsing("\"chunkSize\": 4096", "\"chunkSize\": \(size)")?.reason.contains("chunkSize") == true)
    }

    @Test("Values-3: ids are unique, and there are 1…64 slots")
    func slots() throws {
        #expect(try parsing("\"id\": 2", "\"id\": 1")?.reason.contains("not unique") == true)
        #expect(try parsing("\"id\": 2", "\"id\": 18446744073709551615") != nil)
        let serialized = text(test.configuration.serialized())
        let start = try #require(serialized.firstRange(of: "\"slots\": [")).upperBound
        let end = try #require(serialized.firstRange(of: "],\n  \"mac\"")).lowerBound
        let first = serialized[start..<end].split(separator: "},\n    {")[0] + "}"
        for count in [0, 1, 64, 65] {
            let slots = (0..<count).map { first.replacing("\"id\": 1", with: "\"id\": \($0)") }
            let changed = serialized[..<start] + slots.joined(separator: ",") + serialized[end...]
            let parsed = Result { try VaultConfiguration.parse(ascii(String(changed))) }
            #expect(((try? parsed.get()) != nil) == (count == 1 || count == 64), "\(count)")
        }
    }

    @Test(
        "Values-4: scrypt parameters outside the bounds are refused before anything is derived",
        arguments: [
            (9, 8, 1), (21, 1, 1), (0, 8, 1), (10, 0, 1), (10, 33, 1), (10, 8, 0), (10, 8, 17), (21, 8, 1), (20, 9, 1),
            (20, 8, 2), (20, 1, 2),
            (18, 32 + 1, 1), (18, 32, 2), (19, 32, 1), (.max, 8, 1), (10, .max, 1), (10, 8, .max),
        ])
    func scryptBounds(logN: Int, r: Int, p: Int) throws {
        let parameters = "\"logN\": \(logN), \"r\": \(r), \"p\": \(p)"
        #expect(try parsing("\"logN\": 10, \"r\": 8, \"p\": 1", parameters)?.reason.contains("kdf") == true)
        #expect(formatError { _ = try ScryptCost(logN: logN, r: r, p: p) }?.kind == .invalidValue)
    }

    @Test(
        "Values-4: exactly the work of 1 GiB is allowed",
        arguments: [(20, 8, 1), (18, 32, 1), (16, 8, 16), (20, 1, 1), (10, 1, 1)])
    func scryptLimit(logN: Int, r: Int, p: Int) throws {
        let parameters = "\"logN\": \(logN), \"r\": \(r), \"p\": \(p)"
        let bytes = try #require(test.text(replacing: "\"logN\": 10, \"r\": 8, \"p\": 1", with: parameters))
        #expect(throws: Never.self) { try VaultConfiguration.parse(bytes) }
    }

    @Test("Values-5, Conventions-1: byte strings have their sizes, in canonical base64url")
    func byteStrings() throws {
        for (key, count) in [("salt", 32), ("sealed", 48), ("mac", 32)] {
            let good = text(Base64.url.encode([UInt8](repeating: 0xFF, count: count)))
            let short = text(Base64.url.encode([UInt8](repeating: 0xFF, count: count - 1)))
            let long = text(Base64.url.encode([UInt8](repeating: 0xFF, count: count + 1)))
            for wrong in [
                short, long, good + "=", good + "\\n", "", good.dropLast() + "/",
                count == 32 ? good.dropLast() + "9" : "A",
            ] {
                let error = try parsing("\"\(key)\": \"", "\"\(key)\": \"\(wrong)\", \"x\": \"")
                #expect(error?.reason.contains("\(key) is not") == true)
            }
        }
    }

    @Test("Values-6: the vault id has 32 lower-case digits")
    func vaultID() throws {
        let hex = test.configuration.vault.hex
        for wrong in [
            "", String(hex.dropLast()), hex + "0", String(repeating: "A", count: 32), String(repeating: "-", count: 32),
        ] {
            #expect(try parsing(hex, wrong)?.reason.contains("vault") == true)
        }
    }

    @Test("Slots-1: a kind goes with its key derivation")
    func kinds() throws {
        #expect(
            try parsing("\"kind\": \"passphrase\"", "\"kind\": \"keyfile\"")?.reason.contains("does not go") == true)
        #expect(
            try parsing("\"kind\": \"keyfile\"", "\"kind\": \"passphrase\"")?.reason.contains("does not go") == true)
    }
}
