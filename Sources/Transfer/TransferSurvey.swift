internal import FileSystem
internal import Glibc
internal import Synchronization

/// How much there is to transfer, found out beside the transfer. Any thread.
package final class TransferSurvey: Sendable {
    private let files = Atomic<Int>(0)
    private let bytes = Atomic<Int>(0)
    private let isComplete = Atomic<Bool>(false)
    private let isStopped = Atomic<Bool>(false)

    package init() {}

    /// Nil as long as it is not all known.
    package var result: (files: Int, bytes: UInt64)? {
        guard isComplete.load(ordering: .acquiring) else { return nil }
        return (files.load(ordering: .relaxed), UInt64(bytes.load(ordering: .relaxed)))
    }

    /// It is known without looking.
    package func complete(files: Int, bytes: UInt64) {
        self.files.store(files, ordering: .relaxed)
        self.bytes.store(Int(clamping: bytes), ordering: .relaxed)
        isComplete.store(true, ordering: .releasing)
    }

    /// The transfer has ended.
    package func stop() {
        isStopped.store(true, ordering: .relaxed)
    }

    /// Counts what is below a directory. What cannot be read counts nothing.
    package func run<Tree: TransferTree>(_ tree: Tree, below directory: Tree.Item) {
        count(tree, below: directory, depth: 0)
        if !isStopped.load(ordering: .relaxed) { isComplete.store(true, ordering: .releasing) }
    }

    private func count<Tree: TransferTree>(_ tree: Tree, below directory: Tree.Item, depth: Int) {
        guard depth <= 1000, var listing = try? tree.list(directory) else { return }
        while !isStopped.load(ordering: .relaxed), let name = try? tree.next(&listing) {
            guard let item = try? tree.find(name, in: directory), let status = try? tree.status(of: item) else {
                continue
            }
            if status.st_mode & S_IFMT == S_IFDIR {
                count(tree, below: item, depth: depth + 1)
            } else {
                files.add(1, ordering: .relaxed)
                // A hole is no work.
                let size = min(status.st_size, status.st_blocks * 512)
                if status.st_mode & S_IFMT == S_IFREG { bytes.add(max(0, Int(size)), ordering: .relaxed) }
            }
        }
    }
}
