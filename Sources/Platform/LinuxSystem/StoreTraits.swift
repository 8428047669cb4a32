internal import CLinux
package import Glibc

/// The abilities of a vault's file system, found by trying them (`init(probing:entry:)`). They are never written into
/// the vault, which may move. Nil means unknown: a full store, or one that is only read, is not tried.
package struct StoreTraits: Codable, Equatable, Sendable {
    /// The locks of fcntl(2).
    package enum Locks: String, Codable, Sendable {
        case none, advisory
        /// A locked file cannot be read by another descriptor (SMB).
        case mandatory
    }

    /// True if rename(2) over an open file works. SMB refuses it.
    package var replacesOpenFiles: Bool?
    /// True if a non-empty directory can be renamed, and then read. Object stores may refuse it.
    package var renamesDirectories: Bool?
    /// True if a file's bytes can be overwritten in place. Object stores may refuse it.
    package var overwritesInPlace: Bool?
    package var locks: Locks?
    /// True if chmod(2) has an effect.
    package var keepsModes: Bool?
    /// True if files can have `user.*` attributes.
    package var keepsUserAttributes: Bool?
    /// True if hard links work. False if each name of a file has an inode number of its own (unionfs-fuse).
    package var makesHardLinks: Bool?
    package var makesSymbolicLinks: Bool?
    /// True if a renamed file keeps its inode number.
    package var keepsInodeNumbers: Bool?
    /// The nanoseconds of which file times are multiples. Nil also if the store ignores set times.
    package var timeGrain: Int?
    /// The longest possible entry of a directory, in bytes, at most 255.
    package var longestEntry: Int?

    package init() {}

    /// Finds the traits that need no change.
    package init(reading directory: Descriptor) {
        var space = statvfs()
        if (try? retrying { fstatvfs(directory.fd, &space) }) != nil, space.f_namemax > 0 {
            longestEntry = min(Self.maximumEntry, Int(space.f_namemax))
        }
    }
}

// MARK: - The probe

extension StoreTraits {
    /// The beginning of the name of the probe's directory. Only a killed probe leaves one behind.
    package static let prefix: Component = "vaultfs.tmp.probe-"
    private static let maximumEntry = 255
    private static let file: Component = "file"
    private static let moved: Component = "moved"
    private static let link: Component = "link"
    private static let directory: Component = "directory"
    private static let movedDirectory: Component = "moved-directory"
    private static let attribute = Array("user.vaultfs.probe".utf8)
    private static let content = Array("probe".utf8)
    /// The nanoseconds of which file times are multiples, on all known file systems.
    private static let grains = [1, 100, 1000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000]

    /// Tries everything in a temporary directory in `directory`, whose times stay. Some forty calls without a sync.
    /// - Parameter entry: an unused name that begins with `prefix`.
    package init(probing directory: Descriptor, entry: Component) {
        self.init(reading: directory)
        let before = try? directory.status()
        guard (try? directory.makeDirectory(entry, mode: 0o700)) != nil else { return }
        if let inside = try? Descriptor(at: directory, entry, flags: O_RDONLY | O_DIRECTORY) {
            probeDirectory(inside)
            try? probeFile(inside)
        }
        Self.remove(entry, from: directory)
        // SMB removes a file that could not be replaced only when it is closed, and its client may close it later.
        for _ in 1...20 where replacesOpenFiles == false && (try? directory.status(of: entry)) != nil {
            usleep(100_000)
            Self.remove(entry, from: directory)
        }
        // Only the owner may set the times, so ignore errors.
        if let before { futimens(directory.fd, [before.st_atim, before.st_mtim]) }
    }

    /// Removes the remains of a probe, if `entry` is one. Ignores errors.
    package static func remove(_ entry: Component, from root: Descriptor) {
        guard entry.starts(with: prefix),
            let inside = try? Descriptor(at: root, entry, flags: O_RDONLY | O_DIRECTORY)
        else { return }
        for name in [file, moved, link] + longNames(in: inside) { inside.removeQuietly(name) }
        for name in [directory, movedDirectory] {
            if let inner = try? Descriptor(at: inside, name, flags: O_RDONLY | O_DIRECTORY) {
                inner.removeQuietly(file)
            }
            try? inside.removeDirectory(name)
        }
        try? root.removeDirectory(entry)
    }

    /// Returns the entries made by `longestEntry`.
    private static func longNames(in directory: Descriptor) -> [Component] {
        var reader = DirectoryReader(directory)
        var names: [Component] = []
        while let name = try? reader.next() { if name == longName(name.count) { names.append(name) } }
        return names
    }

    private static func longName(_ count: Int) -> Component? {
        try? Component([UInt8](repeating: UInt8(ascii: "n"), count: count))
    }

    private static func makeFile(_ entry: Component, in directory: Descriptor) throws(StoreError) {
        let file = try Descriptor(at: directory, entry, flags: O_CREAT | O_EXCL | O_WRONLY, mode: 0o600)
        try file.write(content, at: 0)
    }

    /// Returns true if `body` succeeds and returns true. Any error means that the store lacks the ability.
    private static func succeeds(_ body: () throws(StoreError) -> Bool) -> Bool {
        do throws(StoreError) { return try body() } catch { return false }
    }

    // MARK: Files

