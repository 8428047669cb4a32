internal import Glibc
internal import Synchronization

/// A directory whose contents are being transferred. Any thread.
final class TransferDirectory<SourceItem: Sendable, DestinationItem: Sendable>: Sendable {
    let source: SourceItem
    let destination: DestinationItem
    /// Below both roots; empty for the roots.
    let path: [UInt8]
    let parent: TransferDirectory?
    /// The source's status when it was entered; nil if only one file of it is transferred.
    let status: stat?
    /// True for a destination that was there and that the user named. It keeps its owner, mode, attributes and times.
    let keepsOwn: Bool
    /// True if the destination was just made, so that no earlier transfer has left anything in it.
    let isNew: Bool
    let depth: Int
    /// The number of unfinished pieces of work.
    private let pending = Atomic<Int>(1)

    init(
        _ source: SourceItem, _ destination: DestinationItem, path: [UInt8] = [], parent: TransferDirectory? = nil,
        status: stat?, isNew: Bool, keepsOwn: Bool = false
    ) {
        self.source = source
        self.destination = destination
        self.path = path
        self.parent = parent
        self.status = status
        self.isNew = isNew
        self.keepsOwn = keepsOwn
        depth = (parent?.depth ?? 0) + 1
    }

    func begin() {
        pending.add(1, ordering: .relaxed)
    }

    /// Returns true for the last piece.
    func end() -> Bool {
        pending.subtract(1, ordering: .acquiringAndReleasing).newValue == 0
    }

    func path(of name: [UInt8]) -> [UInt8] {
        path.isEmpty ? name : path + [UInt8(ascii: "/")] + name
    }
}
