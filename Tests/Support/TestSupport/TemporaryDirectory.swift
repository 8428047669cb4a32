internal import CLinux
import Foundation

/// A new directory below the system's temporary one (or `base`), removed with its contents when released.
package final class TemporaryDirectory {
    /// A directory in memory, for tests that count calls and need no disk, because fsync(2) costs nothing there. If it
    /// is missing, or has no extended attributes (tmpfs before Linux 6.6), this is the system's temporary directory.
    package static let memory: String = {
        let system = ProcessInfo.processInfo.environment["TMPDIR"] ?? "/tmp"
        guard let probe = try? TemporaryDirectory(in: "/dev/shm") else { return system }
        return linux_setxattr(probe.path, "user.vaultfs", "", 0, 0) == 0 ? "/dev/shm" : system
    }()

    /// The absolute path, without a trailing slash.
    package let path: String

    /// Makes the directory with mode 0755, so a second user can pass through it (mkdtemp(3), chmod(2)).
    package init(in base: String? = nil) throws {
        let parent = base ?? ProcessInfo.processInfo.environment["TMPDIR"] ?? "/tmp"
        var template = Array("\(parent)/vaultfs-test-XXXXXX".utf8CString)
        guard let made = mkdtemp(&template) else { throw TestFailure("mkdtemp in \(parent): errno \(errno)") }
        path = String(cString: made)
        chmod(path, 0o755)
    }

    deinit {
        // Use rm instead of FileManager, because names on a backing store need not be UTF-8. An ordinary user must open
        // its own closed directories first.
        _ = try? Command(["sh", "-c", "rm -rf \(path) 2>/dev/null || { chmod -R u+rwx \(path); rm -rf \(path); }"])
            .run()
    }

    /// Returns the path of `name` inside.
    package func appending(_ name: String) -> String { "\(path)/\(name)" }

    /// Writes a small file and returns its path.
    @discardableResult
    package func write(_ name: String, _ content: String, mode: UInt32 = 0o644) throws -> String {
        let file = appending(name)
        try Data(content.utf8).write(to: URL(fileURLWithPath: file))
        chmod(file, mode)
        return file
    }
}
