internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import Transfer

/// Where an export goes.
struct ExportTarget {
    /// Open for reading.
    let directory: Descriptor
    /// What the one file is called there; nil: a tree goes into it.
    let name: [UInt8]?

    /// - Parameter path: as the user gave it: links on the way to it are followed, none in it.
    init(_ path: FilePath, of source: ViewLocation) throws(CommandFailure) {
        guard let sourceName = source.onlyName else {
            try Self.checkParent(of: path, isNotIn: source)
            // Plaintext is for this user alone.
            if path.withPlatformString({ mkdir($0, 0o700) }) != 0, currentErrno() != .fileExists {
                throw CommandFailure(.failure, "cannot make \(path.shown): \(currentErrno())")
            }
            (directory, name) = (try Self.open(path), nil)
            return
        }
        var status = stat()
        if path.withPlatformString({ stat($0, &status) }) == 0, status.st_mode & S_IFMT == S_IFDIR {
            (directory, name) = (try Self.open(path), sourceName)
            return
        }
        guard let last = path.lastComponent, last.kind == .regular else {
            throw CommandFailure(.failure, "cannot make \(path.shown): it is no name of a file")
        }
        let parent = path.removingLastComponent()
        (directory, name) = (try Self.open(parent.isEmpty ? "." : parent), FilePath(root: nil, [last]).bytes)
    }

    /// Nothing is made in the source.
    private static func checkParent(of path: FilePath, isNotIn source: ViewLocation) throws(CommandFailure) {
        let parent = path.removingLastComponent()
        let directory = try open(parent.isEmpty ? "." : parent)
        guard (try? directory.isInside(source.root)) != true else { throw insideSource(path) }
    }

    static func insideSource(_ path: FilePath) -> CommandFailure {
        CommandFailure(.failure, "\(path.shown) is the source or in it: choose another destination")
    }

    private static func open(_ path: FilePath) throws(CommandFailure) -> Descriptor {
        let fd = path.withPlatformString { Glibc.open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        guard fd >= 0 else { throw CommandFailure(.failure, "cannot open \(path.shown): \(currentErrno())") }
        return Descriptor(owning: fd)
    }

    static func text(_ error: StoreError) -> String {
        switch error {
        case .system(let errno): "\(errno)"
        case .damaged(let text), .crypto(let text): text
        }
    }
}
