internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
package import SystemPackage

/// A path that locks while anything exists there. Any thread.
package final class LockFile: @unchecked Sendable {
    // @unchecked: `init` writes the two pointers and their targets, and `deinit` frees them.

    /// The absolute path. It may lead through links. Each check follows them, so a switched link leads to another
    /// directory.
    package let path: FilePath
    /// The directory of the lock file.
    package let directory: FilePath

    /// The directory's path for checks.
    private let looked: FilePath
    private let cPath, cDirectory: UnsafeMutablePointer<CChar>

    // The directory's identity at `init`, or at the last `rearm`. A `check` during a `rearm` may see some old and some
    // new numbers. They then match neither directory or one of the two, but never a third, which would need the device
    // of one and the inode and birth time of the other.
    private let device: Atomic<UInt64>
    private let inode, birth: Atomic<UInt64>
    /// True if this user owned the directory at the last check. Locked during all of `rearm`.
    private let isOurs: Mutex<Bool>

    /// Makes the path absolute, checks the directory and remembers it. The last component is never followed.
    /// - Throws: if the directory cannot be examined, or other users can write in it.
    package init(path given: FilePath) throws(LockFileError) {
        guard let name = given.lastComponent, name.kind == .regular else {
            throw LockFileError("lock file \(given.string): not the path of a file")
        }
        let isThroughLink: Bool
        (directory, isThroughLink) = try Self.absolute(given.removingLastComponent())
        // Follow a link that is itself the directory's path, but not one that takes the directory's place later.
        looked = isThroughLink ? directory.appending(".") : directory
        path = directory.appending(name)
        let identity = try Self.identifySafe(directory, at: looked)
        device = Atomic(identity.device)
        inode = Atomic(identity.inode)
        birth = Atomic(identity.birth)
        isOurs = Mutex(identity.owner == geteuid())
        cPath = Self.copy(path)
        cDirectory = Self.copy(looked)
        // Such a name would lock for ever.
        guard check() != .unknown(.fileNameTooLong) else {
            throw LockFileError("lock file \(path.string): the name is too long")
        }
    }

    deinit {
        free(cPath)
        free(cDirectory)
    }

    /// Checks the path, then its directory, with two system calls. Allocates and locks nothing.
    ///
    /// The order matters. The path also does not exist if the directory was replaced a moment before, which the later
    /// check of the directory detects. In the other order, a directory replaced between the two checks would count as
    /// unlocked. Two calls cannot detect a directory that is moved away before the first and back before the second,
    /// but the next check finds the lock file in it.
    package func check() -> LockFileState {
        var status = stat()
        guard Self.retrying({ fstatat(AT_FDCWD, cPath, &status, AT_SYMLINK_NOFOLLOW) }) == -1 else { return .present }
        let failure = errno
        var parent = linux_file_identity()
        guard Self.retrying({ linux_identify(cDirectory, &parent) }) == 0 else {
            let failure = errno
            return failure == ENOENT || failure == ENOTDIR ? .parentChanged : .unknown(Errno(rawValue: failure))
        }
        guard isRemembered(parent) else { return .parentChanged }
        return failure == ENOENT ? .absent : .unknown(Errno(rawValue: failure))
    }

    /// Makes a missing directory again if it was this user's. Checks it as `init` does, and remembers it from now on.
    /// Only for an explicit unlock.
    /// - Throws: the errors of `init`. The former directory then stays remembered.
    package func rearm() throws(LockFileError) {
        try isOurs.withLock { (isOurs) throws(LockFileError) in
            // The check below reports ENOENT better.
            if isOurs, directory.withPlatformString({ mkdir($0, 0o700) }) == -1, errno != EEXIST, errno != ENOENT {
                throw LockFileError("cannot make \(directory.string): \(Errno(rawValue: errno))")
            }
            let identity = try Self.identifySafe(directory, at: looked)
            isOurs = identity.owner == geteuid()
            device.store(identity.device, ordering: .relaxed)
            inode.store(identity.inode, ordering: .relaxed)
            birth.store(identity.birth, ordering: .relaxed)
        }
    }

    /// Returns a line for people.
    package func describe(_ state: LockFileState) -> String {
        switch state {
        case .absent: "no lock file \(path.string)"
        case .present: "lock file \(path.string) exists"
        case .parentChanged: "directory \(directory.string) of the lock file is gone or was replaced"
        case .unknown(let errno): "cannot check lock file \(path.string): \(errno)"
        }
    }

    private func isRemembered(_ identity: linux_file_identity) -> Bool {
        device.load(ordering: .relaxed) == identity.device && inode.load(ordering: .relaxed) == identity.inode
            && birth.load(ordering: .relaxed) == identity.birth
    }

    /// Returns the numbers that distinguish the directory at `path` from another one in its place. Device and inode are
    /// not enough, because ext4 gives the inode number of a removed directory to the next one made.
    /// - Throws: if it is not a directory, or not safe.
    private static func identifySafe(
        _ path: FilePath, at looked: FilePath
    ) throws(LockFileError) -> linux_file_identity {
        if FileSystemType(at: path) == .overlay { copyUp(path) }
        var found = linux_file_identity()
        guard looked.withPlatformString({ linux_identify($0, &found) }) == 0 else {
            throw LockFileError(errno, checking: path)
        }
        guard found.mode & S_IFMT == S_IFDIR else { throw LockFileError(ENOTDIR, checking: path) }
        guard found.owner == geteuid() || found.owner == 0 else {
            throw .unsafe(path, "it belongs to user \(found.owner)")
        }
        // With an ACL the group bits are its mask, so named users and groups have no more rights (acl(5)).
        guard found.mode & (S_IWGRP | S_IWOTH) == 0 else {
            throw .unsafe(path, "others can write in it (mode \(String(found.mode & 0o7777, radix: 8)))")
        }
        return found
    }

    /// Sets a directory's access time to its current value. If the directory is in a lower layer of an overlay, the
    /// first change gives it another birth time, and perhaps another inode number
    /// (Documentation/filesystems/overlayfs.rst, "Inode properties"). The making of the lock file must not be this
    /// first change. For another user's directory this has no effect, because only the owner may do it.
    private static func copyUp(_ path: FilePath) {
        path.withPlatformString { path in
            var status = stat()
            guard stat(path, &status) == 0 else { return }
            let times = [status.st_atim, timespec(tv_sec: 0, tv_nsec: linux_UTIME_OMIT)]
            _ = utimensat(AT_FDCWD, path, times, 0)
        }
    }

    /// Repeats a call after EINTR, which FUSE and network file systems can return, whatever the file is.
    private static func retrying(_ call: () -> Int32) -> Int32 {
        while true {
            let result = call()
            guard result == -1, errno == EINTR else { return result }
        }
    }

    /// Returns the absolute path of a directory, and true if it leads through a link. Otherwise it is free of `.` and
    /// `..`, which may lead elsewhere after a link.
    private static func absolute(_ directory: FilePath) throws(LockFileError) -> (FilePath, isThroughLink: Bool) {
        let resolved = try resolve(directory.isEmpty ? "." : directory)
        let absolute = directory.isAbsolute ? directory : try resolve(".").pushing(directory)
        return absolute.lexicallyNormalized() == resolved ? (resolved, false) : (absolute, true)
    }

    /// Calls realpath(3).
    private static func resolve(_ path: FilePath) throws(LockFileError) -> FilePath {
        do throws(Errno) { return try ResolvedPath.of(path) } catch {
            throw LockFileError(error.rawValue, checking: path)
        }
    }

    private static func copy(_ path: FilePath) -> UnsafeMutablePointer<CChar> {
        guard let copy = path.withPlatformString({ strdup($0) }) else { preconditionFailure("out of memory") }
        return copy
    }
}

