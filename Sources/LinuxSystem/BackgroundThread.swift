internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto

/// A joinable POSIX thread running one nonisolated closure. At its end its stack is zeroed, which glibc keeps for another thread.
package final class BackgroundThread: @unchecked Sendable {
    // @unchecked: `handle` is written once, before anyone else has the object.
    private var handle = pthread_t()

    private final class Body {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// - Throws: pthread_create(3)'s error.
    package init(_ run: @escaping @Sendable () -> Void) throws(StoreError) {
        let body = Unmanaged.passRetained(Body(run))
        let code = pthread_create(&handle, nil, backgroundThreadMain, body.toOpaque())
        guard code == 0 else {
            body.release()
            throw .system(.init(rawValue: code))
        }
    }

    /// Lets the thread go by itself, instead of `join`.
    package func detach() {
        pthread_detach(handle)
    }

    /// Waits for the thread's end. Once, by its owner.
    package func join() {
        pthread_join(handle, nil)
    }

    fileprivate static func run(_ argument: UnsafeMutableRawPointer) {
        Unmanaged<Body>.fromOpaque(argument).takeRetainedValue().run()
        linux_scrub_thread()
    }
}

private func backgroundThreadMain(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    if let argument { BackgroundThread.run(argument) }
    return nil
}
