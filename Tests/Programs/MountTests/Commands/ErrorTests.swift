import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Wrong or hostile input. It must give one line and an exit code, without any loss.
    @Suite struct Errors {
        @Test("wrong passphrase", arguments: Settings.accounts)
        func wrongPassphrase(setting: Setting) throws {
            let vault = try setting.vault()
            let arguments = ["mount", vault.vault, vault.mountpoint, "--passfile", "/dev/fd/0"]
            expectFailure(try vault.vaultfs(arguments, input: "incorrect"), .wrongSecret)
            let lines = try vault.vaultfs(arguments, input: VaultUnderTest.passphrase + "\n\n")
            #expect(lines.exitCode == 4 && lines.errors.contains("warning: the passphrase from --passfile"))
            #expect(try vault.vaultfs(arguments, input: "").exitCode != 0)
            #expect(try !vault.isMounted())
            try vault.mount()
        }

        @Test("the ways to give the passphrase")
        func secretSources() throws {
            let vault = try VaultUnderTest()
            let sources = [
                ["--passfile", "/dev/fd/0"], ["--extpass", "echo '\(VaultUnderTest.passphrase)'"],
                ["--passfile", vault.passfile],
            ]
            for source in sources {
                try vault.vaultfs(
                    ["mount", vault.vault, vault.mountpoint] + source, input: VaultUnderTest.passphrase + "\n"
                ).succeeded()
                #expect(try vault.isMounted())
                try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
            }
            let failing = ["mount", vault.vault, vault.mountpoint, "--extpass", "exit 3"]
            expectFailure(try vault.vaultfs(failing), .failure)
            let missing = ["mount", vault.vault, vault.mountpoint, "--passfile", "/nonexistent/passfile"]
            expectFailure(try vault.vaultfs(missing), .failure, naming: "/nonexistent/passfile")
        }

        @Test("not a vault")
        func notAVault() throws {
            let vault = try VaultUnderTest(initialise: false)
            expectFailure(try vault.tryMount(), .notAVault, naming: vault.vault)
            for path in ["/nonexistent", vault.passfile] {
                let result = try vault.vaultfs(["mount", path, vault.mountpoint, "--passfile", vault.passfile])
                expectFailure(result, .notAVault, naming: path)
            }
            expectFailure(try vault.vaultfs(["info", vault.vault]), .notAVault)
        }

        @Test("init does not change an existing directory")
        func initOnSomething() throws {
            let vault = try VaultUnderTest()
            let configuration = try Data(contentsOf: URL(fileURLWithPath: "\(vault.vault)/vaultfs.json"))
            expectFailure(
                try vault.vaultfs(["init", vault.vault, "--passfile", vault.passfile, "--scrypt-logn", "10"]), .failure)
            #expect(try Data(contentsOf: URL(fileURLWithPath: "\(vault.vault)/vaultfs.json")) == configuration)
            try Command(["touch", "\(vault.plain)/mine"]).run().succeeded()
            expectFailure(
                try vault.vaultfs(["init", vault.plain, "--passfile", vault.passfile, "--scrypt-logn", "10"]), .failure)
            #expect(try Command(["ls", "-A", vault.plain]).run().output == "mine\n")
            try vault.mount()
        }

        @Test(
            "init where it cannot write shows no recovery key",
            .enabled(if: Account.ordinary != nil, "takes an ordinary user"))
        func initWithoutAccess() throws {
            let vault = try VaultUnderTest(try #require(Account.ordinary))
            try vault.account.run(["mkdir", "\(vault.plain)/mine"]).succeeded()
            try Command(["chmod", "555", vault.plain, "\(vault.plain)/mine"]).run().succeeded()
            for (path, directory) in [
                ("\(vault.plain)/mine", "\(vault.plain)/mine"), ("\(vault.plain)/new", vault.plain),
            ] {
                let result = try vault.vaultfs(
                    ["init", path, "--passfile", vault.passfile, "--scrypt-logn", "10"])
                expectFailure(result, .failure, naming: "cannot write \(directory): Permission denied")
                #expect(result.output.isEmpty)
            }
            try Command(["chmod", "755", vault.plain]).run().succeeded()
        }

        /// A change of vaultfs.json, as a regular expression and its replacement, and the resulting error of `mount`.
        static let configurations: [(String, String, Failure)] = [
            (#""version": *1"#, #""version": 2"#, .notAVault),
            (#""format": *"vaultfs""#, #""format": "other""#, .notAVault),
            (#""features": *\[ *\]"#, #""features": ["future"]"#, .notAVault),
            (#""chunkSize": *4096"#, #""chunkSize": 8192"#, .wrongSecret),
            (#""chunkSize": *4096"#, #""chunkSize": 5000"#, .notAVault),
            (#""chunkSize": *4096"#, #""chunkSize": 04096"#, .notAVault),
            (#""logN": *10"#, #""logN": 9"#, .notAVault),
            (#""logN": *10"#, #""logN": 23"#, .notAVault),
            (#""logN": *10"#, #""logN": 11"#, .wrongSecret),
            (#""r": *8"#, #""r": 33"#, .notAVault),
            (#""p": *1"#, #""p": 17"#, .notAVault),
            (#""logN": *10,([^}]*)"r": *8"#, #""logN": 22,\1"r": 32"#, .notAVault),
            (#""generation": *1"#, #""generation": 2"#, .notAVault),
            (#""label": *"""#, #""label": "changed""#, .notAVault),
            (#""created": *"20"#, #""created": "21"#, .notAVault),
            (#""expires": *null"#, #""expires": "2999-01-01T00:00:00Z""#, .wrongSecret),
            (#""id": *1"#, #""id": 1, "id": 1"#, .notAVault),
            (#""slots""#, #""more": 1, "slots""#, .notAVault),
            (#""mac": *"......"#, #""mac": "------"#, .notAVault),
            (#"^\{"#, "", .notAVault),
            (#"(?s)^.*$"#, "", .notAVault),
            (#"(?s)^.*$"#, "[[[[[[[[", .notAVault),
        ]

        @Test("vaultfs.json changed, damaged or of a later version", arguments: configurations.indices)
        func configuration(index: Int) throws {
            let (pattern, replacement, failure) = Self.configurations[index]
            let vault = try VaultUnderTest()
            try vault.tamper(["configuration", ".", pattern, replacement])
            let result = try vault.tryMount()
            expectFailure(result, failure)
            if failure == .wrongSecret {
                #expect(result.errors.hasSuffix("wrong passphrase\n"), "\(result)")
            }
            #expect(try !vault.isMounted())
            #expect(try vault.read().exitCode == failure.rawValue)
        }

        @Test("vaultfs.json cut at every 40 bytes")
        func truncatedConfiguration() throws {
            let vault = try VaultUnderTest()
            let path = "\(vault.vault)/vaultfs.json"
            let whole = try Data(contentsOf: URL(fileURLWithPath: path))
            for count in stride(from: 0, to: whole.count - 2, by: 40) {
                try whole.prefix(count).write(to: URL(fileURLWithPath: path))
                expectFailure(try vault.tryMount(), .notAVault)
            }
            try whole.write(to: URL(fileURLWithPath: path))
            try vault.mount()
        }

        @Test("the root's vaultfs.dir missing, cut, changed")
        func rootRecord() throws {
            for change in [["remove"], ["cut", "63"], ["flip", "5"], ["flip", "6"], ["flip", "30"]] {
                let vault = try VaultUnderTest()
                try vault.tamper(["directory_record", "."] + change)
                let result = try vault.tryMount()
                if result.exitCode == 0 {
                    let listing = try vault.account.run(["ls", vault.mountpoint])
                    #expect(listing.errors.contains("Input/output error"), "\(change)")
                } else {
                    expectFailure(result, .notAVault)
                }
            }
        }

        @Test("unusable mountpoints", arguments: Settings.accounts)
        func mountpoints(setting: Setting) throws {
            let vault = try setting.vault()
            func mount(on words: [String]) throws -> CommandResult {
                try vault.vaultfs(["mount", vault.vault] + words + ["--passfile", vault.passfile])
            }
            let missing = ["\(vault.plain)/missing", "--no-mkdir"]
            expectFailure(try mount(on: missing), .mountpoint, naming: missing[0])
            let below = "\(vault.plain)/missing/below"
            expectFailure(
                try mount(on: [below]), .mountpoint,
                naming: "\(below), nor the directory for it: make it with 'mkdir -p \(below)'")
            try vault.account.run(["ln", "-s", "nowhere", "\(vault.plain)/link"]).succeeded()
            expectFailure(try mount(on: ["\(vault.plain)/link"]), .mountpoint, naming: "does not exist")
            try vault.account.run(["rm", "\(vault.plain)/link"]).succeeded()
            expectFailure(try mount(on: ["\(vault.vault)/missing"]), .mountpoint, naming: "is inside the vault")
            if !setting.isRoot {
                // Another user owns the file system's root.
                expectFailure(try mount(on: ["/vaultfs-missing"]), .mountpoint, naming: "is not yours")
            }
            expectFailure(try mount(on: [vault.passfile]), .mountpoint)
            expectFailure(try mount(on: [vault.vault]), .mountpoint)
            try vault.account.run(["mkdir", "\(vault.vault)/inside"]).succeeded()
            expectFailure(try mount(on: ["\(vault.vault)/inside"]), .mountpoint)
            try vault.account.run(["rmdir", "\(vault.vault)/inside"]).succeeded()
            try vault.account.run(["touch", "\(vault.plain)/something"]).succeeded()
            expectFailure(try mount(on: [vault.plain]), .mountpoint, naming: vault.plain)
            #expect(try vault.account.run(["ls", vault.plain]).output == "something\n")
            try vault.mount()
        }

        @Test("mounted twice: refused, naming the process", arguments: Settings.accounts)
        func twice(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            let daemon = try #require(vault.daemon)
            let second = try vault.vaultfs(
                ["mount", vault.vault, vault.plain, "--passfile", vault.passfile], timeout: .seconds(40))
            expectFailure(second, .inUse, naming: "\(daemon)")
            try vault.account.run(["sh", "-c", "echo still > \(vault.mountpoint)/works"]).succeeded()
        }

        @Test("unmounting a directory without a mount")
        func notMounted() throws {
            let vault = try VaultUnderTest()
            expectFailure(try vault.vaultfs(["unmount", vault.mountpoint]), .mountpoint)
            expectFailure(try vault.vaultfs(["status", vault.mountpoint]), .mountpoint)
        }

        @Test("no /dev/fuse", .enabled(if: Products.isRoot, "takes root, for a private /dev"))
        func noDevice() throws {
            let vault = try VaultUnderTest()
            let script = """
                mount -t tmpfs none /mnt && mknod /mnt/null c 1 3 && mknod /mnt/urandom c 1 9 && mkdir /mnt/shm \
                && mount --rbind /dev/shm /mnt/shm && mount --move /mnt /dev && exec "$@"
                """
            let mount = [vault.account.binary, "mount", vault.vault, vault.mountpoint, "--passfile", vault.passfile]
            let result = try vault.account.run(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"] + mount,
                environment: vault.environment)
            expectFailure(result, .cannotMount, naming: "/dev/fuse")
        }

        @Test("wrong usage")
        func usage() throws {
            let vault = try VaultUnderTest()
            for arguments in [
                ["mount"], ["mount", vault.vault], ["mount", vault.vault, vault.mountpoint, "--nonsense"], ["nonsense"],
                ["init", vault.plain, "--scrypt-logn", "9", "--passfile", vault.passfile],
                ["init", vault.plain, "--scrypt-logn", "23", "--passfile", vault.passfile],
                ["init", vault.plain, "--chunk-size", "5000", "--passfile", vault.passfile],
                ["mount", vault.vault, vault.mountpoint, "--passfile", vault.passfile, "-o", "onlock=forget"],
                ["mount", vault.vault, vault.mountpoint, "--passfile", vault.passfile, "--cache-size", "x"],
            ] {
                expectFailure(try vault.vaultfs(arguments), .usage)
            }
            #expect(try Command(["ls", "-A", vault.plain]).run().output.isEmpty)
        }

        @Test(
            "nothing secret on a command line or in the environment",
            .enabled(if: Products.isRoot, "takes root, to look at the daemon's environment"),
            arguments: Settings.accounts)
        func nothingSecretShows(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            let daemon = try #require(vault.daemon)
            for file in ["cmdline", "environ"] {
                let content = try Data(contentsOf: URL(fileURLWithPath: "/proc/\(daemon)/\(file)"))
                #expect(content.range(of: Data(VaultUnderTest.passphrase.utf8)) == nil)
            }
        }
    }
}

extension VaultUnderTest {
    /// Changes the backing directory (Tests/Support/Programs/store/tamper.py).
    func tamper(_ change: [String]) throws {
        try account.program("store/tamper.py", [vault, passfile] + change).succeeded()
    }
}
