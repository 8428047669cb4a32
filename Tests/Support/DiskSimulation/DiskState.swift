internal import CLinux
import Glibc
internal import TestSupport

/// A directory tree on a simulated disk.
package struct DiskState: Sendable {
    static let root = 0

    var objects: [Int: DiskObject] = [root: .directory]
    var names: [Int: [[UInt8]: Int]] = [:]
    var files: [Int: DiskFile] = [:]

    /// Applies a change of names.
    mutating func apply(_ event: DiskEvent) {
        switch event {
        case .name(let object, let kind, let directory, let name):
            objects[object] = kind
            names[directory, default: [:]][name] = object
        case .remove(let name, let directory): names[directory]?[name] = nil
        case .rename(let name, let from, let newName, let to, let isExchange):
            let object = names[from]?[name]
            let other = names[to]?[newName]
            // If both names are of one file, rename(2) leaves them.
            if object == other { return }
            names[from]?[name] = isExchange ? other : nil
            names[to, default: [:]][newName] = object
        default: break
        }
    }
}

extension DiskState {
    /// The files by path.
    var contents: [String: DiskFile] {
        var contents: [String: DiskFile] = [:]
        addContents(of: Self.root, "", to: &contents)
        return contents
    }

    private func addContents(of directory: Int, _ path: String, to contents: inout [String: DiskFile]) {
        for (name, object) in names[directory] ?? [:] {
            let inner = "\(path)/\(String(decoding: name, as: UTF8.self))"
            if objects[object] == .file { contents[inner] = files[object] ?? DiskFile() }
            addContents(of: object, inner, to: &contents)
        }
    }
}

/// Effects of other programs.
extension DiskState {
    /// Adds copies of another state's files under foreign names: beside the file, and in a directory of its own.
    package mutating func addForeignCopies(of other: DiskState, seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var next = 1 + (objects.keys.max() ?? 0)
        for (directory, entries) in other.names.sorted(by: { $0.key < $1.key }) where objects[directory] == .directory {
            let archive = next
            next += 1
            for (name, object) in entries.sorted(by: { $0.value < $1.value }) {
                // Skip the vault's own files.
                guard let file = other.files[object], name.count >= 43, random.below(2) == 0 else { continue }
                for (place, copy) in [(directory, Array(".".utf8) + name + Array(".Ab12Cd".utf8)), (archive, name)] {
                    (objects[next], files[next]) = (.file, file)
                    names[place, default: [:]][copy] = next
                    next += 1
                }
            }
            guard names[archive] != nil else { continue }
            objects[archive] = .directory
            names[directory, default: [:]][Array(".stversions".utf8)] = archive
        }
    }
}

