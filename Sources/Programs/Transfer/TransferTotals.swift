internal import Glibc
internal import Synchronization

/// The work done so far by a transfer. `--json` of `import` and `export` has the names of the fields.
package struct TransferTotals: Encodable, Equatable, Sendable {
    /// The numbers of objects that could not be kept in full, by the kind of loss.
    package struct NotKept: Encodable, Equatable, Sendable {
        package var owners = 0
        package var modes = 0
        package var times = 0
        package var attributes = 0
        package var devices = 0
    }

    package var files = 0
    /// Directories made by the transfer.
    package var directories = 0
    package var symbolicLinks = 0
    package var hardLinks = 0
    /// Fifos, sockets and devices.
    package var specialFiles = 0
    /// Objects, without directories, that existed already.
    package var present = 0
    /// Objects without a right copy at the destination, except those counted as damaged or different.
    package var failed = 0
    /// Objects that did not verify: files with parts missing at the destination, and objects missing altogether.
    package var damaged = 0
    /// Objects compared and found equal to their source. Nil if the transfer compared nothing.
    package var verified: Int?
    /// Objects compared and found different.
    package var different = 0
    package var notKept = NotKept()
    /// Bytes written, or compared, without holes.
    package var bytes: UInt64 = 0
    /// Bytes that existed already: of whole files, and of the resumed part of others.
    package var bytesPresent: UInt64 = 0

    package init() {}

    /// The number of objects seen, without directories.
    package var objects: Int { files + symbolicLinks + hardLinks + specialFiles + present + failed }

    package mutating func add(compared: TransferTotals) {
        verified = compared.files
        different = compared.different
        failed += compared.failed
    }
}

/// The amount of work of a transfer, counted while it runs. Any thread.
package final class TransferSurvey: Sendable {
    package typealias Amount = (files: Int, bytes: UInt64)

    private let counted = Mutex<Amount?>(nil)
    private let isStopped = Atomic<Bool>(false)

    package init() {}

    /// Nil until everything is counted.
    package var result: Amount? { counted.withLock { $0 } }

    package func stop() { isStopped.store(true, ordering: .relaxed) }

    /// Counts one object in a directory, or everything below the directory. Objects that cannot be read count nothing.
    package func run<Tree: TransferTree>(_ tree: Tree, _ directory: Tree.Item, _ name: [UInt8]?) {
        var amount: Amount = (0, 0)
        count(tree, name.map { try? tree.find($0, in: directory) } ?? directory, &amount, depth: 0)
        if !isStopped.load(ordering: .relaxed) { counted.withLock { $0 = amount } }
    }

    private func count<Tree: TransferTree>(_ tree: Tree, _ item: Tree.Item?, _ amount: inout Amount, depth: Int) {
        guard let item, let status = try? tree.status(of: item) else { return }
        if status.st_mode & S_IFMT == S_IFDIR {
            guard depth <= 1000, var listing = try? tree.list(item) else { return }
            while !isStopped.load(ordering: .relaxed), let name = try? tree.next(&listing) {
                count(tree, try? tree.find(name, in: item), &amount, depth: depth + 1)
            }
            return
        }
        amount.files += 1
        // A hole is no work, so count at most the allocated blocks.
        let size = min(status.st_size, status.st_blocks * 512)
        if status.st_mode & S_IFMT == S_IFREG { amount.bytes += UInt64(max(0, size)) }
    }
}
