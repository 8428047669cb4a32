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
        ])
    func refused(arguments: [String], message: String) throws {
        let result = try Command([Products.binary] + arguments).run()
        #expect(result.exitCode == 2 && result.errors == "vaultfs: \(message)\n", "\(result)")
    }
}