/// The tree in a real directory.
extension DiskState {
    /// Reads a directory, and numbers its objects in the order of their creation, which is that of tmpfs's inodes.
    init(reading path: String, _ numbers: inout [DiskIdentity: Int]) throws {
        var found: [(path: String, identity: DiskIdentity, kind: mode_t)] = []
        Self.walk(path) { path, status in found.append((path, DiskIdentity(status), status.st_mode & S_IFMT)) }
        numbers = [try DiskIdentity(path: path): Self.root]
        for entry in found.sorted(by: { $0.identity.inode < $1.identity.inode })
        where numbers[entry.identity] == nil { numbers[entry.identity] = numbers.count }
        for (path, identity, kind) in found {
            let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) ?? path.startIndex
            let parent = try DiskIdentity(path: String(path[..<slash]))
            guard let object = numbers[identity], let directory = numbers[parent] else { continue }
            let name = Array(path.utf8[path.utf8.index(after: slash)...])
            names[directory, default: [:]][name] = object
            switch kind {
            case S_IFREG:
                objects[object] = .file
                files[object] = try DiskFile(reading: path)
            case S_IFLNK: objects[object] = .link(target: linkTarget(AT_FDCWD, path))
            default: objects[object] = .directory
            }
        }
    }

    private static func walk(_ path: String, _ body: (String, stat) -> Void) {
        guard let directory = opendir(path) else { return }
        defer { closedir(directory) }
        while let entry = readdir(directory) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            var status = stat()
            guard name != ".", name != "..", lstat("\(path)/\(name)", &status) == 0 else { continue }
            body("\(path)/\(name)", status)
            if status.st_mode & S_IFMT == S_IFDIR { walk("\(path)/\(name)", body) }
        }
    }

    /// Makes the tree in a new directory.
    package func write(to path: String) throws {
        var made: [Int: String] = [:]
        try write(Self.root, to: path, &made)
    }

    private func write(_ directory: Int, to path: String, _ made: inout [Int: String]) throws {
        try check(mkdir(path, 0o700), "mkdir \(path)")
        for (name, object) in names[directory] ?? [:] {
            let entry = "\(path)/\(String(decoding: name, as: UTF8.self))"
            switch objects[object] {
            case .directory: try write(object, to: entry, &made)
            case .link(let target):
                try check(symlink(String(decoding: target, as: UTF8.self), entry), "symlink \(entry)")
            case .file:
                if let first = made[object] {
                    try check(link(first, entry), "link \(entry)")
                } else {
                    try (files[object] ?? DiskFile()).write(to: entry)
                    made[object] = entry
                }
            case nil: throw DiskFailure("\(entry) is of no known object")
            }
        }
    }
}

extension DiskFile {
    fileprivate init(reading path: String) throws {
        let fd = open(path, O_RDONLY | O_CLOEXEC)
        try check(fd, "open \(path)")
        defer { close(fd) }
        var status = stat()
        try check(fstat(fd, &status), "fstat \(path)")
        resize(to: Int(status.st_size))
        var position: off_t = 0
        while true {
            let start = lseek(fd, position, linux_SEEK_DATA)
            if start < 0 { break }
            let end = lseek(fd, start, linux_SEEK_HOLE)
            var bytes = [UInt8](repeating: 0, count: Int(end - start))
            try check(Int32(pread(fd, &bytes, bytes.count, start)), "read \(path)")
            write(bytes, at: Int(start), pieceSize: Self.pageSize) { _ in true }
            position = end
        }
    }

    fileprivate func write(to path: String) throws {
        let fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        try check(fd, "make \(path)")
        defer { close(fd) }
        for (number, page) in pages {
            try check(Int32(pwrite(fd, page, page.count, off_t(number * Self.pageSize))), "write \(path)")
        }
        try check(ftruncate(fd, off_t(size)), "truncate \(path)")
    }
}

/// The device and inode number of an object.
struct DiskIdentity: Hashable {
    let device, inode: UInt64

    init(_ status: stat) { (device, inode) = (UInt64(status.st_dev), UInt64(status.st_ino)) }

    init(path: String) throws {
        var status = stat()
        try check(lstat(path, &status), "lstat \(path)")
        self.init(status)
    }

    /// Nil if the descriptor is not open.
    init?(_ fd: Int32) {
        var status = stat()
        guard fstat(fd, &status) == 0 else { return nil }
        self.init(status)
    }

    /// Nil if the entry is absent.
    init?(_ directory: Int32, _ name: UnsafePointer<CChar>) {
        var status = stat()
        guard fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { return nil }
        self.init(status)
    }
}

package struct DiskFailure: Error, CustomStringConvertible {
    package let description: String

    init(_ description: String) { self.description = description }
}

func check(_ result: Int32, _ what: String) throws {
    if result < 0 { throw DiskFailure("\(what): errno \(errno)") }
}

func linkTarget(_ directory: Int32, _ name: UnsafePointer<CChar>) -> [UInt8] {
    var target = [CChar](repeating: 0, count: 4096)
    let count = readlinkat(directory, name, &target, target.count)
    return target.prefix(max(0, count)).map { UInt8(bitPattern: $0) }
}
