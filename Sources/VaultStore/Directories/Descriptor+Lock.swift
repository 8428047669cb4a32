internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

extension Descriptor {
    /// flock(2), `LOCK_EX` or `LOCK_SH`, tried again for up to `wait`. It lasts until the descriptor (and every duplicate) is
    /// closed.
    /// - Throws: `EAGAIN` where another holds it all the while.
    func lockWhole(_ operation: Int32, wait: Duration) throws(StoreError) {
        let deadline = ContinuousClock.now + wait
        while true {
            do throws(StoreError) {
                try retrying { flock(fd, operation | LOCK_NB) }
                return
            } catch {
                guard error == .system(.wouldBlock), ContinuousClock.now < deadline else { throw error }
            }
            // flock(2) has no time-out, and a signal to break a blocking call would be anybody's.
            usleep(20_000)
        }
    }
}
