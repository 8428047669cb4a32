import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// The tests wait for a released lock, which a child of another test keeps until it runs its program.
@Suite struct VaultLockTests {
    private let directory: VaultTestDirectory
    private let path: FilePath

    init() throws {
        directory = try VaultTestDirectory()
        path = directory.path.appending("vault")
        try VaultCreation.create(
            at: path, chunkSize: 4096, slots: [VaultFixture.slot(VaultFixture.passphrase())])
    }

    @Test(
        "a second one is refused, naming the process",
        arguments: [
            (VaultDirectory.Sharing.exclusive, VaultDirectory.Sharing.exclusive), (.exclusive, .shared),
            (.shared, .exclusive),
        ]
    )
    func secondOneIsRefused(
        first: VaultDirectory.Sharing, second: VaultDirectory.Sharing
    ) throws {
        let holder = try VaultDirectory.open(path)
        try holder.lock(first, wait: .seconds(60))
        let other = try VaultDirectory.open(path)
        let error = #expect(throws: VaultError.self) { try other.lock(second, wait: .zero) }
        guard case .inUse(path, let found?)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(found.processID == getpid())
        #expect(error?.description == "\(path) is in use by process \(getpid()) (\(found.command ?? ""))")
        #expect(LockOwner.find(descriptor: other.descriptor) == found)
        withExtendedLifetime(holder) {}
    }

    @Test("a reader of a new vault keeps writers out by the file, too")
    func readerOfNewVaultKeeps() throws {
        let reader = try VaultDirectory.open(path)
        try reader.lock(.shared, wait: .seconds(60))
        let writer = try VaultDirectory.open(path)
        #expect(throws: StoreError.system(.wouldBlock)) {
            _ = try WriterLock.acquire(root: writer.descriptor, .exclusive, wait: .zero)
        }
        withExtendedLifetime(reader) {}
    }

    @Test("readers share")
    func readersShare() throws {
        let first = try VaultDirectory.open(path)
        let second = try VaultDirectory.open(path)
        try first.lock(.shared, wait: .seconds(60))
        try second.lock(.shared, wait: .seconds(60))
    }

    @Test("the lock goes with the last reference")
    func lockGoesWithLastReference() throws {
        do {
            let first = try VaultDirectory.open(path)
            try first.lock(wait: .seconds(60))
        }
        let second = try VaultDirectory.open(path)
        try poll("the end of the lock") { LockOwner.find(descriptor: second.descriptor) == nil }
        try second.lock(wait: .seconds(60))
    }

    @Test("waits for one that is shutting down")
    func waitsForOneThatIsShutting() throws {
        let first = try VaultDirectory.open(path)
        try first.lock(wait: .seconds(60))
        let second = try VaultDirectory.open(path)
        // A thread releases it, whenever that is. A task would not do, because this test may use the last thread of
        // their pool.
        let releasing = try BackgroundThread { first.releaseLock() }
        try second.lock(wait: .seconds(60))
        releasing.join()
    }

    @Test("a configuration written before the lock was had is seen")
    func configurationWrittenBeforeLock() throws {
        let vault = try VaultDirectory.open(path)
        try vault.lock(wait: .seconds(60))
        let text = try VaultFixture.configurationText(path)
        let other = try VaultFixture.configurationText(VaultFixture.vector("vault-4096"))
        try Data(other.utf8).write(to: URL(fileURLWithPath: path.appending("vaultfs.json").string))
        #expect(text != other)
        #expect(try vault.reread().configuration.vault.hex == "aa14cfe2f9efc0a897506b33da20179a")
    }
}
