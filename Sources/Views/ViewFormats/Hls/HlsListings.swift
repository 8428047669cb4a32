internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Looks up the files of a playlist. Lists a directory once if many files are missing in it. Otherwise a hundred
/// thousand missing files would take as many calls at each reading of the playlist.
struct HlsListings {
    /// Number of missing names after which a directory is listed: some milliseconds of calls.
    private static let maximumMisses = 1024
    /// Maximum number of entries of a listed directory.
    private static let maximumEntries = 1 << 18

    private enum Directory {
        case misses(Int)
        case names(Set<[UInt8]>)
        /// Each name is looked up.
        case unlisted
    }

    private let root: Descriptor
    private var directories: [[UInt8]: Directory] = [:]
    /// The last directory asked for, if it is listed.
    private var last: (path: [UInt8], names: Set<[UInt8]>)?

    /// - Parameter root: the source.
    init(_ root: Descriptor) { self.root = root }

    /// Returns the status of the file at a path. Follows links that stay in the source.
    /// - Throws: `.system` with errno.
    mutating func status(of path: [UInt8]) throws(StoreError) -> stat {
        let end = path.lastIndex(of: UInt8(ascii: "/")) ?? 0
        let name = path[(end == 0 ? 0 : end + 1)...]
        if last?.path.elementsEqual(path[..<end]) != true { last = nil }
        let directory = last?.path ?? Array(path[..<end])
        let known = last.map { .names($0.names) } ?? directories[directory] ?? .misses(0)
        if case .names(let names) = known {
            if last == nil { last = (directory, names) }
            if name.first != UInt8(ascii: "."), !names.contains(Array(name)) { throw .system(.noSuchFileOrDirectory) }
        }
        do throws(StoreError) { return try root.opened(beneath: path).status() } catch {
            if case .misses(let count) = known, error == .system(.noSuchFileOrDirectory) {
                directories[directory] = count < Self.maximumMisses ? .misses(count + 1) : listed(directory)
            }
            throw error
        }
    }

    private func listed(_ path: [UInt8]) -> Directory {
        let descriptor: Descriptor
        do throws(StoreError) {
            descriptor = try root.opened(
                beneath: path.isEmpty ? [UInt8(ascii: ".")] : path, flags: O_RDONLY | O_DIRECTORY)
        } catch {
            return error == .system(.noSuchFileOrDirectory) ? .names([]) : .unlisted
        }
        var names: Set<[UInt8]> = []
        var reader = DirectoryReader(descriptor)
        do throws(StoreError) {
            while let entry = try reader.next() {
                names.insert(entry.bytes)
                if names.count > Self.maximumEntries { return .unlisted }
            }
        } catch {
            return .unlisted
        }
        return .names(names)
    }
}
