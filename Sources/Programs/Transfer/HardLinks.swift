internal import LinuxSystem

/// The path of the first copied name of each file with several names, kept until all its names are copied. Any thread.
final class HardLinks: Sendable {
    private enum Copy {
        case inProgress
        /// The path below the destination.
        case made([UInt8], namesLeft: Int)
    }

    private let copies = Monitor<[FileIdentity: Copy]>([:])

    /// Returns the path of the file's copy, or nil for the first caller, who must make the copy and then call `finish`.
    /// Waits while another thread makes the copy.
    func claim(_ file: FileIdentity) -> [UInt8]? {
        copies.wait { copies -> [UInt8]?? in
            switch copies[file] {
            case nil:
                copies[file] = .inProgress
                return .some(nil)
            case .inProgress: return nil
            case .made(let path, let left):
                copies[file] = left > 1 ? .made(path, namesLeft: left - 1) : nil
                return path
            }
        }
    }

    /// Records the result of the first caller's copy, and wakes the waiting threads.
    /// - Parameters:
    ///   - path: nil if the copy could not be made. The next name is then the first.
    ///   - names: the file's number of names.
    func finish(_ file: FileIdentity, at path: [UInt8]?, names: Int) {
        copies.update { copies in
            copies[file] = path.flatMap { names > 1 ? .made($0, namesLeft: names - 1) : nil }
        }
    }
}
