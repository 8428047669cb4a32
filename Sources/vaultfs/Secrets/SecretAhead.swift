internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Logging
internal import Synchronization
internal import VaultFormat
internal import VaultStore

/// Asks for a vault's secret when nothing else is missing (`mount --prewarm`), on a thread of its own, one asking at a time.
/// Any thread.
final class SecretAhead: Sendable {
    /// Ended by the descriptor becoming readable.
    typealias Asking = @Sendable (_ stop: Waker) throws(CommandFailure) -> SlotSecret
    typealias Taking = @Sendable (SlotSecret) -> Void

    private struct State {
        /// Who wants a secret now.
        var next: Taking?
        var isStopping = false
    }

    private let asking: Asking
    private let logger: Logger
    private let stopSignal: Waker
    private let state = Monitor(State())
    private let thread = Mutex<BackgroundThread?>(nil)

    /// - Throws: what eventfd(2) or pthread_create(3) do.
    init(_ asking: @escaping Asking, logger: Logger) throws(StoreError) {
        (self.asking, self.logger) = (asking, logger)
        stopSignal = try Waker()
        let made = try BackgroundThread { [self] in run() }
        thread.withLock { $0 = made }
    }

    /// Returns at once. Where it is asked already, it is asked once more after that.
    func ask(_ take: @escaping Taking) {
        state.update { $0.next = take }
    }

    /// How long a store that does not answer is waited for, in milliseconds.
    private static let patience = 5000

    /// Ends what asks now. Returns when it has ended, but does not wait for a store that does not answer.
    func stop() {
        state.update { $0.isStopping = true }
        stopSignal.wake()
        let asking = thread.withLock { $0.take() }
        _ = withinTime(milliseconds: Self.patience) { asking?.join() }
    }

    private func run() {
        while let take = next() {
            do throws(CommandFailure) {
                let secret = try asking(stopSignal)
                linux_scrub_thread()
                take(secret)
            } catch {
                logger.error("stays locked: \(error.message)")
            }
            linux_scrub_thread()
        }
    }

    private func next() -> Taking? {
        state.wait { state -> Taking?? in
            if state.isStopping { return .some(nil) }
            guard let next = state.next else { return nil }
            state.next = nil
            return next
        }
    }
}
