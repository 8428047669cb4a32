package import Locking

/// An event of a mount: one JSON object on a line, `{"event":"did-lock","time":…,"mountpoint":…}`. The other fields depend
/// on the event.
package struct ControlEvent: Codable, Equatable, Sendable {
    /// The kind of event. Clients ignore names they do not know, because others may be added.
    package struct Name: RawRepresentable, Codable, Hashable, Sendable {
        package let rawValue: String

        package init(rawValue: String) {
            self.rawValue = rawValue
        }

        /// The first line of every stream: the state at the time of the request.
        package static let state = Name(rawValue: "state")
        package static let willLock = Name(rawValue: "will-lock")
        package static let didLock = Name(rawValue: "did-lock")
        package static let willUnlock = Name(rawValue: "will-unlock")
        package static let didUnlock = Name(rawValue: "did-unlock")
        package static let denied = Name(rawValue: "denied")
        package static let integrityError = Name(rawValue: "integrity-error")
    }

    private enum CodingKeys: String, CodingKey {
        case name = "event"
        case time, mountpoint, state, reasons, graceSeconds, receipt, count, reason
    }

    package let name: Name
    /// `YYYY-MM-DDThh:mm:ssZ`
    package let time: String
    package let mountpoint: String
    /// With `state`.
    package var state: MountStatus.State?
    /// With `state` and `willLock`: raw values of `LockReason`.
    package var reasons: [String]?
    /// With `willLock`.
    package var graceSeconds: Double?
    /// With `didLock`.
    package var receipt: LockReceipt?
    /// With `denied`: requests refused since the last such event.
    package var count: UInt64?
    /// With `integrityError`.
    package var reason: String?

    package init(_ name: Name, time: String, mountpoint: String) {
        self.name = name
        self.time = time
        self.mountpoint = mountpoint
    }

    /// The line that carries it, without the LF.
    package var line: [UInt8] { ControlMessage.line(of: self).dropLast() }
}
