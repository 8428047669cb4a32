/// A recorded call that changed the directory, or made changes durable. Objects are numbered in the order in which the
/// record met them. The recorded directory is 0.
package enum DiskEvent: Sendable {
    case write(Int, at: Int, [UInt8])
    case resize(Int, to: Int)
    case punch(Int, Range<Int>)
    /// A new name of an object, which is new or gets another link.
    case name(Int, DiskObject, in: Int, [UInt8])
    case remove([UInt8], in: Int)
    case rename([UInt8], from: Int, [UInt8], to: Int, isExchange: Bool)
    /// fsync(2) or fdatasync(2).
    case synchronize(Int)
    /// syncfs(2).
    case synchronizeAll

    /// Returns true if fsync(2) of `object` makes this change of names durable. fsync of a directory keeps the changes
    /// in it, as POSIX promises. fsync of a file keeps its new names, too, on ext4, XFS and btrfs.
    func isKept(bySynchronizing object: Int) -> Bool {
        switch self {
        case .name(let named, let kind, let directory, _):
            directory == object || (named == object && kind != .directory)
        case .remove(_, let directory): directory == object
        case .rename(_, let from, _, let to, _): from == object || to == object
        default: false
        }
    }
}

package enum DiskObject: Sendable, Equatable {
    case file, directory
    case link(target: [UInt8])
}

extension DiskEvent: CustomStringConvertible {
    package var description: String {
        switch self {
        case .write(let object, let offset, let bytes): "write #\(object) \(offset)..<\(offset + bytes.count)"
        case .resize(let object, let size): "size #\(object) \(size)"
        case .punch(let object, let range): "punch #\(object) \(range)"
        case .name(let object, let kind, let directory, let name):
            "name #\(object) \(kind == .directory ? "directory" : "file") in #\(directory): \(Self.text(name))"
        case .remove(let name, let directory): "remove in #\(directory): \(Self.text(name))"
        case .rename(let name, let from, let newName, let to, let isExchange):
            "\(isExchange ? "exchange" : "rename") in #\(from): \(Self.text(name)), in #\(to): \(Self.text(newName))"
        case .synchronize(let object): "sync #\(object)"
        case .synchronizeAll: "sync all"
        }
    }

    private static func text(_ name: [UInt8]) -> String { String(decoding: name.prefix(24), as: UTF8.self) }
}
