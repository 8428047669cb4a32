internal import Glibc
package import LinuxSystem

/// Visits the directories of a source. Opens one at a time, and follows no links.
package struct SourceWalk {
    /// The deepest level of directories. Deeper ones are passed to `failed`.
    package static let maximumDepth = 128

    /// A directory whose entries are being read.
    package struct Directory {
        /// Relative to the source. Empty for the source itself.
        package let path: [UInt8]
        package let descriptor: Descriptor
        /// The stamp from before the reading of its entries, so that a later comparison notices a change in between.
        package let stamp: FileStamp
    }

    private let root: Descriptor

    /// - Parameter root: the source, opened O_RDONLY|O_DIRECTORY.
    package init(_ root: Descriptor) { self.root = root }

    /// Opens a directory.
    /// - Parameter path: relative to the source.
    /// - Throws: `.system` with errno.
    package func open(_ path: [UInt8]) throws(StoreError) -> Descriptor {
        try root.opened(
            beneath: path.isEmpty ? [UInt8(ascii: ".")] : path, flags: O_RDONLY | O_DIRECTORY, followsLinks: false)
    }

    /// Visits a directory and those inside it.
    ///
    /// - Parameters:
    ///   - enters: returns false for a directory to leave out.
    ///   - failed: receives the unreadable directories inside.
    ///   - file: receives every other entry. Returns false to end the walk.
    ///   - end: receives a directory after its entries.
    /// - Throws: `.system` with errno if the first directory cannot be read.
    package func run(
        from start: [UInt8], enters: ([UInt8]) -> Bool = { _ in true },
        failed: ([UInt8], StoreError) -> Void = { _, _ in }, end: (Directory) -> Void = { _ in },
        file: (Component, [UInt8], Directory) -> Bool
    ) throws(StoreError) {
        var waiting: [[UInt8]] = []
        func visit(_ path: [UInt8]) throws(StoreError) -> Bool {
            let descriptor = try open(path)
            let directory = Directory(path: path, descriptor: descriptor, stamp: FileStamp(try descriptor.status()))
            let depth = path.isEmpty ? 0 : path.count { $0 == UInt8(ascii: "/") } + 1
            var reader = DirectoryReader(descriptor)
            while let entry = try reader.next() {
                let inside = joinedPath(path, entry.bytes)
                if !Self.isDirectory(entry, reader.type, in: descriptor) {
                    guard file(entry, inside, directory) else { return false }
                } else if depth < Self.maximumDepth {
                    waiting.append(inside)
                } else {
                    failed(inside, .damaged("more than \(Self.maximumDepth) directories deep"))
                }
            }
            end(directory)
            return true
        }
        guard try visit(start) else { return }
        while let path = waiting.popLast() {
            if !enters(path) { continue }
            do throws(StoreError) {
                guard try visit(path) else { return }
            } catch {
                failed(path, error)
            }
        }
    }

    private static func isDirectory(_ entry: Component, _ type: UInt8, in directory: Descriptor) -> Bool {
        guard type == UInt8(DT_UNKNOWN) else { return type == UInt8(DT_DIR) }
        return (try? directory.status(of: entry)).map { $0.st_mode & S_IFMT == S_IFDIR } ?? false
    }
}
