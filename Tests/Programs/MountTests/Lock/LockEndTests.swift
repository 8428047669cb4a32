import Glibc
import TestSupport
import Testing

extension MountTests {
    /// The daemon's end, by SIGTERM and by SIGKILL, during a lock and with dirty pages of mappings.
    @Suite struct LockEnd {
        @Test("a lock that is not answered ends with its own timeout, and the daemon locks when it can")
        func unanswered() throws {
            let vault = try VaultUnderTest().mounted()
            let daemon = try #require(vault.daemon)
            kill(daemon, SIGSTOP)
            defer { kill(daemon, SIGCONT) }
            let result = try vault.vaultfs(["lock", "--timeout", "1s", vault.mountpoint])
            expectFailure(
                result, .failure, naming: vault.mountpoint, "in 1 s", "may be locked or not", "vaultfs status")
            kill(daemon, SIGCONT)
            try poll("the lock") { try vault.status()["state"] as? String == "locked" }
        }

        @Test(
            "SIGTERM loses no dirty page", arguments: Settings.accounts,
            ["terminated_in_grace", "terminated_with_dirty_pages"])
        func terminated(setting: Setting, name: String) throws {
            try setting.vault(initialise: false).mountProgram("lock/lock_end.py", [name])
        }

        @Test(
            "SIGKILL ends the daemon and every process that waits for it", arguments: Settings.accounts,
            ["killed_while_locking", "killed_while_locked", "killed_while_unlocking"])
        func killed(setting: Setting, name: String) throws {
            try setting.vault(initialise: false).mountProgram("lock/lock_end.py", [name])
        }
    }
}