/// The result of `LockFile.check`. Every state except `absent` locks.
package enum LockFileState: Equatable, Sendable {
    /// The file is missing, and its directory is unchanged.
    case absent
    /// Something exists there: a file, a directory, a dangling link.
    case present
    /// The directory was removed or replaced.
    case parentChanged
    /// The check failed, for example with EACCES or EIO.
    case unknown(Errno)

    package var isLocked: Bool { self != .absent }
}

/// The reason why a path cannot be a lock file, or cannot be watched. Its description is a line for people.
package struct LockFileError: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String

    init(_ description: String) { self.description = description }

    fileprivate init(_ error: Int32, checking path: FilePath) {
        switch error {
        case ENOENT: self.init("directory \(path.string) of the lock file does not exist; make it first")
        case ENOTDIR: self.init("\(path.string), where the lock file is to be, is not a directory")
        default: self.init("cannot check \(path.string): \(Errno(rawValue: error))")
        }
    }

    /// Returns the error for a directory in which other users could make and remove files.
    fileprivate static func unsafe(_ path: FilePath, _ reason: String) -> Self {
        Self("directory \(path.string) of the lock file is not safe: \(reason)")
    }
}

extension LockFile: Codable {
    /// Checks the directory again, and remembers it in its current state.
    package convenience init(from decoder: any Decoder) throws { try self.init(path: FilePath(from: decoder)) }

    package func encode(to encoder: any Encoder) throws { try path.encode(to: encoder) }
}
