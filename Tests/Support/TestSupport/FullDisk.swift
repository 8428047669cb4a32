internal import CLinux
internal import Glibc
internal import Synchronization

/// A disk with only some blocks, accounted for each file as by ext4: if a write past a file's end finds no space, it
/// takes away all space reserved there (fallocate(2) with KEEP_SIZE). Freed space may be lost, as if other programs
/// took it at once.
package final class FullDisk: Sendable {
    private static let block = 4096

    private struct State {
        /// Each file's block numbers, by its inode number.
        var blocks: [UInt64: Set<Int>] = [:]
        var free: Int
        var keepsFreed: Bool
    }

    private let state: Mutex<State>

    /// - Parameter free: the free space in blocks of 4096 bytes.
    package init(free: Int, keepsFreed: Bool = false) { state = Mutex(State(free: free, keepsFreed: keepsFreed)) }

    /// Sets the free blocks.
    package func set(free: Int) { state.withLock { $0.free = free } }

    /// Takes all free blocks, and those freed from now on.
    package func takeAll() { state.withLock { ($0.free, $0.keepsFreed) = (0, true) } }

    /// Runs `body` with the files of a directory on this disk. Existing files have no account until they are written.
    package func during(in directory: String, _ body: () throws -> Void) rethrows {
        try CallWatcher.watch(directory, { [self] in answer($0) }, during: body)
    }

    private func answer(_ call: WatchedCall) -> Int32 {
        guard call.kind == .write || call.kind == .truncate else { return 0 }
        var status = stat()
        guard fstat(call.descriptor, &status) == 0 else { return 0 }
        let size = Int(status.st_size)
        return state.withLock { state in
            if call.kind == .truncate {
                let end = Self.blocks(of: 0..<call.size).upperBound
                release(UInt64(status.st_ino), &state) { $0 >= end && call.size <= size }
                return 0
            }
            if let mode = call.allocationMode, mode & linux_FALLOC_FL_PUNCH_HOLE != 0 {
                let first = (call.range.lowerBound + Self.block - 1) / Self.block
                release(UInt64(status.st_ino), &state) { $0 >= first && ($0 + 1) * Self.block <= call.range.upperBound }
                return 0
            }
            let wanted = Set(Self.blocks(of: call.range)).subtracting(state.blocks[UInt64(status.st_ino)] ?? [])
            guard wanted.count <= state.free else {
                if call.allocationMode == nil, call.range.upperBound > size {
                    let end = Self.blocks(of: 0..<size).upperBound
                    release(UInt64(status.st_ino), &state) { $0 >= end }
                }
                return ENOSPC
            }
            state.free -= wanted.count
            state.blocks[UInt64(status.st_ino), default: []].formUnion(wanted)
            return 0
        }
    }

    private func release(_ file: UInt64, _ state: inout State, where isFreed: (Int) -> Bool) {
        guard let blocks = state.blocks[file] else { return }
        let kept = blocks.filter { !isFreed($0) }
        state.blocks[file] = kept
        if !state.keepsFreed { state.free += blocks.count - kept.count }
    }

    private static func blocks(of range: Range<Int>) -> Range<Int> {
        (range.lowerBound / block)..<((range.upperBound + block - 1) / block)
    }
}
