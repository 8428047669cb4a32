import TestSupport
import Testing

extension MountTests {
    /// The daemon's end, by SIGTERM and by SIGKILL, during a lock and with dirty pages of mappings.
    @Suite struct LockEnd {
        @Test(
            "SIGTERM loses no dirty page", arguments: Settings.accounts,
            ["terminated_in_grace", "terminated_with_dirty_pages"])
        func terminated(setting: Setting, name: String) throws {
            try setting.vault(initialise: false).lockProgram("lock_end.py", [name])
        }

        @Test(
            "SIGKILL ends the daemon and every process that waits for it", arguments: Settings.accounts,
            ["killed_while_locking", "killed_while_locked", "killed_while_unlocking"])
        func killed(setting: Setting, name: String) throws {
            try setting.vault(initialise: false).lockProgram("lock_end.py", [name])
        }
    }
}
