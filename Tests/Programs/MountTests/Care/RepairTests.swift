import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// `vaultfs verify --repair` as a user runs it.
    @Suite struct Repairs {
        private static let damage = [
            "directory_record dir flip 40", "extend whole 1", "cut_chunks other 3", "rename_flip dir2/x",
        ]

        private func damaged() throws -> VaultUnderTest {
            let (vault, _) = try Integrity.prepared()
            for change in Self.damage { try vault.tamper(change.split(separator: " ").map(String.init)) }
            try Data().write(to: URL(fileURLWithPath: "\(vault.vault)/vaultfs.tmp.1f"))
            return vault
        }

        private func verify(_ vault: VaultUnderTest, _ options: [String], launcher: [String] = []) throws
            -> CommandResult
        {
            try vault.account.run(
                launcher + [vault.account.binary, "verify", vault.vault, "--passfile", vault.passfile] + options)
        }

        private func state(_ vault: VaultUnderTest) throws -> String {
            try Command(["sh", "-c", "cd \(vault.vault) && find . -printf '%p %s %T@ %C@\\n' | sort"]).run().output
        }

        @Test("nothing changes without --repair, without a terminal, or if the answer is no")
        func refusals() throws {
            let vault = try damaged()
            let before = try state(vault)
            #expect(try verify(vault, []).exitCode == Failure.damageFound.rawValue)
            expectFailure(
                try verify(vault, ["--repair"], launcher: ["setsid", "-w"]), .usage, naming: "terminal", "--yes")
            #expect(try verify(vault, ["--yes"]).exitCode == Failure.usage.rawValue)
            let asked = try verify(
                vault, ["--repair"],
                launcher: [Products.python, "\(Products.support)/Programs/commands/answer.py", "no"])
            #expect(asked.exitCode == Failure.damageFound.rawValue, "\(asked)")
            #expect(asked.output.contains("repair: whole: cut it back"), "\(asked)")
            #expect(asked.output.contains("nothing was changed"), "\(asked)")
            #expect(asked.output.contains("of damage left: repair it with --repair, or "), "\(asked)")
            #expect(try state(vault) == before)
            try vault.mount()
            expectFailure(try verify(vault, ["--repair", "--yes"]), .inUse, naming: vault.mountpoint)
        }

        @Test("after a prompt and the answer yes: no damage is left, and everything can be read")
        func repaired() throws {
            let vault = try damaged()
            try verify(
                vault, ["--repair"],
                launcher: [Products.python, "\(Products.support)/Programs/commands/answer.py", "y"]
            ).succeeded()
            let again = try verify(vault, ["--repair", "--yes"])
            #expect(again.exitCode == 0 && !again.output.contains("repair:"), "\(again)")
            #expect(try vault.read(["--require-sealed"]).exitCode == 0)
            try vault.mount()
            let script = """
                set -e; cd \(vault.mountpoint); [ "$(stat -c %s whole)" = 8192 ]; cat whole file other attributed >/dev/null
                [ "$(stat -c %s other)" = 12288 ]; [ ! -e dir ]; [ "$(stat -c %s lost+found/* | grep -cx 5000)" = 1 ]
                grep -qx x lost+found/*; echo more >>whole
                """
            try vault.account.run(["bash", "-c", script]).succeeded()
        }

        @Test("damage that cannot be repaired is listed, in JSON too")
        func left() throws {
            let vault = try damaged()
            try vault.tamper(["flip_record", "file", "2", "16"])
            let result = try verify(vault, ["--repair", "--yes", "--json"])
            #expect(result.exitCode == Failure.damageFound.rawValue, "\(result)")
            let report = try result.fields()
            let repairs = try #require(report["repairs"] as? [[String: Any]])
            #expect(
                Set(repairs.compactMap { $0["remedy"] as? String }) == [
                    "cutBack", "empty", "move", "remove", "sealRest",
                ])
            #expect(report["repaired"] as? Bool == true && repairs.allSatisfy { $0["reason"] == nil })
            let left = try #require(report["left"] as? [[String: Any]])
            #expect(left.map { $0["path"] as? String } == ["file"])
            #expect((report["leftSummary"] as? [String: Any])?["damage"] as? Int == 1)
            let advice = "put it back from a backup, or save the rest of it with 'vaultfs export --damaged'"
            #expect(result.errors.contains("1 finding of damage left: \(advice)"), "\(result)")
            #expect(try verify(vault, []).errors.contains("1 finding of damage: \(advice)"))
        }

        @Test("killed at many moments, the repair continues")
        func killed() throws {
            let vault = try damaged()
            for moment in 0..<16 {
                let process = try Command(
                    [vault.account.binary, "verify", vault.vault, "--passfile", vault.passfile, "--repair", "--yes"]
                ).start()
                _ = process.wait(timeout: .milliseconds(8 * moment))
                process.kill(SIGKILL)
                _ = process.wait(timeout: .seconds(20))
            }
            try verify(vault, ["--repair", "--yes"]).succeeded()
            #expect(try vault.read(["--require-sealed"]).exitCode == 0)
            try vault.mount()
            let sizes = try vault.account.run([
                "sh", "-c", "cd \(vault.mountpoint); stat -c %s * lost+found/* | sort -n",
            ])
            for size in ["2", "5000", "8192", "12288", "41083"] {
                #expect(sizes.output.contains("\(size)\n"), "\(sizes)")
            }
        }
    }
}
