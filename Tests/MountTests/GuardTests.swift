import Foundation
import TestSupport
import Testing

extension MountTests {
    /// `--guard-mountpoint`: nothing lands in the mountpoint while nothing is mounted there.
    @Suite struct Guarding {
        private static let option = "--guard-mountpoint"

        /// Whether the mountpoint, not mounted, lets nobody in: its own user, and root where it is root's.
        private func isGuarded(_ vault: VaultUnderTest) throws -> Bool {
            let mode = try vault.account.run(["stat", "-c", "%A", vault.mountpoint]).succeeded().output
            let attempt = try vault.account.run(["touch", "\(vault.mountpoint)/x"])
            return !mode.contains("w") && attempt.exitCode != 0
        }

        /// An immutable directory could not be removed at the end.
        private func release(_ vault: VaultUnderTest) {
            if vault.account.isRoot { _ = try? vault.account.run(["chattr", "-i", vault.mountpoint]) }
        }

        @Test("an unmounted mountpoint takes no file; mounting over it works", arguments: Settings.available)
        func guarded(setting: Setting) throws {
            let vault = try setting.vault()
            defer { release(vault) }
            for round in 1...2 {
                try vault.mount([Self.option])
                try vault.account.run(["touch", "\(vault.mountpoint)/\(round)"]).succeeded()
                try vault.unmount()
                #expect(try isGuarded(vault))
            }
            try vault.mount(["-o", "guard_mountpoint"])
            try vault.killDaemon()
            #expect(try isGuarded(vault))
        }

        @Test(
            "a user's: lifted for mounting only, put back where that fails or was cut short",
            .enabled(if: Settings.hasOrdinaryUser, "modes do not hold root"))
        func lifted() throws {
            let vault = try Setting.userOnTmpfs.vault()
            // The kernel knows no such security context.
            let refused = try vault.tryMount([Self.option, "-o", "context=none"])
            expectFailure(refused, .cannotMount)
            #expect(try isGuarded(vault))
            // Without the option it is a directory like any other that one may not write to.
            expectFailure(
                try vault.tryMount(), .mountpoint, naming: "one that is guarded needs --guard-mountpoint again")
            // As SIGKILL leaves it between lifting and putting back.
            try vault.account.run(["chmod", "u+w", vault.mountpoint]).succeeded()
            try vault.mount([Self.option])
            try vault.unmount()
            #expect(try isGuarded(vault))
        }

        @Test(
            "somebody else's directory, one with files in it: refused, and left as they are",
            arguments: Settings.accounts)
        func refused(setting: Setting) throws {
            let vault = try setting.vault()
            expectFailure(
                try vault.tryMount([Self.option, "-o", "nonempty"]), .usage,
                naming: "--guard-mountpoint is for an empty mountpoint")
            try vault.account.run(["touch", "\(vault.mountpoint)/x"]).succeeded()
            expectFailure(try vault.tryMount([Self.option]), .mountpoint, naming: "not empty")
            let mode = try vault.account.run(["stat", "-c", "%A", vault.mountpoint]).output
            #expect(mode.contains("w"))
            guard setting.isRoot == false, Products.isRoot else { return }
            try Command(["rm", "\(vault.mountpoint)/x"]).run().succeeded()
            try Command(["chown", "0:0", vault.mountpoint]).run().succeeded()
            expectFailure(
                try vault.tryMount([Self.option]), .mountpoint, naming: "cannot be guarded: Operation not permitted")
        }
    }
}
