internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// The inotify(7) watches on all directories on the paths of the lock files. One thread.
struct DirectoryWatches {
    /// The reaction required by an event.
    enum Effect: Comparable {
        case nothing
        /// A lock file may have appeared or disappeared.
        case check
        /// The path of a lock file may have changed, so the watches must be set again.
        case arm
    }

    /// A directory on the path of a lock file.
    private struct Level {
        let directory: FilePath
        /// The name of the next directory or, in the last level, of the lock file.
        let entry: [UInt8]
    }

    private struct Directory {
        var mask: UInt32
        /// The names of the next directories in it.
        var childNames: [[UInt8]] = []

        mutating func merge(_ other: Self) {
            mask |= other.mask
            childNames += other.childNames
        }
    }

    /// The events of a directory itself: moved, removed, mode or ACL changed. The kernel also reports attribute changes
    /// of its children.
    private static let changesOfItself = UInt32(IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB)
    private static let changesOfEntries = UInt32(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)

    private let inotify: Descriptor
    private var buffer = [UInt8](repeating: 0, count: 16384)
    /// The levels of each lock file, from the root on.
    private let chains: [[Level]]
    private var directories: [Int32: Directory] = [:]

    /// - Parameter paths: absolute. For a path through a link, `arm` returns false.
    init(_ inotify: Descriptor, to paths: [FilePath]) {
        self.inotify = inotify
        chains = paths.map { path in
            var directory: FilePath = "/"
            return path.components.map { component in
                defer { directory.append(component) }
                return Level(directory: directory, entry: FilePath(root: nil, [component]).bytes)
            }
        }
    }

    var fd: Int32 { inotify.fd }

    /// Reads waiting events, at most one buffer.
    /// - Returns: their strongest effect.
    mutating func readEvents() throws(StoreError) -> Effect {
        let count: Int
        do throws(StoreError) {
            count = try buffer.withMutableBytes { [inotify] (bytes) throws(StoreError) in
                try retrying { read(inotify.fd, bytes.baseAddress, bytes.count) }
            }
        } catch {
            if error.errno == .wouldBlock { return .nothing }
            throw error
        }
        return buffer.withUnsafeBytes { bytes in
            var strongest = Effect.nothing
            // A name is empty if the event is about the directory itself.
            for (event, name) in InotifyEvents(bytes[..<count]) { strongest = max(strongest, effect(of: event, name)) }
            return strongest
        }
    }

    private func effect(of event: inotify_event, _ name: Slice<UnsafeRawBufferPointer>) -> Effect {
        if event.mask & UInt32(IN_Q_OVERFLOW) != 0 { return .arm }
        guard let directory = directories[event.wd] else {
            // The kernel has ended this watch, or `arm` has.
            if event.mask & UInt32(IN_IGNORED) != 0 { return .nothing }
            // The event is of a directory that was replaced while `arm` explored the path, or of a failed watch.
            inotify_rm_watch(fd, event.wd)
            return .arm
        }
        // This includes IN_UNMOUNT, and IN_IGNORED, by which the kernel reports the end of the watch.
        if name.isEmpty || directory.childNames.contains(where: name.elementsEqual) { return .arm }
        // Check for other names too, which may be a lock file's in another spelling (FAT, a directory ignoring case).
        return .check
    }

    /// Sets the watches for the current directories. Later changes give events.
    /// - Returns: false if some directory could not be watched, or may change without an event.
    mutating func arm() -> Bool {
        var isComplete = true
        var found = Set(directories.keys)
        var needed: [FilePath: Directory] = [:]
        for levels in chains {
            let depth = explore(levels, found: &found, isComplete: &isComplete)
            for (index, level) in levels.prefix(depth).enumerated() {
                let directory = Directory(
                    mask: Self.mask(levelsBelow: depth - 1 - index),
                    childNames: index == levels.count - 1 ? [] : [level.entry])
                needed[level.directory, default: Directory(mask: 0)].merge(directory)
            }
        }
        var armed: [Int32: Directory] = [:]
        for (path, directory) in needed {
            guard let watch = try? arm(directory, at: path, among: armed) else {
                isComplete = false
                continue
            }
            armed[watch, default: Directory(mask: 0)].merge(directory)
            isComplete = isComplete && FileSystemType(at: path).reportsAllChanges
        }
        for watch in found where armed[watch] == nil { inotify_rm_watch(fd, watch) }
        directories = armed
        return isComplete
    }

    /// Returns the events of a level. The deepest existing directory reports its entries, among them the lock file or
    /// the missing next directory. The one above reports removals, because an open directory's removal gives no event
    /// of its own. Those above can only be removed after it, and report their own changes only. So a busy /tmp costs
    /// nothing.
    private static func mask(levelsBelow: Int) -> UInt32 {
        switch levelsBelow {
        case 0: changesOfItself | changesOfEntries
        case 1: changesOfItself | UInt32(IN_DELETE)
        default: changesOfItself
        }
    }

    /// Watches all entries of each directory before it looks for the next one, so that every change gives an event.
    /// - Returns: the number of existing levels.
    private func explore(_ levels: [Level], found: inout Set<Int32>, isComplete: inout Bool) -> Int {
        for (index, level) in levels.enumerated() {
            do throws(StoreError) {
                found.insert(try watch(level.directory, for: Self.mask(levelsBelow: 0)))
            } catch .system(.noSuchFileOrDirectory) {
                return index
            } catch .system(.notDirectory) {
                // It may be a link, which leads elsewhere.
                isComplete = false
                return index
            } catch {
                // Continue below a directory that this user may search but not read (EACCES), or after too many watches
                // (ENOSPC).
                isComplete = false
            }
        }
        return levels.count
    }

    private func arm(
        _ directory: Directory, at path: FilePath, among armed: [Int32: Directory]
    ) throws(StoreError) -> Int32 {
        let watch = try watch(path, for: directory.mask)
        // Another path leads to the same directory (a bind mount), and this call has replaced its first mask.
        guard let other = armed[watch] else { return watch }
        return try self.watch(path, for: directory.mask | other.mask)
    }

    /// Watches the directory at `path`, or changes the mask of its watch (inotify_add_watch(2)).
    /// - Throws: also ENOTDIR, for a link.
    private func watch(_ path: FilePath, for mask: UInt32) throws(StoreError) -> Int32 {
        try retrying {
            path.withPlatformString { inotify_add_watch(fd, $0, mask | UInt32(IN_ONLYDIR | IN_DONT_FOLLOW)) }
        }
    }
}
