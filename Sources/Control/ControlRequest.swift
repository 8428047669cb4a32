package import VaultFormat

/// What a client asks of a daemon: one JSON object on a line, such as `{"request":"status"}`.
package enum ControlRequest: Sendable {
    case status
    /// The counters only.
    case stats
    case lock
    /// With a slot's secret where the daemon has forgotten its keys.
    case unlock(SlotSecret?)
    /// The state now, and from then on every event, until the connection ends.
    case events

    /// The word for it in a line.
    package var name: String {
        switch self {
        case .status: "status"
        case .stats: "stats"
        case .lock: "lock"
        case .unlock: "unlock"
        case .events: "events"
        }
    }
}
