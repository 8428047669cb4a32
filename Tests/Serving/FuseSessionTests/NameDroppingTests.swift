import FileSystem
import FuseSession
import Glibc
import LinuxSystem
import Locking
import Logging
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFileSystem
import VaultFormat
import VaultStore

/// A lock's notifications to kernels without notification epochs: the same mount, by the older ways.
@Suite(.serialized, .timeLimit(.minutes(60)), .enabled(if: FuseDevice.isUsable, "/dev/fuse is not here"))
struct NameDroppingTests {
    static let ways: [(NameDropping, String)] = [
        (.byFreeingInodes, "epoch"), (.byEpoch, "epoch"), (.expiring, "expired"), (.invalidating, "invalidated"),
    ]

    @Test("names are refused after a lock and visible again after the unlock", arguments: ways)
    func lock(way: NameDropping, told: String) throws {
        let vault = try VaultUnderTest()
        let mount = try MountInProcess(vault, way)
        defer { mount.end() }
        let script = """
            set -e; cd "$1"; mkdir -p a/b; echo x > a/b/f; ln -s f a/b/l; ls -R . > /dev/null; test ! -e a/nothing
            """
        try Command(["sh", "-c", script, "sh", vault.mountpoint]).run().succeeded()
        let worker = try Command(["sh", "-c", Self.worker, "sh", "\(vault.mountpoint)/a", vault.plain]).start()
        defer { worker.kill(SIGKILL) }
        try poll("the worker") { access("\(vault.plain)/ready", F_OK) == 0 }
        let receipt = mount.lock()
        #expect(receipt.names == told)
        #expect(receipt.complete, "\(receipt.unpurged)")
        for path in ["a", "a/b", "a/b/f", "a/b/l", "a/nothing", "never"] {
            #expect(Self.errno(of: "\(vault.mountpoint)/\(path)") == ENOKEY, "\(path)")
        }
        let started = ContinuousClock.now
        mount.unlock()
        // The kernel caches names of directories for up to a second, which on a busy machine may be too short.
        if ContinuousClock.now - started >= .seconds(1) { _ = Self.errno(of: "\(vault.mountpoint)/a") }
        try Command(["sh", "-c", ": >\"$0\"", "\(vault.plain)/go"]).run().succeeded()
        #expect(worker.wait(timeout: .seconds(20)) == 0)
        #expect(worker.output == "\(vault.mountpoint)/a\nb\n", "\(worker.errors)")
        #expect(Self.errno(of: "\(vault.mountpoint)/a/b/f") == 0)
        #expect(Self.errno(of: "\(vault.mountpoint)/a/nothing") == ENOENT)
    }

    @Test(
        "after a lock, a file handle of an unused object leads to nothing",
        .enabled(if: Products.isRoot, "takes root"), arguments: ways)
    func handles(way: NameDropping, told: String) throws {
        let vault = try VaultUnderTest()
        let mount = try MountInProcess(vault, way)
        defer { mount.end() }
        let script = """
            set -e; cd "$1"; mkdir -p a/b/c; echo x > a/b/f; ln -s f a/b/l; mkfifo p; mkdir held; echo xx > held/open
            ln a/b/f a/g; mkdir d; mv a/b/c d/c; mv d a/b/d
            """
        try Command(["sh", "-c", script, "sh", vault.mountpoint]).run().succeeded()
        let file = open("\(vault.mountpoint)/held/open", O_RDONLY)
        defer { close(file) }
        let program = try Command([
            Products.python, Products.program("posix/handles.py"), vault.mountpoint, "\(vault.plain)/go",
        ]).start()
        defer { program.kill(SIGKILL) }
        try poll("the handles") { program.output == "ready\n" }
        #expect(mount.lock().complete)
        try Command(["sh", "-c", ": >\"$0\"", "\(vault.plain)/go"]).run().succeeded()
        #expect(program.wait(timeout: .seconds(20)) == 0, "\(program.errors)")
        let found = program.output.split(separator: "\n").dropFirst()
        let reached = found.filter { $0 != "ESTALE" }.map {
            String($0.split(separator: " ")[0].dropFirst(vault.mountpoint.count))
        }
        // An object opened by a program stays, and so do its parent directories. Older kernels keep all directories.
        let directories = way < .byFreeingInodes ? ["/a", "/a/b", "/a/b/d", "/a/b/d/c"] : []
        #expect(Set(reached) == Set(["/held", "/held/open"] + (way == .invalidating ? [] : directories)))
        #expect(found.count == 10)
        mount.unlock()
        try Command(["cat", "\(vault.mountpoint)/a/b/f"]).run().succeeded()
    }

    /// Works in a directory during a lock. `pwd -P` is getcwd(3).
    private static let worker = """
        cd "$1"; mkfifo "$2/go"; touch "$2/ready"; read -r _ <"$2/go"; /bin/pwd -P && ls
        """

    private static func errno(of path: String) -> Int32 {
        var status = stat()
        return lstat(path, &status) == 0 ? 0 : Glibc.errno
    }
}

/// A vault mounted by this process.
final class MountInProcess: Sendable {
    /// Guards the mounts, because only one at a time can collect libfuse's messages.
    private static let mounting = Mutex(())

    private let session: FuseSession
    private let controller: LockController
    private let thread: BackgroundThread

    init(_ vault: VaultUnderTest, _ way: NameDropping, fuseOptions: [String] = []) throws {
        let directory = try VaultDirectory.open(FilePath(vault.vault))
        let masterKey = try directory.openSlot(with: .passphrase(Array(VaultUnderTest.passphrase.utf8))).masterKey
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        let store = try Store(root: directory.root, keyRing: keyRing, cacheSize: 1 << 20, isReadOnly: false)
        let fileSystem = try VaultFileSystem(store: store)
        var options = SessionOptions(
            mountpoint: FilePath(vault.mountpoint), fuseOptions: fuseOptions, sourceName: vault.vault)
        options.dropsNames = way
        let logger = Logger(label: "test")
        let session = try Self.mounting.withLock { _ in
            try FuseSession(fileSystem: fileSystem, options: options, logger: logger)
        }
        let controller = LockController(fileSystem: fileSystem, options: LockOptions(), caches: session, logger: logger)
        { _ in }
        try controller.start()
        let isReady = Monitor(false)
        let setReady = { @Sendable in isReady.update { $0 = true } }
        thread = try BackgroundThread {
            do { try session.run(whenAnswering: setReady, whenUnmounted: controller.stop) } catch {
                Issue.record(error)
                setReady()
            }
        }
        // Wait for the first answer, because an earlier end would be an error.
        isReady.wait { $0 ? () : nil }
        (self.session, self.controller) = (session, controller)
    }

    func lock() -> LockReceipt {
        let done = Monitor<LockReceipt?>(nil)
        controller.lock(.command) { receipt, _ in done.update { $0 = receipt } }
        return done.wait { $0 }
    }

    func unlock() {
        let done = Monitor(false)
        controller.unlock(secret: nil) { _ in done.update { $0 = true } }
        done.wait { $0 ? () : nil }
    }

    func onDamage(_ body: @escaping @Sendable (Damage) -> Void) {
        session.onDamage(body)
    }

    var statistics: RequestStatistics { session.statistics }

    func end() {
        session.requestUnmount()
        thread.join()
    }

    /// Waits for the end after an unmount from outside.
    func join() {
        thread.join()
    }
}
