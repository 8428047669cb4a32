import TestSupport
import Testing

extension MountTests {
    /// The daemon's death around a lock, and everything a lock could block.
    @Suite struct LockCrash {
        @Test(
            "killed while locking, locked and unlocking (scripts/torture/lock is the long form)",
            arguments: [Setting.rootOnTmpfs, .userOnDisk].filter(Settings.available.contains), LockLoad.policies)
        func kills(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).mountProgram(
                "lock/lock_crash.py", ["--policy", policy, "--rounds", "12"])
        }

        @Test(
            "MAP_POPULATE and mlock(2) on pages that cannot be read", .enabled(if: Products.isRoot, "takes root"))
        func populate() throws {
            try Setting.rootOnTmpfs.vault(initialise: false).mountProgram("lock/populate.py", [])
        }

        @Test(
            "operations in progress during a lock, and operations in each state of a lock (scripts/torture/lock is the long form)",
            arguments: zip([Setting.rootOnTmpfs, .userOnTmpfs].filter(Settings.available.contains), LockLoad.policies))
        func hangs(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).mountProgram(
                "lock/lock_hangs.py", ["--policy", policy], timeout: .seconds(500))
        }
    }
}
