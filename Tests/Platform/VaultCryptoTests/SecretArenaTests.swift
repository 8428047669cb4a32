import CLinux
import Foundation
import Testing

@testable import VaultCrypto

/// The memory for keys under a limit. Each test runs in its own process.
@Suite struct SecretArenaTests {
    @Test("not even root reads keys in memfd_secret memory")
    func notEvenRootReadsKeys() async {
        await #expect(processExitsWith: .success) {
            let key = secret(pattern(32))
            let memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC)
            let count = key.withUnsafeBytes { bytes in
                var buffer = [UInt8](repeating: 0, count: 32)
                return pread(memory, &buffer, 32, Int(bitPattern: bytes.baseAddress))
            }
            #expect(count == (SecretMemory.kind == .memfdSecret ? -1 : 32))
            #expect(content(key) == pattern(32))
        }
    }

    @Test("keys have room even where the cache then takes all that may be locked")
    func keysHaveRoomEvenWhere() async {
        await #expect(processExitsWith: .success) {
            limitLockedMemory(8 << 20)
            let best = bestKind()
            SecretMemory.reserve()
            #expect(exhaustLockedMemory() > 6 << 20)
            let keys = (0..<5000).map { _ in secret(pattern(32)) }
            #expect(SecretMemory.kind == best)
            // Another thread's buffers need memory, but no locked memory is left.
            let more = try SecretBytes(count: 100_000) { _ in }
            #expect(SecretMemory.kind == .unlocked)
            #expect(!SecretMemory.allLocked)
            withExtendedLifetime((keys, more)) {}
        }
    }

    @Test("where little may be locked, the first keys have that")
    func whereLittleMayBeLocked() async {
        await #expect(processExitsWith: .success) {
            limitLockedMemory(100 << 10)
            let best = bestKind()
            SecretMemory.reserve()
            let keys = (0..<2000).map { _ in secret(pattern(32)) }
            #expect(SecretMemory.kind == best)
            let more = (0..<200).map { _ in secret(pattern(32)) }
            #expect(SecretMemory.kind == .unlocked)
            withExtendedLifetime((keys, more)) {}
        }
    }

    @Test("without memfd_secret keys are locked, and the kind says so")
    func withoutMemfdSecretKeys() async {
        await #expect(processExitsWith: .success) {
            limitLockedMemory(8 << 20)
            SecretMemory.renounceMemfdSecret()
            SecretMemory.reserve()
            #expect(SecretMemory.kind == .locked)
            #expect(SecretMemory.allLocked)
        }
    }
}

/// Limits the lockable memory. The process becomes another user for good, because root may lock any amount.
private func limitLockedMemory(_ size: rlim_t) {
    if geteuid() == 0 { #expect(setuid(65534) == 0) }
    var limit = rlimit(rlim_cur: size, rlim_max: size)
    #expect(setrlimit(__rlimit_resource_t(__RLIMIT_MEMLOCK.rawValue), &limit) == 0)
}

private func bestKind() -> SecretMemoryKind {
    guard let page = linux_map_memfd_secret(4096) else { return .locked }
    linux_unmap_secret_memory(page, 4096)
    return .memfdSecret
}

/// Locks pages until the kernel refuses; returns their size.
private func exhaustLockedMemory() -> Int {
    var size = 0
    var locked: Int32 = 1
    while linux_map_secret_memory(16384, &locked) != nil, locked != 0 { size += 16384 }
    return size
}
