import FileSystem
import FuseSession
import Glibc
import LinuxSystem
import Locking
import TestSupport
import Testing

/// A worker that serves a program alone, on a real mount.
@Suite(.serialized, .timeLimit(.minutes(60)), .enabled(if: FuseDevice.isUsable, "/dev/fuse is not here"))
struct SingleWorkerTests {
    /// A request that blocks its worker until the test releases it: the report of a damaged file.
    private final class Stuck: Sendable {
        let isIn = Monitor(false)
        let mayGo = Monitor(false)

        func wait() {
            isIn.update { $0 = true }
            // Bounded, because an endless wait would keep the mount, and so the test's process, from ending.
            _ = mayGo.wait(until: .now + .seconds(120)) { $0 ? () : nil }
        }
    }

    /// Sends requests as a single program does, until one worker serves it alone. statfs(2) always reaches the worker,
    /// because the kernel never answers it itself.
    private static func becomeSingle(_ mount: MountInProcess, _ mountpoint: String) -> Bool {
        let before = mount.statistics.clientsFollowed
        let deadline = monotonicMilliseconds() + 20_000
        while mount.statistics.clientsFollowed == before {
            if monotonicMilliseconds() > deadline { return false }
            ask(mountpoint)
        }
        // The other workers sleep once they have returned from a request.
        for _ in 0..<100 { ask(mountpoint) }
        return true
    }

    @discardableResult
    private static func ask(_ mountpoint: String) -> Bool {
        var space = statvfs()
        return statvfs(mountpoint, &space) == 0
    }

    /// Returns a vault with one file whose content is damaged.
    private func damagedVault() throws -> VaultUnderTest {
        let vault = try VaultUnderTest()
        let mount = try MountInProcess(vault, .byEpoch)
        defer { mount.end() }
        try Command(["sh", "-c", "head -c 8192 /dev/zero > \"$1/f\"", "sh", vault.mountpoint]).run().succeeded()
        return vault
    }

    private func damage(_ vault: VaultUnderTest) throws {
        let words = [
            "find", vault.vault, "-type", "f", "-size", "+8191c", "!", "-name", "vaultfs.*", "-printf", "%p",
        ]
        let file = open(try Command(words).run().succeeded().output, O_RDWR)
        defer { close(file) }
        var byte: UInt8 = 0
        #expect(pread(file, &byte, 1, 5000) == 1)
        // Invert the byte, because a constant could be there already.
        byte = ~byte
        #expect(pwrite(file, &byte, 1, 5000) == 1)
    }

    @Test(
        "a worker that blocks in a request delays nobody, neither a waiting request nor a later one",
        arguments: [0, 100])
    func stuck(laterMilliseconds: UInt32) throws {
        let vault = try damagedVault()
        try damage(vault)
        let mount = try MountInProcess(vault, .byEpoch)
        defer { mount.end() }
        let stuck = Stuck()
        mount.onDamage { _ in stuck.wait() }
        let (mountpoint, path) = (vault.mountpoint, "\(vault.mountpoint)/f")
        let program = try BackgroundThread {
            let file = open(path, O_RDONLY)
            // Make one request for one page, because a second would show at once that the first is blocked.
            posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM)
            #expect(Self.becomeSingle(mount, mountpoint))
            var byte: UInt8 = 0
            #expect(pread(file, &byte, 1, 4096) == -1)
            close(file)
        }
        defer { program.join() }
        defer { stuck.mayGo.update { $0 = true } }
        try #require(stuck.isIn.wait(until: .now + .seconds(60)) { $0 ? () : nil } != nil)
        // Wait longer than the period of checks for a blocked worker.
        usleep(laterMilliseconds * 1000)
        let answered = Monitor<Int?>(nil)
        let other = try BackgroundThread {
            let start = monotonicNanoseconds()
            for _ in 0..<100 { Self.ask(mountpoint) }
            answered.update { $0 = monotonicNanoseconds() - start }
        }
        defer { other.join() }
        defer { stuck.mayGo.update { $0 = true } }
        #expect(answered.wait(until: .now + .seconds(10)) { $0 } != nil)
    }

    @Test("while the other workers sleep, a lock wipes them too, and an unmount ends them")
    func lockAndUnmount() throws {
        let vault = try VaultUnderTest()
        let mount = try MountInProcess(vault, .byEpoch)
        for _ in 0..<5 {
            #expect(Self.becomeSingle(mount, vault.mountpoint))
            let receipt = mount.lock()
            #expect(receipt.complete, "\(receipt.unpurged)")
            mount.unlock()
            // Now another program makes requests.
            let look = "for i in $(seq 100); do test ! -e \"$1/$i\"; done"
            try Command(["sh", "-ec", look, "sh", vault.mountpoint]).run().succeeded()
        }
        #expect(Self.becomeSingle(mount, vault.mountpoint))
        mount.end()
    }

    @Test("an unmount from outside ends the sleeping workers")
    func outside() throws {
        let vault = try VaultUnderTest()
        let mount = try MountInProcess(vault, .byEpoch)
        #expect(Self.becomeSingle(mount, vault.mountpoint))
        try Command(["fusermount3", "-u", vault.mountpoint]).run().succeeded()
        mount.join()
    }
}
