package import SystemPackage

/// Why a path cannot serve as a lock file, or cannot be watched. Its description is a line for people.
package enum LockFileError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The path has no name of its own in the last place.
    case notName(FilePath)
    /// The name, or the path, is longer than its file system takes.
    case nameTooLong(FilePath)
    /// The directory it would lie in does not exist.
    case noDirectory(FilePath)
    /// What it would lie in is no directory.
    case notDirectory(FilePath)
    /// Others could make and remove files in the directory; why.
    case unsafeDirectory(FilePath, String)
    /// A system call failed; what was being done, as a phrase such as "cannot look at", and where.
    case system(Errno, String, FilePath)
    /// The watch cannot be started.
    case watch(Errno)

    package var description: String {
        switch self {
        case .notName(let path): "lock file \(path.string): not the path of a file"
        case .nameTooLong(let path): "lock file \(path.string): the name is too long"
        case .noDirectory(let directory): "directory \(directory.string) of the lock file does not exist; make it first"
        case .notDirectory(let directory): "\(directory.string), where the lock file is to be, is not a directory"
        case .unsafeDirectory(let directory, let reason):
            "directory \(directory.string) of the lock file is not safe: \(reason)"
        case .system(let errno, let operation, let path): "\(operation) \(path.string): \(errno)"
        case .watch(let errno): "cannot start watching the lock files: \(errno)"
        }
    }
}
