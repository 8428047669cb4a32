import Testing
import VaultCrypto
import VaultFormat

@Suite struct SecretTests {
    private static let zeroKey = Array(repeating: "00000000", count: 8).joined(separator: "-") + "-66687aad"

    @Test(
        "Secrets-1: a passphrase is its bytes without one trailing LF",
        arguments: [
            ("abc", "abc"), ("abc\n", "abc"), ("abc\n\n", "abc\n"), ("abc\r\n", "abc\r"), (" a ", " a "),
            ("e\u{301}", "e\u{301}"),
        ])
    func passphrase(given: String, used: String) throws {
        let secret = try SlotSecret.passphrase(ascii(given))
        #expect(secret.kind == .passphrase)
        #expect(secret.bytes.revealed == ascii(used))
    }

    @Test("Secrets-1: an empty passphrase is refused", arguments: ["", "\n"])
    func emptyPassphrase(given: String) {
        #expect(formatError { _ = try SlotSecret.passphrase(ascii(given)) }?.kind == .invalidValue)
    }

    @Test("Secrets-2: a keyfile has at least 32 bytes, and all of them count")
    func keyfile() throws {
        _ = formatError { _ = try SlotSecret.keyfile([UInt8](repeating: 1, count: 31)) }
        let contents = [UInt8](repeating: 1, count: 99) + ascii("\n")
        #expect(try SlotSecret.keyfile(contents).bytes.revealed == contents)
        let short = SecretBytes.copy([UInt8](repeating: 1, count: 31))
        for kind in [SlotKind.keyfile, .recovery] { _ = formatError { _ = try SlotSecret(kind: kind, bytes: short) } }
    }

    @Test("Secrets-3: a recovery key is shown with its check digits and parses again")
    func recoveryText() throws {
        #expect(RecoveryKey.text(.copy([UInt8](repeating: 0, count: 32))) == Self.zeroKey)
        for _ in 0..<20 {
            let key = try SecretBytes.random(count: 32)
            let shown = RecoveryKey.text(key)
            #expect(shown.count == 80)
            #expect(try RecoveryKey.parse(ascii(shown)).revealed == key.revealed)
            #expect(try SlotSecret.recovery(ascii(shown)).bytes.revealed == key.revealed)
        }
    }

    @Test("Secrets-3: case, separators and white space do not matter")
    func spelling() throws {
        let key = SecretBytes.copy((0..<32).map { UInt8($0 * 7) })
        let shown = RecoveryKey.text(key)
        let digits = shown.filter { $0 != "-" }
        for spelling in [shown.uppercased(), digits, " \(shown)\r\n", digits.map { "\($0)-\t" }.joined()] {
            #expect(try RecoveryKey.parse(ascii(spelling)).revealed == key.revealed)
        }
    }

    @Test("Secrets-3: a wrong digit, digits missing or too many, and other characters are refused")
    func wrong() {
        let digits = Array(ascii(Self.zeroKey))
        for index in digits.indices where digits[index] != UInt8(ascii: "-") {
            var wrong = digits
            wrong[index] = wrong[index] == UInt8(ascii: "7") ? UInt8(ascii: "1") : UInt8(ascii: "7")
            _ = formatError { _ = try RecoveryKey.parse(wrong) }
        }
        for count in digits.indices { _ = formatError { _ = try RecoveryKey.parse(Array(digits[..<count])) } }
        for more in ["0", "00", "g", "_", "é", "\0"] {
            _ = formatError { _ = try RecoveryKey.parse(digits + ascii(more)) }
        }
        let error = formatError { _ = try RecoveryKey.parse(ascii("correct horse")) }
        #expect(error?.reason == "recovery key: not 9 groups of 8 hexadecimal digits, such as 0123abcd-…")
    }
}
