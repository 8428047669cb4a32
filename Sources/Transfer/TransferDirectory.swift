internal import Glibc
internal import Synchronization

/// A directory that is being transferred, until all in it is. Any thread.
final class TransferDirectory<SourceItem: Sendable, DestinationItem: Sendable>: Sendable {
    let source: SourceItem
    let destination: DestinationItem
    /// Below both roots; empty for the roots.
    let path: [UInt8]
    let parent: TransferDirectory?
    /// What the source was when it was entered; nil where a single file of it is transferred.
    let status: stat?
    /// A person named the destination, which was there: it keeps its owner, mode, attributes and times.
    let keepsOwn: Bool
    /// Nothing a former transfer has left can be in it.
    let isNew: Bool
    let depth: Int
    /// Pieces of work that are not done.
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

    /// Returns whether that was the last piece.
    func end() -> Bool {
        pending.subtract(1, ordering: .acquiringAndReleasing).newValue == 0
    }

    func path(of name: [UInt8]) -> [UInt8] {
        path.isEmpty ? name : path + [UInt8(ascii: "/")] + name
    }
}
