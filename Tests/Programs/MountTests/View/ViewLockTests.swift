import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Locks of a view, with the same effect as on a vault.
    @Suite struct ViewLocks {
        /// The source of a view's keys, and the way to restore them after a lock that forgets.
        enum Keys: String, CaseIterable {
            case keyFile = "a key file"
            case command = "a key command"
            case openssl = "openssl's passphrase"
            case hashed = "a hashed passphrase"

            var needsPassphrase: Bool { self == .openssl || self == .hashed }

            func mount(_ view: ViewUnderTest, _ arguments: [String], launcher: [String] = []) throws {
                let (format, making, options) = recipe(view)
                try view.make(making[0], Array(making.dropFirst()))
                try view.mount(format, options + arguments, launcher: launcher)
            }

            private func recipe(_ view: ViewUnderTest) -> (format: String, making: [String], options: [String]) {
                let length = "300001"
                let cbc = ["cbc", "aes-256-cbc", "pkcs7", length]
                switch self {
                case .keyFile: return ("cbc", cbc, ["--iv", ViewCase.vector, "--key-file", "\(view.keys)/binary"])
                case .command:
                    return ("cbc", cbc, ["--iv", ViewCase.vector, "--key-command", "cat \(view.keys)/binary"])
                case .openssl:
                    return (
                        "openssl", ["salted", "aes-256-cbc", "-pbkdf2", length],
                        ["--pbkdf2-iterations", "10000", "--passfile", view.passfile]
                    )
                case .hashed:
                    return (
                        "cbc-chunks", ["aescrypt", "65536", length],
                        ["--chunk-size", "64K", "--kdf", "sha256", "--passfile", view.passfile]
                    )
                }
            }

            /// Returns the arguments for `vaultfs unlock`.
            func unlocking(_ view: ViewUnderTest) -> [String] { needsPassphrase ? ["--passfile", view.passfile] : [] }
        }

        private func lock(_ keys: Keys, _ policy: String, _ account: Account) throws {
            let view = try ViewUnderTest(account)
            try keys.mount(view, ["--on-lock", policy])
            let unlocking = policy == "forget" ? keys.unlocking(view) : []
            try view.program(
                "views/view_lock.py",
                [account.binary, view.mountpoint, view.originals, view.lockFile, policy] + unlocking
            ).succeeded()
            try view.unmount()
        }

        private func compare(_ view: ViewUnderTest) throws {
            try view.account.run(["cmp", "\(view.mountpoint)/file-300001", "\(view.originals)/file-300001"]).succeeded()
        }

        @Test("requests are refused while the view is locked, and continue afterwards", arguments: Settings.accounts)
        func refuse(setting: Setting) throws {
            try lock(.keyFile, "refuse", setting.account())
        }

        @Test("the same, with keys that are forgotten", arguments: Keys.allCases)
        func forget(keys: Keys) throws {
            try lock(keys, "forget", .current)
        }

        @Test("unlocking takes the passphrase, the same again", arguments: Keys.allCases.filter(\.needsPassphrase))
        func wrongPassphrase(keys: Keys) throws {
            let view = try ViewUnderTest()
            try keys.mount(view, ["--on-lock", "forget"])
            try view.vaultfs(["lock", view.mountpoint]).succeeded()
            expectFailure(try view.vaultfs(["unlock", view.mountpoint]), .usage, naming: "--passfile")
            expectFailure(
                try view.vaultfs(["unlock", view.mountpoint, "--extpass", "echo wrong"]), .wrongSecret,
                naming: "wrong passphrase")
            #expect(try view.status()["state"] as? String == "locked")
            #expect(try view.account.run(["ls", view.mountpoint]).exitCode != 0)
            // For a second after a wrong secret, the daemon refuses any secret.
            try poll("the unlock") {
                try view.vaultfs(["unlock", view.mountpoint, "--passfile", view.passfile]).exitCode == 0
            }
            try compare(view)
            guard keys == .openssl else { return try view.unmount() }
            // As for openssl, only the first line counts.
            try view.vaultfs(["lock", view.mountpoint]).succeeded()
            try view.vaultfs(["unlock", view.mountpoint, "--extpass", "cat '\(view.passfile)'; echo; echo more"])
                .succeeded()
            try compare(view)
            try view.unmount()
        }

        @Test("a missing key file keeps the view locked; another key is noticed")
        func keyFileGone() throws {
            let view = try ViewUnderTest()
            try Keys.keyFile.mount(view, ["--on-lock", "forget"])
            try view.vaultfs(["lock", view.mountpoint]).succeeded()
            try Command(["mv", "\(view.keys)/binary", "\(view.keys)/away"]).run().succeeded()
            expectFailure(
                try view.vaultfs(["unlock", view.mountpoint]), .failure, naming: "\(view.keys)/binary", "No such file")
            #expect(try view.status()["state"] as? String == "locked")
            try Command(["mv", "\(view.keys)/away", "\(view.keys)/binary"]).run().succeeded()
            try view.vaultfs(["unlock", view.mountpoint]).succeeded()
            try compare(view)
            try view.unmount()
        }

        @Test(
            "no passphrase, no key and no plaintext is in memory after a lock that forgets",
            .enabled(if: Products.isRoot, "reads /proc/PID/mem"), arguments: Keys.allCases)
        func memory(keys: Keys) throws {
            let view = try ViewUnderTest()
            // The test turns memfd_secret(2) off, because such memory cannot be read like this.
            try keys.mount(
                view, ["--on-lock", "forget", "--cache-size", "8M"],
                launcher: [Products.python, Products.program("commands/without_call.py"), "memfd_secret"])
            let result = try view.program(
                "views/view_memory.py",
                [
                    view.account.binary, view.mountpoint, "file-300001", "\(view.originals)/file-300001",
                    try key(of: keys, view),
                ] + keys.unlocking(view)
            ).succeeded()
            let lines = result.output.split(separator: "\n").map(String.init)
            let kinds = keys.needsPassphrase ? 3 : 2
            let before = lines.filter { $0.hasPrefix("unlocked") }
            #expect(before.count == 2 * kinds && before.allSatisfy { !$0.contains(": 0 of ") }, "\(before)")
            let after = lines.filter { $0.hasPrefix("locked") }
            #expect(after.count == 2 * kinds && after.allSatisfy { $0.contains(": 0 of ") }, "\(after)")
            try view.unmount()
        }

        /// Returns a file with the current key, and with the passphrase if there is one.
        private func key(of keys: Keys, _ view: ViewUnderTest) throws -> String {
            let file = "\(view.plain)/key"
            switch keys {
            case .keyFile, .command: return "\(view.keys)/hex"
            case .hashed:
                try view.account.run([
                    "sh", "-c", "sha256sum < \(view.passfile) | cut -c1-64 > \(file); cat \(view.passfile) >> \(file)",
                ]).succeeded()
            case .openssl:
                let salt = "$(head -c 16 \(view.source)/file-300001 | tail -c 8 | od -An -tx1 | tr -d ' ')"
                let derive = "openssl enc -aes-256-cbc -pbkdf2 -S \(salt) -P -pass file:\(view.passfile)"
                try view.account.run([
                    "sh", "-c", "\(derive) | sed -n 's/^key=//p' > \(file); cat \(view.passfile) >> \(file)",
                ]).succeeded()
            }
            return file
        }
    }
}
