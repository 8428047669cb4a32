import Foundation
import TestSupport
import Testing

/// A way of encrypting files, and the view's options to show their original content.
struct ViewCase: Sendable, CustomTestStringConvertible {
    var format: String
    var making: [String]
    var options: [String]
    /// True if the key is made from a passphrase and each file's salt.
    var isSalted = false

    var testDescription: String { "\(format): \(making.prefix(4).joined(separator: " "))" }

    static let vector = "000102030405060708090a0b0c0d0e0f"
    static let lengths = [0, 1, 15, 16, 17, 4079, 4095, 4096, 4097, 65536, 1_000_003].map(String.init)

    /// `openssl enc -K -iv`. The key file has hexadecimal digits.
    static let enc = ["aes-128-cbc", "aes-192-cbc", "aes-256-cbc"].map { cipher in
        ViewCase(
            format: "cbc", making: ["enc", cipher] + lengths,
            options: ["--cipher", cipher, "--iv", vector, "--key-file", "KEYS/hex"])
    }

    /// `openssl enc -pass`, by options of `openssl` and vaultfs.
    static let salted: [ViewCase] = [
        ("aes-128-cbc", "-pbkdf2", ["--pbkdf2"]),
        ("aes-192-cbc", "-pbkdf2 -iter 10000 -md sha512", ["--iter", "10000", "--md", "sha512"]),
        ("aes-256-cbc", "-pbkdf2 -md md5", ["--pbkdf2", "--md", "md5"]),
        ("aes-256-cbc", "-pbkdf2 -iter 600000", ["--pbkdf2-iterations", "600000"]),
        ("aes-128-cbc", "-md md5", ["--digest", "md5"]),
        ("aes-192-cbc", "-md sha256", ["--digest", "sha256"]),
        ("aes-256-cbc", "-md sha512", ["--digest", "sha512"]),
        ("aes-256-cbc", "", []),
        ("aes-256-cbc", "-pbkdf2 -iv \(vector)", ["--pbkdf2", "--iv", vector]),
    ].map { cipher, making, options in
        ViewCase(
            format: "openssl",
            making: ["salted", cipher, making] + (making.contains("600000") ? ["0", "70000"] : lengths),
            options: ["--cipher", cipher, "--passfile", "PASSFILE"] + options, isSalted: true)
    }

    /// Python's cryptography. The key file is binary.
    static let cbc = [
        ViewCase(
            format: "cbc", making: ["cbc-with-vector", "aes-256-cbc"] + lengths,
            options: ["--iv-in-file", "--key-file", "KEYS/binary"]),
        ViewCase(
            format: "cbc", making: ["cbc", "aes-128-cbc", "none", "0", "16", "4096", "1000000"],
            options: ["--padding", "none", "--iv", vector, "--key-file", "KEYS/binary"]),
    ]

    /// Returns a case for chunks: the last one full, short, of one byte, or the only one and short.
    private static func chunks(_ size: Int, _ cipher: String, full: Int) -> ViewCase {
        let lengths = [0, 1, size - 1, size, size + 1, full * size, full * size + 1, full * size + size / 2]
        return ViewCase(
            format: "cbc-chunks",
            making: ["chunks", "\(size)", cipher, "pkcs7"] + lengths.filter { $0 >= 0 }.map(String.init),
            options: ["--chunk-size", "\(size)", "--iv", vector, "--key-file", "KEYS/binary"])
    }

    static let chunks = [
        chunks(4096, "aes-128-cbc", full: 30), chunks(1000, "aes-192-cbc", full: 77),
        chunks(10_000, "aes-256-cbc", full: 20), chunks(65536, "aes-256-cbc", full: 5),
        chunks(17, "aes-128-cbc", full: 900),
        ViewCase(
            format: "cbc-chunks",
            making: ["chunks", "16777216", "aes-128-cbc", "pkcs7", "16777216", "16777217", "40000000"],
            options: ["--iv", vector, "--key-file", "KEYS/hex"]),
        ViewCase(
            format: "cbc-chunks",
            making: ["chunks", "4096", "aes-128-cbc", "none", "0", "4096", "8192", "40960", "8208"],
            options: ["--chunk-size", "4K", "--padding", "none", "--iv", vector, "--key-file", "KEYS/binary"]),
        ViewCase(
            format: "cbc-chunks", making: ["aescrypt", "1048576", "0", "1", "1048576", "3000000"],
            options: ["--chunk-size", "1M", "--kdf", "sha256", "--passfile", "PASSFILE"]),
    ]

    func options(_ view: ViewUnderTest) -> [String] {
        options.map {
            $0.replacingOccurrences(of: "KEYS", with: view.keys).replacingOccurrences(
                of: "PASSFILE", with: view.passfile)
        }
    }

    func mount(_ view: ViewUnderTest) throws {
        try view.make(making[0], Array(making.dropFirst()))
        try view.mount(format, options(view))
    }
}

extension PlainMountTests {
    /// Files encrypted by other programs. The mount must show their original content.
    @Suite struct ViewFormats {
        private func compare(_ what: ViewCase, _ account: Account = .current) throws {
            let view = try ViewUnderTest(account)
            try what.mount(view)
            try view.program(
                "views/view_compare.py",
                [view.mountpoint, view.originals] + (what.isSalted ? ["--sizes-after-open"] : [])
            ).succeeded()
            #expect(try view.problems().isEmpty)
            try view.unmount()
        }

        @Test("openssl enc -K -iv", arguments: ViewCase.enc)
        func enc(what: ViewCase) throws { try compare(what) }

        @Test("openssl enc -pass", arguments: ViewCase.salted)
        func salted(what: ViewCase) throws { try compare(what) }

        @Test("one stream", arguments: ViewCase.cbc)
        func cbc(what: ViewCase) throws { try compare(what) }

        @Test("chunks", arguments: ViewCase.chunks)
        func chunks(what: ViewCase) throws { try compare(what) }

        @Test("an ordinary user's mount", .enabled(if: Settings.hasOrdinaryUser, "takes a user"))
        func user() throws {
            let account = try Setting.userOnTmpfs.account()
            for what in [ViewCase.enc[0], ViewCase.chunks[0], ViewCase.salted[0]] { try compare(what, account) }
        }
    }
}
