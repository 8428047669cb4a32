internal import CLinux
internal import Synchronization

/// Where secrets lie: slabs of memory that is locked, left out of core dumps and emptied in a forked child, cut into
/// slots, so that the keys of thousands of open files fit in few pages. Any thread.
package enum SecretMemory {
    private struct State {
        /// Free slots by size class. Addresses as integers: a pointer is not Sendable.
        var free: [Int: [UInt]] = [:]
        var allLocked = true
    }

    private static let state = Mutex(State())
    private static let slabSize = 64 << 10
    private static let smallest = 16
    private static let largest = 512

    /// False once the system refused to lock a page.
    package static var allLocked: Bool { state.withLock { $0.allLocked } }

    private static func slotSize(_ count: Int) -> Int {
        var size = smallest
        while size < count { size *= 2 }
        return size
    }

    /// Zeroed memory for `count` bytes.
    static func allocate(_ count: Int) throws(CryptoError) -> UnsafeMutableRawPointer {
        let size = slotSize(max(count, 1))
        let address = state.withLock { state -> UInt? in
            if size > largest { return map(size, &state) }
            if let slot = state.free[size]?.popLast() { return slot }
            guard let slab = map(slabSize, &state) else { return nil }
            state.free[size, default: []] += stride(from: slabSize - size, to: 0, by: -size).map { slab + UInt($0) }
            return slab
        }
        guard let address, let pointer = UnsafeMutableRawPointer(bitPattern: address) else {
            throw .library(operation: "mmap of secret memory")
        }
        return pointer
    }

    private static func map(_ size: Int, _ state: inout State) -> UInt? {
        var locked: Int32 = 0
        guard let memory = linux_map_secret_memory(size, &locked) else { return nil }
        if locked == 0 { state.allLocked = false }
        return UInt(bitPattern: memory)
    }

    /// Zeroes the memory and takes it back.
    static func release(_ pointer: UnsafeMutableRawPointer, count: Int) {
        let size = slotSize(max(count, 1))
        if size > largest { return linux_unmap_secret_memory(pointer, size) }
        cleanse(UnsafeMutableRawBufferPointer(start: pointer, count: size))
        state.withLock { $0.free[size, default: []].append(UInt(bitPattern: pointer)) }
    }
}