    /// - Throws: the store's error if not even a file can be made and renamed.
    private mutating func probeFile(_ directory: Descriptor) throws(StoreError) {
        let (entry, moved) = (Self.file, Self.moved)
        try Self.makeFile(entry, in: directory)
        overwritesInPlace = Self.succeeds { () throws(StoreError) in try Self.overwrite(entry, in: directory) }
        makesHardLinks = Self.succeeds { () throws(StoreError) in
            try directory.link(entry, to: directory, as: Self.link)
            let (old, new) = (try directory.status(of: entry), try directory.status(of: Self.link))
            return new.st_nlink == 2 && new.st_ino == old.st_ino
        }
        let file = try Descriptor(at: directory, entry, flags: overwritesInPlace == true ? O_RDWR : O_RDONLY)
        locks = Self.locks(of: file, entry, in: directory)
        keepsModes = Self.succeeds { () throws(StoreError) in
            try retrying { fchmod(file.fd, 0o640) }
            return try file.status().st_mode & 0o7777 == 0o640
        }
        keepsUserAttributes = Self.succeeds { () throws(StoreError) in try Self.setAttribute(of: file) }
        timeGrain = try? Self.timeGrain(of: file)
        let number = try file.status().st_ino
        try directory.rename(entry, to: directory, as: moved)
        keepsInodeNumbers = try directory.status(of: moved).st_ino == number
        try Self.makeFile(entry, in: directory)
        // Try this last, because after a refusal SMB lets nothing have the name.
        replacesOpenFiles = withExtendedLifetime(file) {
            (try? directory.rename(entry, to: directory, as: moved)) != nil
        }
    }

    private static func overwrite(_ entry: Component, in directory: Descriptor) throws(StoreError) -> Bool {
        let file = try Descriptor(at: directory, entry, flags: O_RDWR)
        try file.write(Array("-".utf8), at: 2)
        return try file.read(at: 0, count: content.count + 1) == Array("pr-be".utf8)
    }

    private static func locks(of file: Descriptor, _ entry: Component, in directory: Descriptor) -> Locks {
        // A lock for writing needs a descriptor for writing.
        guard linux_lock_bytes(file.fd, F_WRLCK, 0, 0) == 0 else { return .none }
        defer { _ = linux_lock_bytes(file.fd, F_UNLCK, 0, 0) }
        return succeeds { () throws(StoreError) in
            let other = try Descriptor(at: directory, entry, flags: O_RDONLY)
            return try other.read(at: 0, count: content.count).count == content.count
        } ? .advisory : .mandatory
    }

    private static func setAttribute(of file: Descriptor) throws(StoreError) -> Bool {
        let path = "/proc/self/fd/\(file.fd)"
        try retrying(attribute) { linux_setxattr(path, $0, content, content.count, 0) }
        return try retrying(attribute) { linux_getxattr(path, $0, nil, 0) } == content.count
    }

    /// Returns the grain that explains a file's time after another one was set. Nil if the store ignores it.
    private static func timeGrain(of file: Descriptor) throws(StoreError) -> Int? {
        let second = 1_000_000_000
        let set = timespec(tv_sec: 1_234_567_891, tv_nsec: 123_456_789)
        try retrying { futimens(file.fd, [set, set]) }
        let found = try file.status().st_mtim
        let difference = (set.tv_sec - found.tv_sec).multipliedReportingOverflow(by: second)
        if difference.overflow { return nil }
        let distance = difference.partialValue + set.tv_nsec - found.tv_nsec
        return grains.first { abs(distance) < $0 }
    }

    // MARK: Directories

    private mutating func probeDirectory(_ directory: Descriptor) {
        makesSymbolicLinks = Self.succeeds { () throws(StoreError) in
            try directory.makeLink(Self.link, to: Self.content)
            return try directory.linkTarget(of: Self.link) == Self.content
        }
        directory.removeQuietly(Self.link)
        longestEntry = Self.longestEntry(in: directory, atMost: longestEntry ?? Self.maximumEntry)
        guard (try? directory.makeDirectory(Self.directory, mode: 0o700)) != nil,
            let inner = try? Descriptor(at: directory, Self.directory, flags: O_RDONLY | O_DIRECTORY),
            (try? Self.makeFile(Self.file, in: inner)) != nil
        else { return }
        renamesDirectories = Self.succeeds { () throws(StoreError) in
            try directory.rename(Self.directory, to: directory, as: Self.movedDirectory)
            // An rclone mount can rename the directory, but then cannot read files before their upload.
            let moved = try Descriptor(at: directory, Self.movedDirectory, flags: O_RDONLY | O_DIRECTORY)
            let file = try Descriptor(at: moved, Self.file, flags: O_RDONLY)
            return try file.read(at: 0, count: Self.content.count) == Self.content
        }
    }

    /// Makes files with long names, to check statvfs(3): EncFS and eCryptfs have shorter names than the store below.
    private static func longestEntry(in directory: Descriptor, atMost most: Int) -> Int? {
        if hasRoom(for: most, in: directory) { return most }
        // Here `hasRoom(for: high)` is false.
        var (low, high) = (0, most)
        while high - low > 1 {
            let middle = (low + high) / 2
            if hasRoom(for: middle, in: directory) { low = middle } else { high = middle }
        }
        return low > 0 ? low : nil
    }

    private static func hasRoom(for count: Int, in directory: Descriptor) -> Bool {
        guard let name = longName(count), (try? makeFile(name, in: directory)) != nil else { return false }
        directory.removeQuietly(name)
        return true
    }
}

extension timespec {
    /// Rounds down to a multiple of `grain` nanoseconds, one of the grains of `StoreTraits`, as stores do.
    package mutating func round(to grain: Int) {
        let second = 1_000_000_000
        if grain <= second {
            tv_nsec -= tv_nsec % grain
            return
        }
        let seconds = grain / second
        // Round downwards also before 1970.
        tv_sec -= (tv_sec % seconds + seconds) % seconds
        tv_nsec = 0
    }
}
