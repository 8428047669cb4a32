import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The examples, run by an ordinary user with stand-ins for the desktop's programs. They need such a user because
    /// root's default lock file applies to the whole machine.
    @Suite(.enabled(if: Settings.hasOrdinaryUser, "the examples are an ordinary user's")) struct Desktop {
        private static let examples = "\(Products.root)/examples"
        private static let packaging = "\(Products.root)/packaging"

        /// Makes a user's vault, with the package's examples and programs in `plain`.
        private func vault() throws -> VaultUnderTest {
            let vault = try Setting.userOnTmpfs.vault()
            try Command(["cp", "-r", Self.examples, Self.packaging, vault.plain]).run().succeeded()
            try vault.account.own(vault.plain)
            return vault
        }

        private func run(_ program: String, _ vault: VaultUnderTest, _ more: [String] = [], seconds: Int = 50) throws {
            let script = "\(vault.account.support)/Programs/desktop/\(program)"
            let arguments = [
                vault.mountpoint, "\(vault.plain)/examples", vault.account.binary, vault.plain, vault.passfile,
            ]
            try vault.account.run(
                ["timeout", "\(seconds)", "bash", script] + arguments + more, environment: vault.environment,
                timeout: .seconds(seconds + 10)
            ).succeeded()
        }

        @Test(
            "screen lockers: started by hand, by swayidle, by xss-lock; the session's state",
            arguments: ["screen", "session"])
        func lockFile(program: String) throws {
            let vault = try vault()
            try vault.mount()
            try run("desktop_\(program).sh", vault)
        }

        @Test("a vault that forgets its keys: a window or PAM requests the passphrase", arguments: ["forget", "pam"])
        func secret(program: String) throws {
            let vault = try vault()
            try vault.mount(["--on-lock", "forget"])
            try run("desktop_\(program).sh", vault)
        }

        @Test("logind's signals: the session's lock, and sleep, which waits until the vault is locked")
        func agent() throws {
            let vault = try vault()
            try vault.mount(["--grace", "20s"])
            try run("desktop_agent.sh", vault, [vault.vault], seconds: 150)
        }

        @Test("the desktop's keyring keeps a secret of the vault, or the reason for its refusal is given")
        func keyring() throws {
            let vault = try vault()
            try run("desktop_keyring.sh", vault, [vault.vault], seconds: 150)
        }

        @Test("PAM's script, run by root", .enabled(if: Products.isRoot, "root runs it"))
        func pamAsRoot() throws {
            let directory = try TemporaryDirectory()
            chmod(directory.path, 0o755)
            try Account.current.run(
                [
                    "timeout", "30", "bash", "\(Products.support)/Programs/desktop/desktop_pam_root.sh", Self.examples,
                    directory.path, "nobody",
                ]
            ).succeeded()
        }

        @Test("systemd accepts the units without a warning, and their commands work")
        func units() throws {
            let vault = try vault()
            try run("desktop_units.sh", vault, [vault.vault])
        }

        @Test("the commands of the tray, without a window")
        func trayCommands() throws {
            let directory = try TemporaryDirectory()
            let program = "\(Products.support)/Programs/desktop/tray_commands.py"
            try Command(
                ["timeout", "120", "python3", program, Self.examples, Products.binary, directory.path],
                timeout: .seconds(130)
            ).run().succeeded()
        }

        @Test("sh and Python accept the scripts")
        func syntax() throws {
            let check = """
                cd "$1" && for script in examples/* examples/vaultfs_tray/* packaging/*; do
                    [ -f "$script" ] && read -r first <"$script" || continue
                    case $first in
                        '#!/bin/sh') sh -n "$script" ;;
                        '#!/usr/bin/python3' | '\"\"\"'*) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$script" ;;
                        *) continue ;;
                    esac && echo "$script" || exit 1
                done
                """
            let checked = try Command(["sh", "-c", check, "sh", "\(Products.root)"]).run().succeeded().output
            for script in [
                "examples/vaultfs-screen-lock", "examples/vaultfs-tray", "examples/vaultfs_tray/dialogs.py",
                "examples/vaultfs_tray/forms.py", "examples/vaultfs_tray/vaults.py", "packaging/vaultfs-agent",
                "packaging/vaultfs-keyring",
            ] {
                #expect(checked.contains("\(script)\n"))
            }
        }
    }
}
