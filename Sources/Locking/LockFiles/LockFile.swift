internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
package import SystemPackage

/// A path that locks while anything is there. Any thread.
package final class LockFile: @unchecked Sendable {
    // @unchecked: the two pointers and what they point to are written once, in init, and freed in deinit.

    /// Absolute; no directory in it was a link when it was resolved.
    package let path: FilePath
    /// The directory it lies in.
    package let directory: FilePath

    private let cPath: UnsafePointer<CChar>
    private let cDirectory: UnsafePointer<CChar>

    // Which directory it was at first, or at the last rearm(). A look beside a rearm() may see some numbers of before and
    // some of after. They then match neither directory, or one of the two: never a third, which would need one's device
    // and the other's inode and birth time.
    private let device: Atomic<UInt64>
    private let inode: Atomic<UInt64>
    private let birth: Atomic<UInt64>
    /// Whether this user owned the directory when it was last checked; taken for the whole of a rearm().
    private let isOurs: Mutex<Bool>

    /// Resolves the links in the directory's path, checks and remembers the directory. The last component is never
    /// followed.
    /// - Throws: `notName`, `nameTooLong`, `noDirectory`, `notDirectory`, `unsafeDirectory`, `system`.
    package init(path given: FilePath) throws(LockFileError) {
        guard let name = given.lastComponent, name.kind == .regular else { throw .notName(given) }
        directory = try Self.resolve(given.removingLastComponent())
        path = directory.appending(name)
        let (identity, isOurs) = try DirectoryIdentity.ofSafeDirectory(at: directory)
        device = Atomic(identity.device)
        inode = Atomic(identity.inode)
        birth = Atomic(identity.birth)
        self.isOurs = Mutex(isOurs)
        cPath = Self.copy(path)
        cDirectory = Self.copy(directory)
        // It would lock for ever.
        guard look() != .unknown(.fileNameTooLong) else { throw .nameTooLong(path) }
    }

    deinit {
        cPath.deallocate()
        cDirectory.deallocate()
    }

    /// Looks at the path, then at its directory: two system calls, nothing allocated or locked.
    ///
    /// In this order, since a look at the path finds nothing also when the directory was taken away a moment before. A
    /// lock file that is in the directory all the time can only be missed after that; the look at the directory comes
    /// later still, and finds another one. The other way round, a directory replaced between the two looks would pass
    /// for an unlocked one. What no two calls can see is a directory taken away before the first and put back before
    /// the second; every look after that finds the lock file.
    package func look() -> LockFileState {
        var status = stat()
        guard Self.retrying({ fstatat(AT_FDCWD, cPath, &status, AT_SYMLINK_NOFOLLOW) }) == -1 else { return .present }
        let failure = errno
        var parent = linux_file_identity()
        guard Self.retrying({ linux_identify(cDirectory, &parent) }) == 0 else {
            let failure = errno
            return failure == ENOENT || failure == ENOTDIR ? .parentChanged : .unknown(Errno(rawValue: failure))
        }
        guard isRemembered(DirectoryIdentity(parent)) else { return .parentChanged }
        return failure == ENOENT ? .absent : .unknown(Errno(rawValue: failure))
    }

    /// Makes the directory again, if it is gone and was this user's; checks it as at first, and takes it for the lock
    /// file's directory from now on. For an explicit unlock only.
    /// - Throws: `noDirectory`, `notDirectory`, `unsafeDirectory`, `system`; the directory of before then stays the one
    ///   remembered.
    package func rearm() throws(LockFileError) {
        try isOurs.withLock { (isOurs) throws(LockFileError) in
            // ENOENT: the check below says that better.
            if isOurs, mkdir(cDirectory, 0o700) == -1, errno != EEXIST, errno != ENOENT {
                throw .system(Errno(rawValue: errno), "cannot make", directory)
            }
            let (identity, isOursNow) = try DirectoryIdentity.ofSafeDirectory(at: directory)
            isOurs = isOursNow
            device.store(identity.device, ordering: .relaxed)
            inode.store(identity.inode, ordering: .relaxed)
            birth.store(identity.birth, ordering: .relaxed)
        }
    }

    /// What a sighting means, for people.
    package func describe(_ state: LockFileState) -> String {
        switch state {
        case .absent: "no lock file \(path.string)"
        case .present: "lock file \(path.string) exists"
        case .parentChanged: "directory \(directory.string) of the lock file is gone or was replaced"
        case .unknown(let errno): "cannot look for lock file \(path.string): \(errno)"
        }
    }

    private func isRemembered(_ identity: DirectoryIdentity) -> Bool {
        device.load(ordering: .relaxed) == identity.device && inode.load(ordering: .relaxed) == identity.inode
            && birth.load(ordering: .relaxed) == identity.birth
    }

    /// FUSE and network file systems answer EINTR, which says nothing about the file.
    private static func retrying(_ call: () -> Int32) -> Int32 {
        while true {
            let result = call()
            guard result == -1, errno == EINTR else { return result }
        }
    }

    /// realpath(3).
    private static func resolve(_ parent: FilePath) throws(LockFileError) -> FilePath {
        let parent: FilePath = parent.isEmpty ? "." : parent
        guard let resolved = parent.withPlatformString({ realpath($0, nil) }) else {
            switch errno {
            case ENOENT: throw .noDirectory(parent)
            case ENOTDIR: throw .notDirectory(parent)
            default: throw .system(Errno(rawValue: errno), "cannot look at", parent)
            }
        }
        defer { free(resolved) }
        return FilePath(platformString: resolved)
    }

    private static func copy(_ path: FilePath) -> UnsafePointer<CChar> {
        path.withPlatformString { source in
            let size = strlen(source) + 1
            let copy = UnsafeMutablePointer<CChar>.allocate(capacity: size)
            copy.initialize(from: source, count: size)
            return UnsafePointer(copy)
        }
    }
}

extension LockFile: Codable {
    /// Checks the directory again, and remembers it as it is now.
    package convenience init(from decoder: any Decoder) throws {
        try self.init(path: FilePath(from: decoder))
    }

    package func encode(to encoder: any Encoder) throws {
        try path.encode(to: encoder)
    }
}
