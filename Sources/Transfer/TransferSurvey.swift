internal import Glibc
internal import Synchronization

/// The amount of work of a transfer, counted while it runs. Any thread.
package final class TransferSurvey: Sendable {
    private let files = Atomic<Int>(0)
    private let bytes = Atomic<Int>(0)
    private let isComplete = Atomic<Bool>(false)
    private let isStopped = Atomic<Bool>(false)

    package init() {}

    /// Nil until everything is counted.
    package var result: (files: Int, bytes: UInt64)? {
        guard isComplete.load(ordering: .acquiring) else { return nil }
        return (files.load(ordering: .relaxed), UInt64(bytes.load(ordering: .relaxed)))
    }

    package func stop() { isStopped.store(true, ordering: .relaxed) }

    /// Counts one object in a directory, or everything below the directory. Objects that cannot be read count nothing.
    package func run<Tree: TransferTree>(_ tree: Tree, _ directory: Tree.Item, _ name: [UInt8]?) {
        count(tree, name.map { try? tree.find($0, in: directory) } ?? directory, depth: 0)
        if !isStopped.load(ordering: .relaxed) { isComplete.store(true, ordering: .releasing) }
    }

    private func count<Tree: TransferTree>(_ tree: Tree, _ item: Tree.Item?, depth: Int) {
        guard let item, let status = try? tree.status(of: item) else { return }
        if status.st_mode & S_IFMT == S_IFDIR {
            guard depth <= 1000, var listing = try? tree.list(item) else { return }
            while !isStopped.load(ordering: .relaxed), let name = try? tree.next(&listing) {
                count(tree, try? tree.find(name, in: item), depth: depth + 1)
            }
            return
        }
        files.add(1, ordering: .relaxed)
        // A hole is no work.
        let size = min(status.st_size, status.st_blocks * 512)
        if status.st_mode & S_IFMT == S_IFREG { bytes.add(max(0, Int(size)), ordering: .relaxed) }
    }
}
