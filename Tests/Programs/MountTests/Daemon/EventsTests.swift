import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// `vaultfs events --all`.
    @Suite struct AllEvents {
        @Test("mounts that are there, and mounts that come later, until nobody reads")
        func all() throws {
            let vault = try VaultUnderTest()
            let (second, other) = ("\(vault.plain)/second", "\(vault.plain)/other")
            try vault.account.run(["mkdir", second, other]).succeeded()
            try vault.vaultfs(
                ["init", other, "--passfile", vault.passfile, "--scrypt-logn", "10", "--no-recovery-key"]
            ).succeeded()
            try vault.mount()
            let process = try vault.start(["events", "--all", "--json"])
            defer { process.kill(SIGKILL) }
            // Skip other events, because root also follows the mounts of tests running at the same time.
            func seen(_ wanted: [String]) throws {
                try poll("\(wanted)", timeout: .seconds(20)) {
                    var rest = wanted[...]
                    for event in lines() where event == rest.first { rest.removeFirst() }
                    return rest.isEmpty
                }
            }
            func lines() -> [String] {
                let names = [vault.mountpoint: "first", second: "second"]
                return process.output.split(separator: "\n").compactMap { line in
                    let object = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
                    guard let event = object?["event"] as? String, let path = object?["mountpoint"] as? String else {
                        return nil
                    }
                    return names[path].map { "\(event) \($0)" }
                }
            }
            try seen(["state first"])
            try vault.vaultfs(["mount", other, second, "--passfile", vault.passfile]).succeeded()
            defer { _ = try? vault.account.run(["fusermount3", "-uz", second]) }
            try seen(["state first", "mounted second", "state second"])
            try vault.vaultfs(["lock", second]).succeeded()
            try vault.vaultfs(["unlock", second]).succeeded()
            try vault.vaultfs(["unmount", second]).succeeded()
            try seen([
                "state first", "mounted second", "state second", "will-lock second", "did-lock second",
                "will-unlock second", "did-unlock second", "unmounted second",
            ])
            // Mount at the same mountpoint again.
            try vault.vaultfs(["mount", other, second, "--passfile", vault.passfile]).succeeded()
            try seen(["unmounted second", "mounted second", "state second"])
            try vault.vaultfs(["unmount", second]).succeeded()
            try vault.unmount()
            try seen(["state first", "unmounted first"])
            #expect(!lines().contains("mounted first"))
            #expect(process.wait(timeout: .zero) == nil)
        }

        @Test("it ends when nobody reads its output")
        func reader() throws {
            let vault = try VaultUnderTest()
            let script = "{ timeout 20 \(vault.account.binary) events --all --json; echo $? >&2; } | sleep 0.2"
            let result = try vault.account.run(["bash", "-c", script], environment: vault.environment)
            #expect(result.errors == "0\n", "\(result)")
        }

        @Test("a killed daemon is no unmount", arguments: Settings.accounts)
        func killed(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            let process = try vault.start(["events", vault.mountpoint])
            defer { process.kill(SIGKILL) }
            try poll("the state") { process.output.hasSuffix(": now unlocked\n") }
            kill(try #require(vault.daemon), SIGKILL)
            #expect(process.wait(timeout: .seconds(20)) == Failure.mountpoint.rawValue)
            #expect(process.output.contains("\(vault.mountpoint): problem: its daemon has ended"), "\(process.output)")
            #expect(!process.output.contains("unmounted"))
            try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
        }

        @Test("events of one mount are words, and end with unmounted")
        func one() throws {
            let vault = try VaultUnderTest().mounted()
            let process = try vault.start(["events", vault.mountpoint])
            defer { process.kill(SIGKILL) }
            try poll("the state") { process.output.hasSuffix(" \(vault.mountpoint): now unlocked\n") }
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            try vault.vaultfs(["unlock", vault.mountpoint]).succeeded()
            try vault.unmount()
            #expect(process.wait(timeout: .seconds(20)) == 0)
            // Drop the times, and the durations of the lock.
            let lines = process.output.split(separator: "\n").map { $0.drop { $0 != " " } }
            let expected = [
                "now unlocked", "locking: a command asked for it", "locked", "unlocking", "unlocked", "unmounted",
            ]
            #expect(lines.count == expected.count, "\(process.output)")
            for (line, words) in zip(lines, expected) {
                #expect(line.hasPrefix(" \(vault.mountpoint): \(words)"), "\(process.output)")
            }
        }
    }
}
