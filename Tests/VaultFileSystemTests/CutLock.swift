import LinuxSystem
import Locking
import Logging
import TestSupport
import VaultCrypto

@testable import VaultFileSystem

/// Locks and unlocks a mount of a workload.
final class CutLock {
    private let controller: LockController

    init(_ system: VaultFileSystem) throws {
        controller = LockController(
            fileSystem: system, options: LockOptions(), caches: LockControllerTests.Caches(),
            logger: Logger(label: "test"), secretWanted: { _ in }, announce: { _ in })
        try controller.start()
    }

    func stop() { controller.stop() }

    func lock(forgets: Bool) throws {
        let isDone = Monitor(false)
        _ = controller.lock(.command, forgetsKeys: forgets) { _, _ in isDone.update { $0 = true } }
        guard isDone.wait(until: .now + .seconds(20), for: { $0 ? true : nil }) != nil else { throw TestFailure("no lock") }
    }

    func unlock(_ masterKey: SecretBytes) throws {
        let outcome = Monitor<Result<Bool, UnlockRefusal>?>(nil)
        controller.unlock(secret: { () throws(UnlockRefusal) in UnlockSecret(masterKey) }) { result in
            outcome.update { $0 = result }
        }
        guard let result = outcome.wait(until: .now + .seconds(20), for: { $0 }) else { throw TestFailure("no unlock") }
        _ = try result.get()
    }
}
