import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@testable import Control

/// The output of a key provider. It comes from another program and can be anything.
@Suite struct ProviderAnswerTests {
    private func parse(_ text: String) throws -> ProviderAnswer { try ProviderAnswer.parse(Array(text.utf8)) }

    @Test("a secret of each kind", arguments: [SlotKind.passphrase, .keyfile, .recovery])
    func secrets(kind: SlotKind) throws {
        // 32 times "a".
        let bytes = "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="
        let answer = try parse(
            "\n {\"secret\": {\"kind\": \"\(kind.rawValue)\", \"bytes\": \"\(bytes)\"}, \"more\": 1}\n")
        guard case .secret(let secret) = answer else {
            Issue.record("refused")
            return
        }
        #expect(secret.kind == kind)
        #expect(secret.bytes.withUnsafeBytes { Array($0) } == [UInt8](repeating: UInt8(ascii: "a"), count: 32))
    }

    @Test("a refusal")
    func refusal() throws {
        guard case .refused(let reason) = try parse("{\"refused\": \"no card\"}") else {
            Issue.record("not refused")
            return
        }
        #expect(reason == "no card")
    }

    @Test(
        "anything else is an error that quotes nothing",
        arguments: [
            "", "{", "null", "[]", "{}", "\"c2VjcmV0\"", "{\"secret\": \"c2VjcmV0\"}", "{\"refused\": 3}",
            "{\"secret\": {\"kind\": \"passphrase\", \"bytes\": \"c2VjcmV0\"}, \"refused\": \"c2VjcmV0\"}",
            "{\"secret\": {\"kind\": \"passphrase\", \"bytes\": \"c2VjcmV0!\"}}",
            "{\"secret\": {\"kind\": \"passphrase\", \"bytes\": \"\"}}",
            "{\"secret\": {\"kind\": \"other\", \"bytes\": \"c2VjcmV0\"}}",
            "{\"secret\": {\"kind\": \"keyfile\", \"bytes\": \"c2VjcmV0\"}}",
            "{\"secret\": {\"kind\": \"passphrase\", \"byte\\u0073\": \"c2VjcmV0\"}}",
            "{\"secret\": {\"kind\": \"passphrase\", \"bytes\": \"c2VjcmV0\", \"bytes\": \"c2VjcmV0\"}}",
            "{\"secret\": {\"kind\": \"passphrase\", \"bytes\": \"c2VjcmV0",
        ])
    func nonsense(text: String) throws {
        let error = try #require(throws: FormatError.self) { _ = try parse(text) }
        #expect(!error.reason.contains("c2VjcmV0") && !error.reason.isEmpty)
    }

    @Test("any bytes")
    func fuzz() throws {
        var generator = SeededGenerator(seed: 6)
        let pieces = [
            "{", "}", "\"secret\"", ":", "\"bytes\"", "\"kind\"", "\"passphrase\"", "\"YQ==\"", ",", "\\", "\"", "\0",
            "é",
        ]
        for _ in 0..<2000 {
            let text = (0..<Int.random(in: 0..<14, using: &generator)).compactMap { _ in
                pieces.randomElement(using: &generator)
            }
            _ = try? parse(text.joined())
        }
    }
}
