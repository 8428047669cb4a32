internal import CLinux
internal import Synchronization

/// A piece of locked memory, owned by whoever holds it until it is given back to ``SecretArena``.
///
/// `@unchecked Sendable`: it is an address and a size; the owner answers for what is done with the memory.
struct SecretSlot: @unchecked Sendable {
    let base: UnsafeMutableRawPointer
    /// Bytes at `base` that the owner may use: the count asked for, rounded up.
    let capacity: Int
}

/// Hands out zeroed memory that is locked, left out of core dumps and empty in a forked child.
///
/// Keys are small and many: each open file has some. So 64 KiB slabs are locked at a time and cut into pages of equal
/// slots; a page of 32-byte slots holds 128 keys. Slots given back are wiped and used again, slabs are kept.
enum SecretArena {
    private static let slabSize = 65536
    private static let pageSize = 4096
    private static let slotSizes = [32, 64, 128, 256]

    private struct State: @unchecked Sendable {
        /// Heads of the lists of free slots, one per slot size; a free slot's first word is the next one's address.
        var free: [UnsafeMutableRawPointer?] = [nil, nil, nil, nil]
        /// The part of the newest slab that is not yet cut into slots.
        var uncut: UnsafeMutableRawPointer?
        var uncutSize = 0
        var allLocked = true
    }
    private static let state = Mutex(State())

    /// False once the kernel refused to lock a mapping (RLIMIT_MEMLOCK). Any thread.
    static var allLocked: Bool { state.withLock { $0.allLocked } }

    /// A zeroed slot of at least `count` bytes, or nil where the kernel gives no memory. Any thread.
    static func allocate(count: Int) -> SecretSlot? {
        state.withLock { state in
            guard let sizeClass = slotSizes.firstIndex(where: { count <= $0 }) else {
                return map(count, &state).map { SecretSlot(base: $0, capacity: count) }
            }
            guard state.free[sizeClass] != nil || cutPage(sizeClass, &state), let base = state.free[sizeClass] else {
                return nil
            }
            state.free[sizeClass] = base.load(as: UnsafeMutableRawPointer?.self)
            base.storeBytes(of: nil, as: UnsafeMutableRawPointer?.self)
            return SecretSlot(base: base, capacity: slotSizes[sizeClass])
        }
    }

    /// Wipes the slot and takes it back. Any thread.
    static func deallocate(_ slot: SecretSlot) {
        guard let sizeClass = slotSizes.firstIndex(of: slot.capacity) else {
            return linux_unmap_secret_memory(slot.base, slot.capacity)
        }
        wipe(slot.base, count: slot.capacity)
        state.withLock { state in
            slot.base.storeBytes(of: state.free[sizeClass], as: UnsafeMutableRawPointer?.self)
            state.free[sizeClass] = slot.base
        }
    }

    private static func map(_ size: Int, _ state: inout State) -> UnsafeMutableRawPointer? {
        var locked: Int32 = 0
        guard let base = linux_map_secret_memory(size, &locked) else { return nil }
        if locked == 0 { state.allLocked = false }
        return base
    }

    /// Puts a page's worth of slots on the free list.
    private static func cutPage(_ sizeClass: Int, _ state: inout State) -> Bool {
        if state.uncutSize == 0 {
            guard let slab = map(slabSize, &state) else { return false }
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

/// What is known about the memory that holds secrets.
package enum SecretMemory {
    /// False once the kernel refused to lock a mapping for secrets (mlock(2), RLIMIT_MEMLOCK): it may then be swapped
    /// out. Any thread.
    package static var allLocked: Bool { SecretArena.allLocked }
}
