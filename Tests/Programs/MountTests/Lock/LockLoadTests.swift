import TestSupport
import Testing

extension MountTests {
    /// Locks of a mount while programs use it in every way. The docstring of each program describes it.
    @Suite struct LockLoad {
        static let policies = ["refuse", "forget"]

        @Test(
            "readers, writers, names and a database over 40 locks (scripts/torture/lock is the long form)",
            arguments: [Setting.rootOnExt4, .userOnTmpfs].filter(Settings.available.contains), policies)
        func load(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).mountProgram(
                "lock/lock_load.py", ["--policy", policy, "--rounds", "40"])
        }

        @Test(
            "names, attributes and pages in the kernel while programs are in the middle of requests",
            arguments: Settings.accounts, policies)
        func kernel(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).mountProgram(
                "lock/lock_kernel.py", ["--policy", policy, "--rounds", "25"])
        }

        @Test("dirty pages of mappings when a lock comes", arguments: Settings.accounts, policies)
        func mapped(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).mountProgram(
                "lock/lock_mapped.py", ["--policy", policy, "--rounds", "4"])
        }
    }
}

extension VaultUnderTest {
    /// Runs a program that makes its own mount, and expects success.
    func mountProgram(_ name: String, _ arguments: [String] = [], timeout: Duration = .seconds(120)) throws {
        let program = [
            Products.python, "\(account.support)/Programs/\(name)", "--binary", account.binary, "--directory", plain,
        ]
        try account.run(program + arguments, environment: environment, timeout: timeout).succeeded()
    }
}
