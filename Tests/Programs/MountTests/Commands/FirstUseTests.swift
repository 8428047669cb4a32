import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// A new user's first commands: the output of `mount`, `--quiet`, and a mountpoint made by `mount`.
    @Suite struct FirstUse {
        private func shell(_ vault: VaultUnderTest, _ script: String) throws -> CommandResult {
            let command = ["sh", "-c", "v=$0; vault=$1; pass=$2; cd $3; \(script)", vault.account.binary, vault.vault]
            return try vault.account.run(command + [vault.passfile, vault.plain])
        }

        @Test("mount says what it did, and nothing with -q before or after the command", arguments: Settings.accounts)
        func output(setting: Setting) throws {
            let vault = try VaultUnderTest(setting.account())
            let loud = try vault.tryMount(["--ro"])
            #expect(loud.output == "\(vault.mountpoint): mounted from \(vault.vault), read-only\n", "\(loud)")
            let refused = try vault.account.run(["touch", "\(vault.mountpoint)/f"])
            #expect(refused.errors.contains("Read-only file system"), "\(refused)")
            try vault.unmount()
            #expect(try vault.tryMount(["-q"]).output.isEmpty)
            for command in [["lock"], ["--quiet", "unlock"], ["sync", "-q"]] {
                let quiet = command.contains { $0.hasPrefix("-") } ? command : ["-q"] + command
                let result = try vault.vaultfs(quiet + [vault.mountpoint]).succeeded()
                #expect(result.output.isEmpty && result.errors.isEmpty, "\(result)")
            }
            // The status is printed because the user asked for it.
            #expect(try vault.vaultfs(["-q", "status", vault.mountpoint]).output.contains("unlocked"))
            try vault.unmount()
            // An error is printed. `-q` after `--` is a name.
            let failed = try vault.vaultfs(["lock", "--", "-q"])
            #expect(failed.exitCode != 0 && failed.errors.contains("-q"), "\(failed)")
        }

        @Test("a mountpoint that mount made is guarded, and unmount removes it", arguments: Settings.accounts)
        func madeMountpoint(setting: Setting) throws {
            let vault = try VaultUnderTest(setting.account())
            let mount = "$v mount $vault made --passfile $pass"
            let ended = try shell(vault, "\(mount) && echo x >made/f && $v unmount made && ls")
            #expect(ended.exitCode == 0 && !ended.output.contains("made\n"), "\(ended)")
            // After another program's unmount the mountpoint is left. Only root can write to it, and `mount` takes it
            // again. The daemon ends shortly after.
            let again = "until \(mount); do sleep 0.05; done"
            let script = "\(mount) && fusermount3 -u made && stat -c %a made && \(again) && cat made/f"
            let left = try shell(vault, "\(script) && $v unmount made")
            #expect(left.exitCode == 0 && left.output.contains("\n500\n") && left.output.contains("\nx\n"), "\(left)")
            // A directory of the user's own stays.
            let own = try shell(
                vault, "mkdir own && $v mount $vault own --passfile $pass && $v unmount own && stat -c %a own")
            #expect(own.output.hasSuffix("\n755\n") || own.output.hasSuffix("\n700\n"), "\(own)")
        }
    }
}
