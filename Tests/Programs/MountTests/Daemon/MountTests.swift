import TestSupport
import Testing

/// Real mounts, tested as a black box through the binary, one at a time.
@Suite(
    .serialized, .timeLimit(.minutes(60)),
    .enabled(if: Settings.fuseIsUsable, "/dev/fuse is not here, or not open to this user"))
enum MountTests {}

/// Mount tests that measure no time and look only at their own directories. They run one at a time too, but at the same
/// time as `MountTests`, because both mostly wait.
@Suite(
    .serialized, .timeLimit(.minutes(60)),
    .enabled(if: Settings.fuseIsUsable, "/dev/fuse is not here, or not open to this user"))
enum PlainMountTests {}

/// The place of a test: the account that mounts, and the store with the vault.
enum Setting: String, CaseIterable, CustomTestStringConvertible {
    case rootOnTmpfs = "root on tmpfs"
    case rootOnExt4 = "root on ext4"
    case userOnTmpfs = "a user on tmpfs"
    case userOnDisk = "a user on the working disk"

    var testDescription: String { rawValue }

    var isRoot: Bool { self == .rootOnTmpfs || self == .rootOnExt4 }

    var store: BackingStore.Kind {
        switch self {
        case .rootOnTmpfs, .userOnTmpfs: .tmpfs
        case .rootOnExt4: .ext4
        case .userOnDisk: .disk
        }
    }

    /// Returns the account. Throws if the machine does not offer the setting.
    func account() throws -> Account {
        if isRoot { return .current }
        guard let ordinary = Account.ordinary else { throw TestFailure("no ordinary user to be had") }
        return ordinary
    }

    func vault(initialise: Bool = true, arguments: [String] = []) throws -> VaultUnderTest {
        try VaultUnderTest(account(), on: store, initialise: initialise, arguments: arguments)
    }
}

extension VaultUnderTest {
    /// Mounts, and returns the vault.
    func mounted(_ arguments: [String] = [], openFiles: Int? = nil) throws -> VaultUnderTest {
        try mount(arguments, openFiles: openFiles)
        return self
    }
}

extension ViewUnderTest {
    /// Fills the directories, and returns the view.
    func made(_ kind: String, _ arguments: [String]) throws -> ViewUnderTest {
        try make(kind, arguments)
        return self
    }
}

extension MountUnderTest {
    /// Starts the binary, and returns at once.
    func start(_ arguments: [String]) throws -> RunningProcess {
        try account.command([account.binary] + arguments, environment: environment).start()
    }
}

enum Settings {
    static let fuseIsUsable = FuseDevice.isUsable

    /// The available settings: all as root, otherwise those of an ordinary user. `everySettingRuns` is visibly skipped
    /// if some are missing.
    static let available = Setting.allCases.filter { $0.isRoot ? Products.isRoot : hasOrdinaryUser }

    /// One setting for each account, for tests independent of the store.
    static let accounts = available.filter { $0.store == .tmpfs }

    static let hasOrdinaryUser = Account.ordinary != nil
}

extension MountTests {
    @Test(
        "every setting runs",
        .enabled(
            if: Settings.available.count == Setting.allCases.count,
            "the tests of root's mounts need root, and those of a user a private device node")
    )
    static func everySettingRuns() {
        #expect(Settings.available == Setting.allCases)
    }
}
