internal import CLinux
internal import FileSystem
package import Glibc
package import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Visits every object of a vault whose backing entry may be a name, depth first, following no link. It needs no key,
/// because it looks only at the stored names. Used by one thread.
package struct BackingWalk {
    /// An entry of a directory.
    package struct Found {
        package let entry: [UInt8]
        package let directory: Descriptor
        /// The result of fstatat(2) for the entry.
        package let status: stat
    }

    /// False once something could not be read.
    package private(set) var isComplete = true
    /// Returns true if a failure to read an entry does not matter.
    private let isIgnored: (_ entry: [UInt8], _ directory: Descriptor, StoreError) -> Bool
    /// From the root to the directory being read.
    private var path: [(entry: [UInt8], reader: DirectoryReader)]
    /// The directory that was returned last. The walk continues in it.
    private var next: Found?

    /// - Parameter isIgnored: returns true if a failure to read an entry does not matter.
    /// - Throws: the error of openat(2) for the root.
    package init(
        root: Descriptor, isIgnored: @escaping (_ entry: [UInt8], _ directory: Descriptor, StoreError) -> Bool
    ) throws(StoreError) {
        let root = try Descriptor(at: root.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        self.isIgnored = isIgnored
        path = [([], DirectoryReader(root))]
    }

    /// The backing path of an entry of the directory being read.
    package func path(of entry: [UInt8]) -> [UInt8] {
        Array((path.dropFirst().map(\.entry) + [entry]).joined(separator: [UInt8(ascii: "/")]))
    }

    /// Returns the next entry, or nil at the end. A directory comes before its content.
    package mutating func nextEntry() -> Found? {
        if let entered = next {
            next = nil
            do throws(StoreError) {
                let directory = try Descriptor(
                    at: entered.directory.fd, entered.entry, flags: O_RDONLY | O_DIRECTORY)
                path.append((entered.entry, DirectoryReader(directory)))
            } catch {
                if !isIgnored(entered.entry, entered.directory, error) { isComplete = false }
            }
        }
        while let last = path.indices.last {
            let directory = path[last].reader.directory
            let entry: [UInt8]?
            do throws(StoreError) { entry = try path[last].reader.next()?.name } catch {
                isComplete = false
                entry = nil
            }
            guard let entry else {
                path.removeLast()
                continue
            }
            guard [.name, .longName].contains(EntryName.kind(of: entry)) else { continue }
            do throws(StoreError) {
                let found = Found(entry: entry, directory: directory, status: try directory.status(of: entry))
                if found.status.st_mode & S_IFMT == S_IFDIR { next = found }
                return found
            } catch {
                if !isIgnored(entry, directory, error) { isComplete = false }
            }
        }
        return nil
    }
}
