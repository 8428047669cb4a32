internal import Glibc
internal import SystemPackage

/// inotify watches on all directories on the way to the lock files. One thread.
struct DirectoryWatches: ~Copyable {
    /// What an event asks for.
    enum Effect: Comparable {
        case nothing
        /// A lock file may have come or gone.
        case look
        /// The way to a lock file may be another one: the watches have to be set again.
        case arm
    }

    private struct Directory {
        var mask: UInt32
        /// Of lock files in it.
        var lockNames: [[UInt8]] = []
        /// Of directories in it that lead on.
        var childNames: [[UInt8]] = []

        mutating func merge(_ other: Self) {
            mask |= other.mask
            lockNames += other.lockNames
            childNames += other.childNames
        }
    }

    /// What happens to a directory itself: moved, removed, its mode or ACL changed. Nothing that goes on inside it, but
    /// for changes of its children's attributes, which the kernel does not leave out.
    private static let changesOfItself = UInt32(IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB)
    private static let changesOfEntries = UInt32(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)

    private let inotify: Inotify
    private let chains: [DirectoryChain]
    private var directories: [Int32: Directory] = [:]

    /// nil where there is no inotify.
    init?(to paths: [FilePath]) {
        guard let inotify = Inotify() else { return nil }
        self.inotify = inotify
        chains = paths.map(DirectoryChain.init)
    }

    var fd: Int32 { inotify.fd }

    /// Takes the events that are waiting, at most a buffer full.
    /// - Returns: the strongest effect of them.
    func takeEvents() throws(Errno) -> Effect {
        var strongest = Effect.nothing
        try inotify.readEvents { strongest = max(strongest, effect(of: $0)) }
        return strongest
    }

    private func effect(of event: Inotify.Event) -> Effect {
        if event.mask & UInt32(IN_Q_OVERFLOW) != 0 { return .arm }
        guard let directory = directories[event.watch] else { return .nothing }
        // Also IN_UNMOUNT, and IN_IGNORED: the kernel has ended the watch.
        if event.name.isEmpty || directory.childNames.contains(where: event.name.elementsEqual) { return .arm }
        return directory.lockNames.contains(where: event.name.elementsEqual) ? .look : .nothing
    }

    /// Sets the watches for the directories as they are now. A change from then on gives an event.
    /// - Returns: false if some could not be watched, or need not show all changes.
    mutating func arm() -> Bool {
        var isComplete = true
        var found = Set(directories.keys)
        var needed: [FilePath: Directory] = [:]
        for chain in chains {
            let depth = explore(chain, found: &found, isComplete: &isComplete)
            for (index, level) in chain.levels.prefix(depth).enumerated() {
                let isLast = index == chain.levels.count - 1
                let directory = Directory(
                    mask: Self.mask(levelsBelow: depth - 1 - index), lockNames: isLast ? [level.entry] : [],
                    childNames: isLast ? [] : [level.entry])
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
            isComplete = isComplete && ObservedFileSystems.contain(path)
        }
        for watch in found where armed[watch] == nil { inotify.remove(watch) }
        directories = armed
        return isComplete
    }

    /// The deepest directory there is shows its entries: the lock file, or the next directory's coming back. The one
    /// above shows removals, since a directory that somebody holds open gives no event of its own when it is removed.
    /// Those further up cannot be removed before, and show only what happens to themselves: a busy /tmp costs nothing.
    private static func mask(levelsBelow: Int) -> UInt32 {
        switch levelsBelow {
        case 0: changesOfItself | changesOfEntries
        case 1: changesOfItself | UInt32(IN_DELETE)
        default: changesOfItself
        }
    }

    /// Watches all entries of each directory before it looks for the next one, so that none comes or goes unseen.
    /// - Returns: how many of the chain's directories there are.
    private func explore(_ chain: DirectoryChain, found: inout Set<Int32>, isComplete: inout Bool) -> Int {
        for (index, level) in chain.levels.enumerated() {
            do throws(Errno) {
                found.insert(try inotify.watch(level.directory, for: Self.mask(levelsBelow: 0)))
            } catch .noSuchFileOrDirectory {
                return index
            } catch .notDirectory {
                // Perhaps a link, which leads past the directories watched.
                isComplete = false
                return index
            } catch {
                // EACCES (a directory that this user may search, not read), ENOSPC (too many watches): so it will be when
                // its own mask is set, and there it counts. Go on below it.
                continue
            }
        }
        return chain.levels.count
    }

    private func arm(
        _ directory: Directory, at path: FilePath, among armed: [Int32: Directory]
    ) throws(Errno) -> Int32 {
        let watch = try inotify.watch(path, for: directory.mask)
        // The same directory by another path, through a bind mount: setting a mask has replaced the first one's.
        guard let other = armed[watch] else { return watch }
        return try inotify.watch(path, for: directory.mask | other.mask)
    }
}
