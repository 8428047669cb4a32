import TestSupport
import Testing

@testable import vaultfs

/// Usage errors of values that the parser refuses.
@Suite struct UsageErrorTests {
    @Test(
        "a refused value is named with its option and the reason",
        arguments: [
            (
                ["mount", "v", "m", "--log-level", "x"],
                "--log-level 'x' is not one of debug, info, notice, warning, error, critical"
            ), (["mount", "v", "m", "--on-lock", "x"], "--on-lock 'x' is not one of refuse, forget"),
            (["view", "cbc", "s", "m", "--padding", "x"], "--padding 'x' is not one of pkcs7, none"),
            (
                ["--generate-completion-script", "xx"],
                "can't generate completion scripts for 'xx'; please use --generate-completion-script=<shell> with one of:"
                    + " zsh bash fish"
            ), (["mount", "v", "m", "--idle-lock", "3"], "--idle-lock '3' is not \(DurationArgument.form)"),
            (["mount", "v", "m", "--grace", "x"], "--grace 'x' is not \(DurationArgument.form)"),
            (["mount", "v", "m", "--cache-size", "x"], "--cache-size 'x' is not \(ByteSize.form)"),
            (["init", "v", "--scrypt-logn", "x"], "--scrypt-logn 'x' is not a whole number"),
            (["bench", "--jobs", "x", "v"], "--jobs 'x' is not numbers such as 1,4"),
            (["bench", "--block-sizes", "x", "v"], "--block-sizes 'x' is not sizes such as 4K,64K"),
            (["view", "cbc", "s", "m", "--iv", "x"], "--iv 'x' is not 32 hexadecimal digits"),
            (["view", "hls", "s", "m", "--key", "x"], "--key 'x' is not of the form URI=FILE"),
            (["mount", "", "m"], "<vault> is empty"),
        ])
    func refused(arguments: [String], message: String) throws {
        let result = try Command([Products.binary] + arguments).run()
        #expect(result.exitCode == 2 && result.errors == "vaultfs: \(message)\n", "\(result)")
    }

    @Test("a long argument is cut, and control characters are replaced", arguments: [false, true])
    func cut(isLong: Bool) throws {
        let (given, shown) = isLong ? (long(5000), long(256) + "…") : ("a\nb\u{1B}", "a?b?")
        for (arguments, message) in [
            (["mount", "v", "m", "--cache-size", given], "--cache-size '\(shown)' is not \(ByteSize.form)"),
            (["mount", "v", "m", "--cache-size=\(given)"], "--cache-size '\(shown)' is not \(ByteSize.form)"),
            (["mount", "v", "m", "-o", "cache_size=\(given)"], "--cache-size '\(shown)' is not \(ByteSize.form)"),
            (["lock", given, given], "unexpected argument '\(shown)'"), ([given], "unknown command '\(shown)'"),
            (["info", given], shown),
        ] {
            let errors = try Command([Products.binary] + arguments).run().errors
            #expect(
                errors.contains(message) && errors.count < 700 && errors.split(separator: "\n").count == 1, "\(errors)")
        }
    }

    private func long(_ count: Int) -> String { String(repeating: "x", count: count) }
}
