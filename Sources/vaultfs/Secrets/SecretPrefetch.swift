internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Logging
internal import Synchronization
internal import VaultFormat
internal import VaultStore

/// Fetches a vault's secret in the background (`mount --prewarm`), on its own thread, once at a time. Any thread.
final class SecretPrefetch: Sendable {
    /// Returns the secret, or throws soon after `stop` becomes readable.
    typealias Fetch = @Sendable (_ stop: Waker) throws(CommandFailure) -> SlotSecret
    typealias Receiver = @Sendable (SlotSecret) -> Void

    /// The longest time that `stop` waits for a store that does not answer, in milliseconds.
    private static let stopTimeout = 5000

    private struct State {
        /// Set while another fetch is wanted.
        var next: Receiver?
        var isStopping = false
    }

    private let fetch: Fetch
    private let logger: Logger
    private let stopSignal: Waker
    private let state = Monitor(State())
    private let thread = Mutex<BackgroundThread?>(nil)

    /// - Throws: errors of eventfd(2) and pthread_create(3).
    init(_ fetch: @escaping Fetch, logger: Logger) throws(StoreError) {
        (self.fetch, self.logger) = (fetch, logger)
        stopSignal = try Waker()
        let made = try BackgroundThread { [self] in run() }
        thread.withLock { $0 = made }
    }

    /// Requests a fetch, and another one after the fetch that is under way. Does not wait.
    func start(_ receiver: @escaping Receiver) {
        state.update { $0.next = receiver }
    }

    /// Ends the fetch that is under way and waits for its end, up to the timeout.
    func stop() {
        state.update { $0.isStopping = true }
        stopSignal.wake()
        let running = thread.withLock { $0.take() }
        _ = withinTime(milliseconds: Self.stopTimeout) { running?.join() }
    }

    private func run() {
        while let receiver = next() {
            do throws(CommandFailure) {
                let secret = try fetch(stopSignal)
                linux_scrub_thread()
                receiver(secret)
            } catch {
                logger.error("stays locked: \(error.message)")
            }
            linux_scrub_thread()
        }
    }

    private func next() -> Receiver? {
        state.wait { state -> Receiver?? in
            if state.isStopping { return .some(nil) }
            guard let next = state.next else { return nil }
            state.next = nil
            return next
        }
    }
}
