internal import CLinux
internal import Glibc
internal import SystemPackage

/// A joinable POSIX thread that runs one nonisolated closure. At its end it zeroes its stack, which glibc reuses.
package final class BackgroundThread: @unchecked Sendable {
    // @unchecked: only `init` writes `handle`.
    private var handle = pthread_t()

    private final class Body {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// - Parameter blocksSignals: true to let the thread receive no signals. Otherwise it inherits the caller's mask.
    /// - Throws: pthread_create(3)'s error.
    package init(blocksSignals: Bool = false, _ run: @escaping @Sendable () -> Void) throws(StoreError) {
        var (all, before) = (sigset_t(), sigset_t())
        if blocksSignals {
            // The thread inherits this mask, so signals cannot reach it even before it runs.
            sigfillset(&all)
            pthread_sigmask(SIG_SETMASK, &all, &before)
        }
        defer { if blocksSignals { pthread_sigmask(SIG_SETMASK, &before, nil) } }
        let body = Unmanaged.passRetained(Body(run))
        let code = pthread_create(&handle, nil, backgroundThreadMain, body.toOpaque())
        guard code == 0 else {
            body.release()
            throw .system(.init(rawValue: code))
        }
    }

    /// Lets the thread end by itself. Call either this or `join`.
    package func detach() { pthread_detach(handle) }

    /// Waits for the thread's end. Only its owner may call this, once.
    package func join() { pthread_join(handle, nil) }

    fileprivate static func run(_ argument: UnsafeMutableRawPointer) {
        Unmanaged<Body>.fromOpaque(argument).takeRetainedValue().run()
        linux_scrub_thread()
    }
}

private func backgroundThreadMain(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    if let argument { BackgroundThread.run(argument) }
    return nil
}

/// Runs `body`, which may block on storage, on a thread of its own, or here if none can be started. Returns nil if it
/// has not ended in time. It then continues, and its result is dropped. Any thread.
package func withinTime<Result: Sendable>(milliseconds: Int, _ body: @escaping @Sendable () -> Result) -> Result? {
    let outcome = Monitor<Result?>(nil)
    guard
        let thread = try? BackgroundThread({
            let result = body()
            outcome.update { $0 = result }
        })
    else {
        return body()
    }
    thread.detach()
    return outcome.wait(until: .now + .milliseconds(milliseconds)) { $0 }
}
