import LinuxSystem
import Logging
import Synchronization
import Testing

@testable import FileSystem
@testable import Locking
@testable import VaultFileSystem

/// Caches without a kernel. Records each request, and the state at that time.
final class NoCaches: KernelCaches {
    let calls = Monitor<[String]>([])
    let gate = Mutex<LockGate?>(nil)
    /// While set, `dropInodes` does not return.
    let isHeld = Monitor(false)
    /// Called by `dropUnwritten`.
    let whenDropping = Monitor<@Sendable () -> Void>({})

    private func note(_ call: String) {
        let state = gate.withLock { $0?.state }
        calls.update { $0.append("\(call) \(state.map { "\($0)" } ?? "")") }
    }

    func freeInodes(_ inodes: [UInt64]) -> [String] { [] }
    func dropUnwritten() -> [String] {
        whenDropping.access { $0 }()
        return []
    }
    func awaitWipedWorkers(until deadline: ContinuousClock.Instant) -> Int { 0 }
    func dropInodes(_ inodes: [UInt64]) -> [String] {
        note("inodes")
        isHeld.wait { $0 ? nil : () }
        return []
    }
    func dropNames(_ names: () -> [KnownName]) -> (method: String, failures: [String]) {
        note("names")
        return ("epoch", [])
    }
    func lookUp(_ paths: [[UInt8]], while goesOn: @escaping @Sendable () -> Bool) -> Bool { true }
    func wipeWorkers(waitingForAll: Bool) -> [String] {
        note("workers")
        return []
    }
}

/// One vault with a lock controller.
final class LockSetup {
    let vault: MountedVault
    let place: LockPlace
    let controller: LockController
    let caches = NoCaches()
    private let events: Monitor<[String]>
    /// Called at each event.
    let whenTold = Monitor<@Sendable (LockEvent) -> Void>({ _ in })
    /// The requests for a secret, in order.
    let wanted = Monitor<[@Sendable (@escaping LockController.SecretSource) -> Void]>([])

    init(
        _ policy: LockPolicy = .refuse, idleMilliseconds: Int? = nil, isLocked: Bool = false
    ) throws {
        place = try LockPlace()
        if isLocked { try place.create() }
        let options = LockOptions(
            lockFiles: [try LockFile(path: place.file)], policy: policy, idleMilliseconds: idleMilliseconds)
        vault = try MountedVault(lock: options)
        let gate = vault.system.gate
        caches.gate.withLock { $0 = gate }
        let events = Monitor<[String]>([])
        self.events = events
        controller = LockController(
            fileSystem: vault.system, options: options, caches: caches, logger: Logger(label: "test"),
            secretWanted: { [wanted] give in wanted.update { $0.append(give) } },
            announce: { [whenTold] event in
                whenTold.access { $0 }(event)
                switch event {
                case .didLock: events.update { $0.append("did-lock") }
                case .didUnlock: events.update { $0.append("did-unlock") }
                default: break
                }
            })
        try controller.start()
    }

    deinit {
        controller.stop()
        // A closure of a test may have the place, whose directory goes with it.
        whenTold.update { $0 = { _ in } }
        caches.whenDropping.update { $0 = {} }
    }

    /// Returns the next lock or unlock not awaited yet.
    func next() -> String? {
        events.wait(until: .now + .seconds(20)) { $0.isEmpty ? nil : $0.removeFirst() }
    }

    func lock(_ reason: LockReason = .command) throws -> Bool {
        let answer = Monitor<Bool?>(nil)
        controller.lock(reason) { _, already in answer.update { $0 = already } }
        let given = answer.wait(until: .now + .seconds(20)) { $0 }
        return try #require(given as Bool?)
    }

    func unlock(_ key: LockController.SecretSource? = nil) throws -> Result<Bool, UnlockRefusal> {
        let answer = Monitor<Result<Bool, UnlockRefusal>?>(nil)
        controller.unlock(secret: key) { outcome in answer.update { $0 = outcome } }
        let given = answer.wait(until: .now + .seconds(20)) { $0 }
        return try #require(given)
    }

    var state: LockGate.State { vault.system.gate.state }
}
