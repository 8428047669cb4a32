import LinuxSystem
import Locking
import Logging
import TestSupport
import VaultCrypto

@testable import VaultFileSystem

/// The lock of a mounted workload: locks and unlocks it.
final class CutLock {
    private let controller: LockController

    init(_ system: VaultFileSystem) throws {
        controller = LockController(
            fileSystem: system, options: LockOptions(), caches: NoCaches(),
            logger: Logger(label: "test"), secretWanted: { _ in }, announce: { _ in })
        try controller.start()
    }

    func stop() { controller.stop() }

    func lock(forgets: Bool) throws {
        let isDone = Monitor(false)
        _ = controller.lock(.command, forgetsKeys: forgets) { _, _ in isDone.update { $0 = true } }
        let isLocked = isDone.wait(until: .now + .seconds(20)) { $0 ? true : nil }
        if isLocked == nil { throw TestFailure("no lock") }
    }

    func unlock(_ masterKey: SecretBytes) throws {
        let outcome = Monitor<Result<Bool, UnlockRefusal>?>(nil)
        let secret: LockController.SecretSource = { () throws(UnlockRefusal) in UnlockSecret(masterKey) }
        controller.unlock(secret: secret) { result in outcome.update { $0 = result } }
        let result = outcome.wait(until: .now + .seconds(20)) { $0 }
        guard let result else { throw TestFailure("no unlock") }
        _ = try result.get()
    }
}
