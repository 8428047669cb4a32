import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Foreign entries in the vault's directory (Manual/Recovery.md). The mount and `verify` must agree on them.
    @Suite struct ForeignNames {
        /// The harmless kinds of findings.
        private static let notes = ["foreign", "leftover"]
        private static let digits = String(repeating: "A", count: 43)

        /// Commands to make an entry in the vault's directory, its name, and true if it is damage. `$f`, `$g`, `$d` and
        /// `$l` are the entries of two files, a directory with a file, and a link; `$i` the entry of the file in it.
        private static let table: [(make: String, name: String, isDamage: Bool)] = [
            ("touch notes.txt", "notes.txt", false),
            ("mkdir .stfolder; cp $f .stfolder/$f", ".stfolder", false),
            ("cp $f .hidden", ".hidden", false),
            ("mkdir photos; touch photos/a photos/b", "photos", false),
            ("ln -s /elsewhere shortcut", "shortcut", false),
            ("mkfifo pipe", "pipe", false),
            ("cp $f \(digits).sync-conflict-20261123", "\(digits).sync-conflict-20261123", true),
            ("touch \(digits).txt", "\(digits).txt", false),
            ("cp vaultfs.json vaultfs.json.bak", "vaultfs.json.bak", false),
            ("cp vaultfs.json vaultfs.sync-conflict.json", "vaultfs.sync-conflict.json", false),
            ("cp $f vaultfs.other", "vaultfs.other", false),
            ("touch vaultfs.long.short", "vaultfs.long.short", false),
            ("touch $(printf 'n%.0s' {1..255})", String(repeating: "n", count: 255), false),
            ("touch vaultfs.tmp.1f", "vaultfs.tmp.1f", false),
            ("touch vaultfs.long.orphan.name", "vaultfs.long.orphan.name", false),
            ("touch \(digits)", digits, true),
            ("mkdir \(digits)\(digits.prefix(21))", "\(digits)\(digits.prefix(21))", true),
            ("touch vaultfs.long.\(digits)", "vaultfs.long.\(digits)", true),
            ("mv $d/$i .", "$i", true),
            ("mv $g moved", "moved", true),
            ("mv $l link", "link", true),
            ("mv $d folder", "folder", true),
            ("mkdir above; cp $f above/x", "above", true),
        ]

        @Test("a table of names")
        func agreement() throws {
            let vault = try VaultUnderTest().mounted()
            let names = ["f", "g", "d", "l"]
            var entries: [String: String] = [:]
            let seen = try Set(entriesOf(vault.vault))
            for (name, make) in zip(names, ["echo 1 >f", "echo 2 >g", "mkdir d", "ln -s target l"]) {
                let before = try Set(entriesOf(vault.vault)).union(seen)
                try vault.account.run(["sh", "-ec", "cd $1; \(make)", "sh", vault.mountpoint]).succeeded()
                entries[name] = try entriesOf(vault.vault).first { !before.contains($0) }
            }
            let directory = "\(vault.vault)/\(entries["d"] ?? "")"
            try vault.account.run(["sh", "-ec", "echo 3 >$1/d/inner", "sh", vault.mountpoint]).succeeded()
            entries["i"] = try entriesOf(directory).first { $0 != "vaultfs.dir" }
            try #require(entries.count == names.count + 1)
            try vault.unmount()
            let variables = entries.map { "\($0)=\($1)" }.joined(separator: "\n")
            // An encrypted name may begin with "-".
            let tools = "cp() { command cp -- \"$@\"; }\nmv() { command mv -- \"$@\"; }\n"
            let script = "set -e\ncd $1\n\(variables)\n\(tools)" + Self.table.map(\.make).joined(separator: "\n")
            try vault.account.run(["bash", "-c", script, "bash", vault.vault]).succeeded()

            let result = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile])
            #expect(result.exitCode == Failure.damageFound.rawValue)
            let findings = result.output.split(separator: "\n").map { $0.split(separator: ": ").map(String.init) }
            try vault.mount()
            defer { try? vault.unmount() }
            let shown = try vault.account.run(["ls", "-A", vault.mountpoint]).succeeded().output
            #expect(shown == "f\n")
            let problems = try #require(try vault.status()["problems"] as? [String])
            for (_, pattern, isDamage) in Self.table {
                var name = pattern
                for (variable, entry) in entries { name = name.replacingOccurrences(of: "$\(variable)", with: entry) }
                let kinds = findings.filter { $0.count > 1 && $0[1] == name }.map { $0[0] }
                #expect(!kinds.isEmpty, "\(pattern): verify says nothing\n\(result)")
                #expect(kinds.contains { !Self.notes.contains($0) } == isDamage, "\(pattern): verify: \(kinds)")
                let line = "damaged: encrypted path \(name): its name is damaged, or of another directory"
                #expect(problems.contains(line) == isDamage, "\(pattern): the mount says: \(problems)")
            }
            #expect(problems.count == Self.table.count { $0.isDamage })
        }

        private func entriesOf(_ directory: String) throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: directory)
        }
    }
}
