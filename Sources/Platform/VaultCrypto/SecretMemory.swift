internal import CLinux
internal import COpenSSL
internal import Synchronization

/// The protection of the memory for secrets. Later cases are weaker.
package enum SecretMemoryKind: String, Codable, Sendable {
    /// memfd_secret(2): missing in the kernel's own map of memory, out of reach of ptrace(2), never swapped out.
    case memfdSecret = "memfd_secret"
    /// mlock(2): never swapped out.
    case locked = "mlock"
    /// Neither, so it may reach swap.
    case unlocked = "swappable"
}

/// A piece of protected memory. Its owner returns it to ``SecretMemory``.
///
/// `@unchecked Sendable`: it is an address and a size. The owner synchronises access to the memory.
struct SecretSlot: @unchecked Sendable {
    let base: UnsafeMutableRawPointer
    /// The usable bytes at `base`: the requested count, rounded up.
    let capacity: Int
}

/// Provides zeroed memory for secrets, of the best kind available: memfd_secret(2), else locked anonymous memory, else
/// (RLIMIT_MEMLOCK) unlocked memory. Core dumps and forked children get none of it. Any thread.
///
/// System calls that pin pages fail on memfd_secret memory (EFAULT): replies to /dev/fuse, O_DIRECT, vmsplice. Those
/// that copy, such as read(2) and send(2), work. Keys are small and many, because each open file has some, so slabs are
/// mapped and cut into pages of equal slots. A page of 32-byte slots holds 128 keys. Returned slots are wiped and
/// reused. Slabs are kept.
package enum SecretMemory {
    private static let reservedSize = 1 << 20
    private static let slabSize = 65536
    private static let pageSize = 4096
    private static let slotSizes = [32, 64, 128, 256]

    private struct State: @unchecked Sendable {
        /// The heads of the lists of free slots, one per slot size. A free slot's first word is the address of the next
        /// one.
        var free: [UnsafeMutableRawPointer?] = [nil, nil, nil, nil]
        /// The part of the newest slab not yet cut into slots.
        var uncut: UnsafeMutableRawPointer?
        var uncutSize = 0
        var weakestKind = SecretMemoryKind.memfdSecret
        var usesMemfdSecret = true
    }
    private static let state = Mutex(State())

    /// The weakest kind of memory for secrets of this process so far.
    package static var kind: SecretMemoryKind { state.withLock { $0.weakestKind } }

    /// False once a secret had to lie in memory that may be swapped out (mlock(2), RLIMIT_MEMLOCK).
    package static var allLocked: Bool { kind != .unlocked }

    /// Reserves 1 MiB of the best kind available, for the keys of some 5,000 open files, before caches and buffers use
    /// up the memory that this process may lock (RLIMIT_MEMLOCK). If that is too much, memory is mapped as keys arrive.
    /// Call it once, before the first secret.
    package static func reserve() {
        state.withLock { state in
            guard state.uncutSize == 0, let slab = map(reservedSize, &state, mayBeUnlocked: false) else { return }
            state.uncut = slab
            state.uncutSize = reservedSize
        }
    }

    /// Stops the use of memfd_secret for tests that look for secrets through /proc/self/mem, where such memory is
    /// missing, so that they would never find any. Later memory is at most locked.
    static func renounceMemfdSecret() { state.withLock { $0.usesMemfdSecret = false } }

    /// Returns a zeroed slot of at least `count` bytes. Throws `.library` if the kernel has no memory.
    static func allocate(count: Int) throws(CryptoError) -> SecretSlot {
        let slot = state.withLock { state -> SecretSlot? in
            guard let sizeClass = slotSizes.firstIndex(where: { count <= $0 }) else {
                return map(count, &state, mayBeUnlocked: true).map { SecretSlot(base: $0, capacity: count) }
            }
            guard state.free[sizeClass] != nil || cutPage(sizeClass, &state), let base = state.free[sizeClass] else {
                return nil
            }
            state.free[sizeClass] = base.load(as: UnsafeMutableRawPointer?.self)
            base.storeBytes(of: nil, as: UnsafeMutableRawPointer?.self)
            return SecretSlot(base: base, capacity: slotSizes[sizeClass])
        }
        guard let slot else { throw .library(operation: "mmap") }
        return slot
    }

    /// Wipes the slot and takes it back.
    static func deallocate(_ slot: SecretSlot) {
        guard let sizeClass = slotSizes.firstIndex(of: slot.capacity) else {
            return linux_unmap_secret_memory(slot.base, slot.capacity)
        }
        OPENSSL_cleanse(slot.base, slot.capacity)
        state.withLock { state in
            slot.base.storeBytes(of: state.free[sizeClass], as: UnsafeMutableRawPointer?.self)
            state.free[sizeClass] = slot.base
        }
    }

    private static func map(_ size: Int, _ state: inout State, mayBeUnlocked: Bool) -> UnsafeMutableRawPointer? {
        if state.usesMemfdSecret, let base = linux_map_memfd_secret(size) { return base }
        var locked: Int32 = 0
        guard let base = linux_map_secret_memory(size, &locked) else { return nil }
        guard locked != 0 || mayBeUnlocked else {
            linux_unmap_secret_memory(base, size)
            return nil
        }
        if locked == 0 || state.weakestKind == .memfdSecret { state.weakestKind = locked == 0 ? .unlocked : .locked }
        return base
    }

    /// Puts a page's worth of slots on the free list.
    private static func cutPage(_ sizeClass: Int, _ state: inout State) -> Bool {
        if state.uncutSize == 0 {
            guard let slab = map(slabSize, &state, mayBeUnlocked: true) else { return false }
            state.uncut = slab
            state.uncutSize = slabSize
        }
        guard let page = state.uncut else { return false }
        state.uncut = page + pageSize
        state.uncutSize -= pageSize
        for offset in stride(from: 0, to: pageSize, by: slotSizes[sizeClass]).reversed() {
            (page + offset).storeBytes(of: state.free[sizeClass], as: UnsafeMutableRawPointer?.self)
            state.free[sizeClass] = page + offset
        }
        return true
    }
}
