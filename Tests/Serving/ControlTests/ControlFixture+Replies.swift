import FileSystem
import Foundation
import LinuxSystem
import Locking

@testable import Control

/// A handler that answers `status` and `events` at once, and holds every other request until the test releases it.
final class HeldRequests: Sendable {
    typealias Reply = @Sendable (ControlResponse) -> Void

    private let held = Monitor<[(request: ControlRequest, reply: Reply)]>([])

    var handler: ControlServer.Handler {
        { [self] request, reply in
            switch request {
            case .status: reply(.status(status()))
            case .events: reply(.subscribed(state()))
            case .sync, .lock, .unlock: held.update { $0.append((request, reply)) }
            }
        }
    }

    /// Waits for the next held request, and returns it.
    func next() throws -> (request: ControlRequest, reply: Reply) {
        let next = held.wait(until: .now + .seconds(300)) { $0.isEmpty ? nil : $0.removeFirst() }
        guard let next else { throw ControlError.noAnswer("no request came") }
        return next
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
