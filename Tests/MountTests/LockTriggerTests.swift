import TestSupport
import Testing

extension MountTests {
    /// What locks, what unlocks, and what a class makes of it.
    @Suite struct LockTriggers {
        @Test("every trigger, and the table of what unlocks what", arguments: LockLoad.policies)
        func triggers(policy: String) throws {
            // A minute here, and several where other programs want the processors.
            try VaultUnderTest(initialise: false).lockProgram(
                "lock_triggers.py", ["--policy", policy], timeout: .seconds(270))
        }

        @Test(
            "the same for an ordinary user, whom modes keep out", .enabled(if: Settings.hasOrdinaryUser, "takes a user")
        )
        func triggersOfUser() throws {
            let vault = try Setting.userOnTmpfs.vault(initialise: false)
            try vault.lockProgram("lock_triggers.py", ["lock_file", "unreadable", "there_at_mount"])
        }

        @Test("the table of classes, states and operations", arguments: Settings.accounts, LockLoad.policies)
        func classes(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).lockProgram("lock_classes.py", ["--policy", policy])
        }
    }
}
