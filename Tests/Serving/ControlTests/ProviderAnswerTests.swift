import TestSupport
import Testing
import VaultCrypto

@testable import Control

/// The output of a key provider, another program, so it can be anything.
@Suite struct ProviderAnswerTests {
    private func parse(_ text: String) -> ProviderAnswer? { ProviderAnswer.parse(Array(text.utf8)) }

    @Test("a secret of each kind", arguments: ["passphrase", "keyfile"])
    func secrets(kind: String) {
        // 32 times "a".
        let bytes = "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="
        let answer = parse(
            "\n {\"secret\": {\"kind\": \"\(kind)\", \"bytes\": \"\(bytes)\"}, \"more\": 1}\n")
        guard case .secret(let secret) = answer else {
            Issue.record("refused")
            return
        }
        #expect(secret.kind == kind)
        #expect(secret.bytes.withUnsafeBytes { Array($0) } == [UInt8](repeating: UInt8(ascii: "a"), count: 32))
    }

    @Test("a refusal")
    func refusal() {
        guard case .refused(let reason) = parse("{\"refused\": \"no card\"}") else {
            Issue.record("not refused")
            return
        }
        #expect(reason == "no card")
    }

    @Test(
        "anything else is no answer",
        arguments: [
            "", "{", "null", "[]", "{}", "\"c2VjcmV0\"", "{\"secret\": \"c2VjcmV0\"}", "{\"refused\": 3}",
            "{\"secret\": {\"kind\": \"passphrase\", \"bytes\": \"c2VjcmV0\"}, \"refused\": \"c2VjcmV0\"}",
            "{\"secret\": {\"kind\": \"passphrase\", \"bytes\": \"c2VjcmV0!\"}}",
            "{\"secret\": {\"kind\": \"passphrase\", \"byte\\u0073\": \"c2VjcmV0\"}}",
            "{\"secret\": {\"kind\": \"passphrase\", \"bytes\": \"c2VjcmV0\", \"bytes\": \"c2VjcmV0\"}}",
            "{\"secret\": {\"kind\": \"passphrase\", \"bytes\": \"c2VjcmV0",
        ])
    func nonsense(text: String) { #expect(parse(text) == nil) }

    @Test("any bytes")
    func fuzz() {
        var generator = SeededGenerator(seed: 6)
        let pieces = [
            "{", "}", "\"secret\"", ":", "\"bytes\"", "\"kind\"", "\"passphrase\"", "\"YQ==\"", ",", "\\", "\"", "\0",
            "é",
        ]
        for _ in 0..<2000 {
            let text = (0..<Int.random(in: 0..<14, using: &generator)).compactMap { _ in
                pieces.randomElement(using: &generator)
            }
            _ = parse(text.joined())
        }
    }
}
