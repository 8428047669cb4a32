import FileSystem
import Foundation
import LinuxSystem
import Locking
import Synchronization

@testable import Control

/// A handler that answers `status` and `events` at once, and holds every other request until the test releases it.
final class HeldRequests: Sendable {
    typealias Reply = @Sendable (ControlResponse) -> Void

    private let held = Mutex<[(ControlRequest, Reply)]>([])
    private let arrived = DispatchSemaphore(value: 0)

    var handler: ControlServer.Handler {
        { [self] request, reply in
            switch request {
            case .status: reply(.status(status()))
            case .events: reply(.subscribed(state()))
            case .sync, .lock, .unlock:
                held.withLock { $0.append((request, reply)) }
                arrived.signal()
            }
        }
    }

    /// Waits for the next held request, and returns it.
    func next() throws -> (request: ControlRequest, reply: Reply) {
        guard arrived.wait(timeout: .now() + 300) == .success else { throw ControlError.noAnswer("no request came") }
        return held.withLock { $0.removeFirst() }
    }
}

func state(mountpoint: String = "/mnt") -> ControlEvent {
    ControlEvent(state: "unlocked", reasons: [], time: "2026-11-21T10:00:00Z", mountpoint: mountpoint)
}

func event(_ number: Int, padding: Int = 0) -> ControlEvent {
    let reason = "\(number)" + String(repeating: "x", count: padding)
    return ControlEvent(.integrityError(Damage(reason, at: nil)), time: "2026-11-21T10:00:00Z", mountpoint: "/mnt")
}

let receipt = LockReceipt()

extension RawClient {
    /// Reads the next line as an event. Nil at the end of the stream.
    func readEvent() throws -> ControlEvent? {
        try readLine().map { try JSONDecoder().decode(ControlEvent.self, from: Data($0.utf8)) }
    }

    /// Ends the client's sending with shutdown(2).
    func closeSendingSide() {
        shutdown(socket.fd, Int32(SHUT_WR))
    }
}
