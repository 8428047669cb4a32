internal import Glibc
internal import LinuxSystem
internal import VaultStore

/// SIGTERM, SIGINT and SIGHUP, which end a daemon in good order, SIGUSR1, which locks, and SIGUSR2, which unlocks: taken
/// by one thread with sigwait(3), so that what they cause may lock and allocate.
enum Signals {
    static let ending = [SIGTERM, SIGINT, SIGHUP]
    static let locking = [SIGUSR1, SIGUSR2]

    /// Blocks them in the calling thread, and so in every thread it makes later.
    static func block(_ numbers: [Int32]) {
        var set = Self.set(of: numbers)
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Starts the thread that calls `body` with the number of each. They must be blocked.
    /// - Throws: where there can be no thread: blocked, the signals would do nothing.
    static func onArrival(
        of numbers: [Int32], _ body: @escaping @Sendable (Int32) -> Void
    ) throws(CommandFailure) {
        do throws(StoreError) {
            _ = try BackgroundThread {
                var set = Self.set(of: numbers)
                var number: Int32 = 0
                while sigwait(&set, &number) == 0 { body(number) }
            }
        } catch {
            throw CommandFailure(.failure, "cannot start a thread for signals: \(error.errno)")
        }
    }

    /// Ends this process as the signal would have, for whoever waits for it to see.
    static func end(by number: Int32) -> Never {
        signal(number, SIG_DFL)
        kill(getpid(), number)
        var set = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, number)
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
        exit(128 + number)
    }

    private static func set(of numbers: [Int32]) -> sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for number in numbers { sigaddset(&set, number) }
        return set
    }
}
