internal import Control
internal import Locking

/// A mount's event in words, for `events` without --json.
enum EventText {
    /// `2026-11-21T10:00:00Z /home/ada/Private: locking: a lock file exists`
    static func line(_ event: ControlEvent) -> String {
        "\(Console.shown(event.time)) \(Console.shown(event.mountpoint)): \(words(event))"
    }

    private static func words(_ event: ControlEvent) -> String {
        let reason = event.reason.map(Console.shown) ?? "the reason is not known"
        switch event.event {
        case "state": return "now " + Console.shown(event.state ?? "in an unknown state") + because(event)
        case "will-lock":
            let grace = event.graceSeconds ?? 0
            return "locking" + (grace > 0 ? " in \(FieldText.rounded(grace)) s" : "") + because(event)
        case "did-lock": return "locked" + (event.receipt.map { ": " + $0.summary } ?? "")
        case "will-unlock": return "unlocking"
        case "did-unlock": return "unlocked"
        case "denied": return "refused " + AmountText.counted(Int(clamping: event.count ?? 0), "request")
        case "integrity-error": return "damaged: \(damagedObject(event)): \(reason)"
        case "problem":
            return (event.atEnd == true ? "ended, and not everything is known to be in place: " : "problem: ") + reason
        case "mounted", "unmounted": return event.event
        default:
            // A daemon of a later version may send events unknown here.
            let details = FieldText.text(of: event, without: ["event", "time", "mountpoint", "receipt"])
            return Console.shown(event.event) + (details.isEmpty ? "" : ": " + details)
        }
    }

    private static func damagedObject(_ event: ControlEvent) -> String {
        if let path = event.path { return path.isEmpty ? "." : Console.shown(path) }
        return event.encryptedPath.map { "encrypted path \(Console.shown($0))" } ?? "an object without a name"
    }

    private static func because(_ event: ControlEvent) -> String {
        let reasons = (event.reasons ?? []).map { LockReason(rawValue: $0)?.explanation ?? Console.shown($0) }
        return reasons.isEmpty ? "" : ": " + reasons.joined(separator: ", ")
    }
}

extension LockReason {
    /// The reason of a lock, for people.
    fileprivate var explanation: String {
        switch self {
        case .lockFile: "a lock file exists"
        case .lockDirectory: "the directory of a lock file was removed or replaced"
        case .command: "a command asked for it"
        case .idle: "the files were not used"
        case .signal: "a signal asked for it"
        case .expired: "the slot that opened it has expired"
        }
    }
}
