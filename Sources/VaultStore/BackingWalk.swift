package import BackingStore
internal import CLinux
package import Glibc
internal import SystemPackage
internal import VaultFormat

/// Goes through every object of a vault whose backing entry may be a name, in depth, following no link. No key is needed: the
/// names are looked at as the store has them. One thread's.
package struct BackingWalk {
    /// An entry of a directory.
    package struct Found {
        package let entry: [UInt8]
        package let directory: Descriptor
        /// What fstatat(2) gives of it.
        package let status: stat
    }

    /// False once something could not be read.
    package private(set) var isComplete = true
    /// Whether it does not matter that an entry cannot be read.
    private let isIgnored: (_ entry: [UInt8], _ directory: Descriptor, StoreError) -> Bool
    /// From the root to the directory being read.
    private var path: [(entry: [UInt8], reader: DirectoryReader)]
    /// The directory that was returned last, in which the walk goes on.
    private var next: Found?

    /// - Parameter isIgnored: whether it does not matter that an entry cannot be read.
    /// - Throws: openat(2)'s error, of the root.
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

    /// The next entry; nil at the end. What a directory holds comes after the directory.
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
