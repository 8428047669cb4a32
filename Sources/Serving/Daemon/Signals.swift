package import FuseSession
package import Glibc
internal import LinuxSystem

/// The signals of a daemon: SIGTERM, SIGINT and SIGHUP end it in good order, SIGUSR1 locks, SIGUSR2 unlocks. One thread
/// takes them with sigwait(3), so their effects may lock and allocate.
package enum Signals {
    package static let ending = [SIGTERM, SIGINT, SIGHUP]
    package static let locking = [SIGUSR1, SIGUSR2]

    /// Blocks signals in this thread and in all threads that it starts later.
    package static func block(_ numbers: [Int32]) {
        var set = Self.set(of: numbers)
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// True if an ending signal is blocked and waits for the signal thread, which starts only once the mount is made.
    package static var isEndPending: Bool {
        var pending = sigset_t()
        sigpending(&pending)
        return ending.contains { sigismember(&pending, $0) == 1 }
    }

    /// Starts a thread, which calls `body` with each signal's number. The signals must be blocked.
    /// - Throws: kind `failure`.
    package static func onArrival(of numbers: [Int32], _ body: @escaping @Sendable (Int32) -> Void) throws(MountError) {
        do throws(StoreError) {
            _ = try BackgroundThread {
                var set = Self.set(of: numbers)
                var number: Int32 = 0
                while sigwait(&set, &number) == 0 { body(number) }
            }
        } catch {
            throw MountError(.failure, reason: "cannot start a thread for signals: \(error.errno)")
        }
    }

    /// Ends this process by the signal, so that its parent sees the signal.
    package static func end(by number: Int32) -> Never {
        signal(number, SIG_DFL)
        kill(getpid(), number)
        var set = Self.set(of: [number])
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
        exit(128 + number)
    }

    package static func set(of numbers: [Int32]) -> sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for number in numbers { sigaddset(&set, number) }
        return set
    }
}
