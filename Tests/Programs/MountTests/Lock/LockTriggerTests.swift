import TestSupport
import Testing

extension MountTests {
    /// Triggers of locks and unlocks, and their effect on each class.
    @Suite struct LockTriggers {
        @Test("every trigger, and the table of what unlocks what", arguments: LockLoad.policies)
        func triggers(policy: String) throws {
            // This takes a minute here, and several on busy processors.
            try VaultUnderTest(initialise: false).mountProgram(
                "lock/lock_triggers.py", ["--policy", policy], timeout: .seconds(270))
        }

        @Test(
            "the same for an ordinary user, restricted by modes", .enabled(if: Settings.hasOrdinaryUser, "takes a user")
        )
        func triggersOfUser() throws {
            let vault = try Setting.userOnTmpfs.vault(initialise: false)
            try vault.mountProgram("lock/lock_triggers.py", ["lock_file", "unreadable", "there_at_mount"])
        }

        @Test("the table of classes, states and operations", arguments: Settings.accounts, LockLoad.policies)
        func classes(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).mountProgram("lock/lock_classes.py", ["--policy", policy])
        }
    }
}
