import Foundation
import TestSupport
import Testing

extension MountTests {
    /// `--guard-mountpoint`, which keeps the mountpoint from being written while it is not mounted.
    @Suite struct Guarding {
        private static let option = "--guard-mountpoint"

        /// Returns true if the unmounted mountpoint refuses its own user, and also root if it belongs to root.
        private func isGuarded(_ vault: VaultUnderTest) throws -> Bool {
            let mode = try vault.account.run(["stat", "-c", "%A", vault.mountpoint]).succeeded().output
            let attempt = try vault.account.run(["touch", "\(vault.mountpoint)/x"])
            return !mode.contains("w") && attempt.exitCode != 0
        }

        /// Lifts the guard, because an immutable directory could not be removed at the end.
        private func release(_ vault: VaultUnderTest) {
            if vault.account.isRoot { _ = try? vault.account.run(["chattr", "-i", vault.mountpoint]) }
        }

        @Test("an unmounted mountpoint accepts no file; mounting over it works", arguments: Settings.available)
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
            "a user's mountpoint: the guard is lifted only to mount, and restored after a failure or a kill",
            .enabled(if: Settings.hasOrdinaryUser, "modes do not hold root"))
        func lifted() throws {
            let vault = try Setting.userOnTmpfs.vault()
            // The kernel does not know this security context.
            let refused = try vault.tryMount([Self.option, "-o", "context=none"])
            expectFailure(refused, .cannotMount)
            #expect(try isGuarded(vault))
            // A guarded mountpoint needs no option, stays guarded, and is not removed.
            try vault.mount()
            try vault.unmount()
            #expect(try isGuarded(vault))
            // Simulates a SIGKILL between lifting and restoring the guard.
            try vault.account.run(["chmod", "u+w", vault.mountpoint]).succeeded()
            try vault.mount([Self.option])
            try vault.unmount()
            #expect(try isGuarded(vault))
        }

        @Test(
            "another user's directory, or one with files in it: refused, and left unchanged",
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
