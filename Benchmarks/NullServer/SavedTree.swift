internal import FoundationEssentials
internal import Glibc
internal import Synchronization

/// The tree as a file between two mounts. Each node is three fields that end in a zero byte: numbers (mode, uid, gid,
/// length, mtime in seconds), path, target of a link; directories come before what is in them. A hard link becomes a
/// file of its own.
enum SavedTree {
    private static let zero: UInt8 = 0
    private static let slash = UInt8(ascii: "/")

    static func write(_ fileSystem: NullFileSystem, to path: String) throws {
        var bytes: [UInt8] = []
        fileSystem.tree.withLock { _ in
            var pending: [(path: [UInt8], node: NullNode)] = [([], fileSystem.root)]
            while let (path, node) = pending.popLast() {
                for (name, child) in node.children {
                    let childPath = path.isEmpty ? name : path + [slash] + name
                    append(child, childPath, to: &bytes)
                    if child.isDirectory { pending.append((childPath, child)) }
                }
            }
        }
        try Data(bytes).write(to: URL(filePath: path))
    }

    private static func append(_ node: NullNode, _ path: [UInt8], to bytes: inout [UInt8]) {
        let status = node.status
        let numbers = "\(status.st_mode) \(status.st_uid) \(status.st_gid) \(status.st_size) \(status.st_mtim.tv_sec)"
        bytes += Array(numbers.utf8) + [zero] + path + [zero] + node.target + [zero]
    }

    /// Fills an empty tree. A file that is not there is an empty tree; one that is not whole is an error.
    static func read(from path: String, into fileSystem: NullFileSystem) throws {
        guard access(path, F_OK) == 0 else { return }
        let fields = [UInt8](try Data(contentsOf: URL(filePath: path))).split(
            separator: zero, omittingEmptySubsequences: false)
        var directories: [[UInt8]: NullNode] = [[]: fileSystem.root]
        for start in stride(from: 0, to: fields.count - 3, by: 3) {
            let numbers = String(decoding: fields[start], as: UTF8.self).split(separator: " ").compactMap { Int($0) }
            let path = fields[start + 1]
            let cut = path.lastIndex(of: slash)
            let parent = cut.map { Array(path[..<$0]) } ?? []
            let name = cut.map { Array(path[($0 + 1)...]) } ?? Array(path)
            guard numbers.count == 5, let directory = directories[parent] else {
                throw CocoaError(.fileReadCorruptFile)
            }
            let node = NullNode(mode: mode_t(numbers[0]), uid: uid_t(numbers[1]), gid: gid_t(numbers[2]))
            node.attributes.st_mtim = timespec(tv_sec: numbers[4], tv_nsec: 0)
            node.target = Array(fields[start + 2])
            if node.isDirectory {
                directory.attributes.st_nlink += 1
                directories[Array(path)] = node
            } else {
                node.extend(to: UInt64(numbers[3]))
            }
            directory.children[name] = node
        }
    }
}
