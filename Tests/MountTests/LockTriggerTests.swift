import TestSupport
import Testing

extension MountTests {
    /// What locks, what unlocks, and what a class makes of it.
    @Suite struct LockTriggers {
        @Test("every trigger, and the table of what unlocks what", arguments: Settings.accounts, LockLoad.policies)
        func triggers(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).lockProgram("lock_triggers.py", ["--policy", policy])
        }

        @Test("the table of classes, states and operations", arguments: Settings.accounts, LockLoad.policies)
        func classes(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).lockProgram("lock_classes.py", ["--policy", policy])
        }
    }
}
