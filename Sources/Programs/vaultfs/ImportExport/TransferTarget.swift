internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import Transfer

/// The source or the destination of a transfer.
struct TransferTarget<Tree: TransferTree> {
    let tree: Tree
    let directory: Tree.Item
    /// An entry of the directory, other than a directory; nil for the directory itself.
    var name: [UInt8]?
    /// True if this run made the directory.
    var isNew = false

    /// Finds an existing object.
    /// - Parameter shown: the path, for messages.
    static func source(_ tree: Tree, _ root: Tree.Item, _ path: [[UInt8]], shown: String) throws -> TransferTarget {
        guard let last = path.last else { return TransferTarget(tree: tree, directory: root) }
        let parent = try directory(tree, root, path.dropLast(), shown, advice: "")
        guard let item = try tree.find(last, in: parent) else {
            throw CommandFailure(.failure, "\(shown): no such file or directory")
        }
        let isDirectory = try tree.status(of: item).st_mode & S_IFMT == S_IFDIR
        return isDirectory
            ? TransferTarget(tree: tree, directory: item) : TransferTarget(tree: tree, directory: parent, name: last)
    }

    /// Finds the destination, or makes a directory for a tree. Only the last component may be missing.
    /// - Parameters:
    ///   - isDirectory: true if the path ends with a slash. A file then goes into that directory, which must exist.
    ///   - file: the name of a file's copy in an existing directory; nil for a tree.
    ///   - advice: appended to the failure if any other component is missing.
    static func destination(
        _ tree: Tree, _ root: Tree.Item, _ path: [[UInt8]], isDirectory: Bool, for file: [UInt8]?, shown: String,
        advice: String
    ) throws -> TransferTarget {
        if let file, isDirectory {
            return TransferTarget(
                tree: tree, directory: try directory(tree, root, path[...], shown, advice: advice), name: file)
        }
        guard let last = path.last else { return TransferTarget(tree: tree, directory: root, name: file) }
        let parent = try directory(tree, root, path.dropLast(), shown, advice: advice)
        if let item = try tree.find(last, in: parent) {
            if try tree.status(of: item).st_mode & S_IFMT == S_IFDIR {
                return TransferTarget(tree: tree, directory: item, name: file)
            }
            guard file != nil else { throw CommandFailure(.failure, "\(shown): not a directory") }
            return TransferTarget(tree: tree, directory: parent, name: last)
        }
        if file != nil { return TransferTarget(tree: tree, directory: parent, name: last) }
        do throws(StoreError) {
            let made = try tree.make(last, .directory(mode: 0o700), in: parent)
            return TransferTarget(tree: tree, directory: made, isNew: true)
        } catch {
            throw CommandFailure(.failure, "cannot make \(shown): \(error.errno)")
        }
    }

    private static func directory(
        _ tree: Tree, _ root: Tree.Item, _ path: ArraySlice<[UInt8]>, _ shown: String, advice: String
    ) throws -> Tree.Item {
        var item = root
        for name in path {
            guard let next = try tree.find(name, in: item) else {
                throw CommandFailure(
                    .failure, "\(shown): there is no directory '\(FilePath(bytes: name).shown)'\(advice)")
            }
            guard try tree.status(of: next).st_mode & S_IFMT == S_IFDIR else {
                throw CommandFailure(.failure, "\(shown): '\(FilePath(bytes: name).shown)' is not a directory")
            }
            item = next
        }
        return item
    }
}

/// A path typed by the user. Links on the way to it are followed, but links below it are not.
struct LocalPath {
    /// An O_PATH descriptor.
    let root: Descriptor
    /// The path below `root`: one name, or none for `root` itself.
    let path: [[UInt8]]
    /// The name for the file's copy; nil for a directory.
    let fileName: [UInt8]?

    /// Opens a directory, or the directory of a file.
    /// - Parameter mayBeMissing: true if only the directory above has to exist.
    init(_ path: FilePath, mayBeMissing: Bool) throws(CommandFailure) {
        let flags = linux_O_PATH | O_DIRECTORY
        if let directory = try? Descriptor(path: path, flags: flags) {
            (root, self.path, fileName) = (directory, [], nil)
            return
        }
        let resolved = try CommandFailure.wrapping(
            "cannot open", path, try mayBeMissing ? ResolvedPath.ofMountpoint(path) : ResolvedPath.of(path))
        guard let last = resolved.lastComponent, let typed = path.lastComponent else {
            throw CommandFailure(.failure, "cannot open \(path.shown)")
        }
        let directory = resolved.removingLastComponent()
        root = try CommandFailure.wrapping("cannot open", path, try Descriptor(path: directory, flags: flags))
        self.path = [FilePath(root: nil, [last]).bytes]
        fileName = FilePath(root: nil, [typed]).bytes
    }
}
