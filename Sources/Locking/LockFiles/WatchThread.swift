internal import Glibc
internal import SystemPackage

/// A joinable POSIX thread that takes no signals.
final class WatchThread: @unchecked Sendable {
    // @unchecked: `handle` is written once, before anyone else has the object.
    private var handle = pthread_t()

    private final class Body {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// - Throws: pthread_create(3)'s error.
    init(_ run: @escaping @Sendable () -> Void) throws(Errno) {
        // Blocked before the thread is there, which inherits the mask.
        var all = sigset_t()
        var before = sigset_t()
        sigfillset(&all)
        pthread_sigmask(SIG_SETMASK, &all, &before)
        defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
        let body = Unmanaged.passRetained(Body(run))
        let code = pthread_create(&handle, nil, watchThreadMain, body.toOpaque())
        guard code == 0 else {
            body.release()
            throw Errno(rawValue: code)
        }
    }

    /// Waits for the thread's end. Once, by its owner.
    func join() {
        pthread_join(handle, nil)
    }

    fileprivate static func run(_ argument: UnsafeMutableRawPointer) {
        Unmanaged<Body>.fromOpaque(argument).takeRetainedValue().run()
    }
}

private func watchThreadMain(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    if let argument { WatchThread.run(argument) }
    return nil
}
