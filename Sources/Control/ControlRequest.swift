package import VaultFormat

/// A client's request: one JSON object on a line, such as `{"request":"status"}`.
package enum ControlRequest: Sendable {
    case status
    /// The counters only.
    case stats
    case lock
    /// With a slot's secret if the daemon has forgotten its keys.
    case unlock(SlotSecret?)
    /// The state now, and then every event until the connection ends.
    case events

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
