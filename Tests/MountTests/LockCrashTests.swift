import TestSupport
import Testing

extension MountTests {
    /// The daemon's death around a lock, and everything that might hang on one.
    @Suite struct LockCrash {
        @Test(
            "killed while locking, locked and unlocking (scripts/torture-lock is the long form)",
            arguments: [Setting.rootOnTmpfs, .userOnDisk].filter(Settings.available.contains), LockLoad.policies)
        func kills(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).lockProgram(
                "lock_crash.py", ["--policy", policy, "--rounds", "12"])
        }

        @Test(
            "MAP_POPULATE and mlock(2) on pages that cannot be read", .enabled(if: Products.isRoot, "takes root"))
        func populate() throws {
            try Setting.rootOnTmpfs.vault(initialise: false).lockProgram("populate.py", [])
        }

        @Test("what goes on meets a lock, and what people do meets each of its states", arguments: LockLoad.policies)
        func hangs(policy: String) throws {
            for setting in [Setting.rootOnTmpfs, .userOnTmpfs].filter(Settings.available.contains) {
                try setting.vault(initialise: false).lockProgram(
                    "lock_hangs.py", ["--policy", policy], timeout: .seconds(500))
            }
        }
    }
}
