internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// Asks the kernel whether a mount's daemon still lives.
enum MountProbe {
    /// How long a daemon may take, in seconds.
    private static let patience = 2

    /// Whether the daemon has died: such a mount stays in the table, and holds nothing. False where it does not answer.
    static func isDead(_ entry: MountTable.Entry) -> Bool {
        let answer = Monitor<Bool?>(nil)
        do throws(StoreError) {
            // Not joined: it may hang in the mount, which ends with this process.
            _ = try BackgroundThread {
                let isDead = openFails(entry)
                answer.update { $0 = isDead }
            }
        } catch {
            return false
        }
        return answer.wait(until: monotonicDeadline(in: patience)) { $0 } ?? false
    }

    /// On a thread of its own, which takes the identity of the mount's user: the kernel lets nobody else near a FUSE
    /// mount, not even root (fuse(8), allow_other).
    private static func openFails(_ entry: MountTable.Entry) -> Bool {
        if geteuid() == 0, let user = entry.userID, let group = entry.groupID, user != 0 {
            guard linux_become_user_on_thread(user, group) == 0 else { return false }
        }
        // stat(2) would be answered by the kernel for as long as it keeps attributes; opening asks the daemon.
        let fd = FilePath(bytes: entry.mountpoint).withPlatformString { open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        guard fd >= 0 else { return currentErrno() == .socketNotConnected }
        close(fd)
        return false
    }
}
