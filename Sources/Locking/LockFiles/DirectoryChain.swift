internal import Glibc
internal import SystemPackage

/// The directories on the way to a lock file, from the root to its own, each with the entry the way goes on by.
struct DirectoryChain {
    struct Level {
        let directory: FilePath
        /// The name of the next directory, in the last level that of the lock file.
        let entry: [UInt8]
    }

    let levels: [Level]

    /// - Parameter path: absolute, without links.
    init(to path: FilePath) {
        var directory: FilePath = "/"
        levels = path.components.map { component in
            defer { directory.append(component) }
            let entry = component.withPlatformString { [UInt8](UnsafeRawBufferPointer(start: $0, count: strlen($0))) }
            return Level(directory: directory, entry: entry)
        }
    }
}
