import TestSupport
import Testing

extension MountTests {
    /// The guarantee of a lock: system calls cannot get plaintext, names or attributes, whatever a program has open.
    @Suite struct LockGuarantee {
        enum Form: String, CaseIterable {
            case refuse, forget
            case withoutKernelCache = "no kernel cache"

            var mountArguments: [String] {
                switch self {
                case .refuse: []
                case .forget: ["--on-lock", "forget"]
                case .withoutKernelCache: ["--no-kernel-cache"]
                }
            }

            /// Returns the full figures for one setting, and smaller ones for the other accounts and forms.
            func amount(_ setting: Setting) -> [String] {
                let isFull = self == .refuse && setting == Settings.accounts.first
                let (mebibytes, tries) = isFull ? ("300", "1000") : ("48", "100")
                return ["--mebibytes", mebibytes, "--tries", tries]
            }

            func arguments(_ vault: VaultUnderTest) -> [String] {
                switch self {
                case .refuse: []
                case .forget: ["--passfile", vault.passfile]
                case .withoutKernelCache: ["--no-kernel-cache"]
                }
            }
        }

        /// Runs `guarantee.py` on the mount.
        private func guarantee(_ vault: VaultUnderTest, _ arguments: [String]) throws {
            let program = "\(vault.account.support)/Programs/lock/guarantee.py"
            let common = ["--binary", vault.account.binary, "--mountpoint", vault.mountpoint]
            try vault.account.run(
                [Products.python, program] + common + arguments, environment: vault.environment,
                timeout: .seconds(240)
            ).succeeded()
        }

        @Test(
            "while locked, all is refused and nothing is left in the page cache", arguments: Settings.accounts,
            Form.allCases)
        func guarantee(setting: Setting, form: Form) throws {
            let vault = try setting.vault()
            try vault.mount(["--lock-file", "\(vault.plain)/lock"] + form.mountArguments)
            try guarantee(vault, form.arguments(vault) + form.amount(setting))
            try vault.unmount()
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
        }

        @Test("locks repeat reliably", arguments: Form.allCases)
        func rounds(form: Form) throws {
            let vault = try VaultUnderTest()
            try vault.mount(["--lock-file", "\(vault.plain)/lock"] + form.mountArguments)
            try guarantee(vault, form.arguments(vault) + ["--mebibytes", "8", "--tries", "2", "--rounds", "8"])
            try vault.unmount()
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
        }

        @Test("a lock takes less than a second (scripts/bench/run lock is the long form)", arguments: Settings.accounts)
        func bound(setting: Setting) throws {
            let amount = ["--bound", "1000", "--rounds", "3", "--mebibytes", "64", "--inodes", "2000"]
            let cases = ["--only", "clean pages and inodes, load", "clean pages and inodes, forget"]
            try setting.vault(initialise: false).mountProgram("lock/bench_lock.py", amount + cases)
        }
    }
}
