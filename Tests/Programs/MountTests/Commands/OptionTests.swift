import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Mount options (`-o`), tested by their effect.
    @Suite struct Options {
        /// Runs a check of mount_options.py under each list of options.
        private func expect(
            _ vault: VaultUnderTest, _ check: String, _ expected: [(options: String, outcome: String)],
            as account: Account? = nil, preparing: Bool = false
        ) throws {
            for (options, outcome) in expected {
                if preparing {
                    try vault.mount()
                    try run(vault, "old")
                    try vault.unmount()
                }
                try vault.mount(options.isEmpty ? [] : ["-o", options])
                #expect(try run(vault, check, as: account) == outcome, "\(check) with -o \(options)")
                try vault.unmount()
            }
        }

        @discardableResult
        private func run(_ vault: VaultUnderTest, _ check: String, as account: Account? = nil) throws -> String {
            let arguments = [check, vault.mountpoint, vault.vault]
            return try (account ?? vault.account).program("commands/mount_options.py", arguments).succeeded().output
                .trimmingCharacters(in: .newlines)
        }

        private func prepared(_ account: Account = .current, on store: BackingStore.Kind) throws -> VaultUnderTest {
            let vault = try VaultUnderTest(account, on: store).mounted()
            try run(vault, "prepare")
            try vault.unmount()
            return vault
        }

        @Test("access times: of files, of directories, of both", arguments: Settings.available)
        func accessTimes(setting: Setting) throws {
            let vault = try prepared(setting.account(), on: setting.store)
            try expect(
                vault, "times",
                [
                    ("atime", "moved: directory file"), ("noatime", "moved:"), ("nodiratime", "moved: file"),
                    ("noatime,atime,diratime", "moved: directory file"),
                ], preparing: true)
        }

        @Test("exec and noexec: programs in the mount", arguments: Settings.accounts)
        func exec(setting: Setting) throws {
            let vault = try prepared(setting.account(), on: setting.store)
            try expect(vault, "exec", [("", "ran"), ("noexec", "EACCES"), ("noexec,exec", "ran")])
        }

        @Test("set-user-ID programs and devices", .enabled(if: Products.isRoot, "takes root"))
        func privileges() throws {
            let vault = try prepared(on: .tmpfs)
            let visitor = try #require(Account.visitor)
            try expect(
                vault, "suid",
                [("allow_other", "user"), ("allow_other,suid", "root"), ("allow_other,suid,nosuid", "user")],
                as: visitor)
            try expect(vault, "dev", [("", "EACCES"), ("dev", "1"), ("dev,nodev", "EACCES")])
        }

        @Test("allow_other and allow_root: access by other users", .enabled(if: Products.isRoot, "takes root"))
        func others() throws {
            let vault = try prepared(on: .tmpfs)
            let visitor = try #require(Account.visitor)
            try expect(
                vault, "list", [("", "EACCES"), ("allow_other", "True"), ("allow_root", "EACCES")], as: visitor)
            try expect(vault, "list", [("allow_root", "True")])
        }

        @Test(
            "sync: written data is on the store when write(2) returns", .enabled(if: Products.isRoot, "takes root"))
        func sync() throws {
            let vault = try VaultUnderTest(on: .ext4)
            try expect(
                vault, "sync", [("", "delayed"), ("async", "delayed"), ("sync", "durable"), ("sync,async", "delayed")])
        }

        @Test("nonempty: a mount over a directory that is not empty")
        func nonEmpty() throws {
            let vault = try VaultUnderTest()
            try Data().write(to: URL(filePath: "\(vault.mountpoint)/file"))
            #expect(try vault.tryMount().exitCode != 0)
            try vault.mount(["-o", "nonempty"])
            #expect(try !FileManager.default.contentsOfDirectory(atPath: vault.mountpoint).contains("file"))
        }

        @Test("options without an effect are refused", arguments: Settings.accounts)
        func refused(setting: Setting) throws {
            let vault = try setting.vault()
            for option in ["dirsync", "remount,ro"] {
                expectFailure(try vault.tryMount(["-o", option]), .usage, naming: "mount")
            }
        }
    }
}
