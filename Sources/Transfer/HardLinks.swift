internal import Glibc
internal import LinuxSystem

/// The files with several names of which some are yet to come: where the first was put. Any thread.
final class HardLinks: Sendable {
    private enum Place {
        case beingMade
        /// At a path below the destination; how many names are left.
        case made([UInt8], namesLeft: Int)
    }

    private let places = Monitor<[FileIdentity: Place]>([:])

    /// Where the file is; nil where the caller is the first, who has to `finish`. Waits for a first one at work.
    func claim(_ file: FileIdentity) -> [UInt8]? {
        places.wait { places -> [UInt8]?? in
            switch places[file] {
            case nil:
                places[file] = .beingMade
                return .some(nil)
            case .beingMade: return nil
            case .made(let path, let left):
                places[file] = left > 1 ? .made(path, namesLeft: left - 1) : nil
                return path
            }
        }
    }

    /// - Parameters:
    ///   - path: nil where it could not be made: the next name is the first.
    ///   - names: how many the file has.
    func finish(_ file: FileIdentity, at path: [UInt8]?, names: Int) {
        places.update { places in
            places[file] = path.flatMap { names > 1 ? .made($0, namesLeft: names - 1) : nil }
        }
    }
}
