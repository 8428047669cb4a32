internal import FileSystem
internal import LinuxSystem
package import Locking

/// An event of a mount: one JSON object on a line, `{"event":"did-lock","time":…,"mountpoint":…}`. The other fields
/// depend on the event.
package struct ControlEvent: Codable, Equatable, Sendable {
    /// The name. Clients ignore unknown names, because others may be added.
    package let event: String
    /// `YYYY-MM-DDThh:mm:ssZ`
    package let time: String
    package let mountpoint: String
    /// With `state`.
    package private(set) var state: String?
    /// With `state` and `will-lock`: raw values of `LockReason`.
    package private(set) var reasons: [String]?
    /// With `will-lock`.
    package private(set) var graceSeconds: Double?
    /// With `did-lock`.
    package private(set) var receipt: LockReceipt?
    /// With `denied`: the number of requests refused since the last such event.
    package private(set) var count: UInt64?
    /// With `integrity-error`: the damaged part of the file, and the kind of damage. With `problem`: as in `status`.
    package private(set) var reason: String?
    /// With `integrity-error`: the path below the mountpoint. Nil if unknown. Invalid UTF-8 is repaired.
    package private(set) var path: String?
    /// With `integrity-error` in a vault: the path below the vault's directory.
    package private(set) var encryptedPath: String?
    /// With `problem`: true if the mount has ended with it, and some written data may not be in place.
    package private(set) var atEnd: Bool?

    package init(_ event: LockEvent, time: String = UtcTime.now(), mountpoint: String) {
        self.time = time
        self.mountpoint = mountpoint
        switch event {
        case .willLock(let reasons, let grace):
            self.event = "will-lock"
            self.reasons = reasons.map(\.rawValue)
            graceSeconds = Double(grace) / 1000
        case .didLock(let receipt):
            self.event = "did-lock"
            self.receipt = receipt
        case .willUnlock: self.event = "will-unlock"
        case .didUnlock: self.event = "did-unlock"
        case .denied(let count):
            self.event = "denied"
            self.count = count
        case .integrityError(let damage):
            self.event = "integrity-error"
            reason = damage.reason
            path = damage.path?.plaintext.map { String(decoding: $0, as: UTF8.self) }
            // A view's names are not encrypted.
            if let stored = damage.path?.stored, stored != damage.path?.plaintext {
                encryptedPath = String(decoding: stored, as: UTF8.self)
            }
        case .problem(let problem, let isAtEnd):
            self.event = "problem"
            reason = problem
            atEnd = isAtEnd
        }
    }

    /// Makes `mounted`, which a client finds by itself, or `unmounted`, a mount's last event.
    package init(isMounted: Bool, time: String = UtcTime.now(), mountpoint: String) {
        event = isMounted ? "mounted" : "unmounted"
        self.time = time
        self.mountpoint = mountpoint
    }

    package var isEnd: Bool { event == "unmounted" }

    /// Makes the first line of every stream: the state at the time of the request.
    package init(state: String, reasons: [String]?, time: String = UtcTime.now(), mountpoint: String) {
        event = "state"
        self.time = time
        self.mountpoint = mountpoint
        self.state = state
        self.reasons = reasons
    }

    /// The event's line, without the LF.
    package var line: [UInt8] { jsonLine(self).dropLast() }
}
