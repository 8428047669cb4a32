import CLinux
import Foundation
import LinuxSystem
import SystemPackage
import TestSupport

@testable import Locking

/// A directory `locks` for lock files, two directories deep in a temporary one.
final class Place {
    let temporary: TemporaryDirectory
    let ancestor: String
    let parent: String
    let locks: String
    let lock: String

    init() throws {
        temporary = try TemporaryDirectory()
        ancestor = temporary.appending("ancestor")
        parent = "\(ancestor)/parent"
        locks = "\(parent)/locks"
        lock = "\(locks)/device.lock"
        try FileManager.default.createDirectory(atPath: locks, withIntermediateDirectories: true)
        for path in [ancestor, parent, locks] { chmod(path, 0o755) }
        try awaitTick()
    }

    /// Waits until a new directory would get a later birth time than `locks`. The file system's clock ticks a few
    /// hundred times a second.
    func awaitTick() throws {
        let made = try birth(of: locks)
        let probe = temporary.appending("probe")
        var now = made
        while now == made {
            try makeDirectory(probe)
            now = try birth(of: probe)
            try removeDirectory(probe)
        }
    }

    private func birth(of path: String) throws -> UInt64 {
        var identity = linux_file_identity()
        try check(linux_identify(path, &identity), "look at", path)
        return identity.birth
    }

    func file(_ name: String = "device.lock") throws -> LockFile {
        try LockFile(path: FilePath("\(locks)/\(name)"))
    }

    func create(_ path: String) throws {
        let fd = try check(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600), "create", path)
        close(fd)
    }

    func remove(_ path: String) throws { try check(unlink(path), "remove", path) }
    func makeDirectory(_ path: String) throws { try check(mkdir(path, 0o755), "mkdir", path) }
    func removeDirectory(_ path: String) throws { try check(rmdir(path), "rmdir", path) }
    func move(_ from: String, _ to: String) throws { try check(rename(from, to), "rename", from) }

    func exchange(_ first: String, _ second: String) throws {
        try check(linux_renameat2(AT_FDCWD, first, AT_FDCWD, second, linux_RENAME_EXCHANGE), "exchange", first)
    }

    @discardableResult
    func check(_ result: Int32, _ what: String, _ path: String) throws -> Int32 {
        guard result >= 0 else { throw TestFailure("\(what) \(path): errno \(errno)") }
        return result
    }
}

/// Runs `body` to its end on a thread with only an ordinary user's rights. root's thread becomes `nobody` for file
/// access (setfsuid(2)), and so do threads started by it.
func withoutPrivilege(_ body: @escaping @Sendable () -> Void) throws {
    try BackgroundThread {
        if geteuid() == 0 {
            // Swift's Glibc module lacks this function.
            typealias SetFileSystemUser = @convention(c) (UInt32) -> Int32
            _ = unsafeBitCast(dlsym(nil, "setfsuid"), to: SetFileSystemUser?.self)?(65534)
        }
        body()
    }.join()
}
