/// What a daemon answers: one JSON object on a line.
package enum ControlResponse: Equatable, Sendable {
    case status(MountStatus)
    /// The counters, an object.
    case stats(JSONValue)
    /// Answers `lock`.
    /// - Parameters:
    ///   - receipt: an object with at least `complete` and `unpurged` (ControlSocket, Receipt).
    ///   - already: it was locked before; the receipt is that lock's.
    case locked(receipt: JSONValue, already: Bool)
    /// Answers `unlock`. `already`: it was not locked.
    case unlocked(already: Bool)
    /// Answers `events`: the state now, an event named `state`.
    case subscribed(ControlEvent)
    case error(ControlFailure)

    /// The fields of the line it is sent as.
    package var fields: [String: JSONValue] { ControlMessage.fields(of: self) }
}

/// Why a request was not done.
package struct ControlFailure: Error, Equatable, Sendable {
    /// What programs go by. Stable; others may be added.
    package struct Code: RawRepresentable, Hashable, Sendable {
        package let rawValue: String

        package init(rawValue: String) {
            self.rawValue = rawValue
        }

        /// The line is no request of this protocol.
        package static let notARequest = Code(rawValue: "not-a-request")
        package static let unknownRequest = Code(rawValue: "unknown-request")
        /// The line is too long; the daemon hangs up.
        package static let requestTooLong = Code(rawValue: "request-too-long")
        /// Too much else is under way; the daemon hangs up.
        package static let busy = Code(rawValue: "busy")
        /// This daemon does not do it.
        package static let notSupported = Code(rawValue: "not-supported")
        /// `lockFiles` exist (or cannot be looked at): they keep the vault locked.
        package static let lockFileExists = Code(rawValue: "lock-file-exists")
        /// The keys were forgotten: ask again, with a secret.
        package static let secretNeeded = Code(rawValue: "secret-needed")
        /// The secret opens no slot.
        package static let wrongSecret = Code(rawValue: "wrong-secret")
        /// The secret was not even tried: ask again after `retryAfterSeconds`.
        package static let tooManyTries = Code(rawValue: "too-many-tries")
        /// Anything else; the text says what.
        package static let failed = Code(rawValue: "failed")
    }

    package let code: Code
    /// A line for people: lower case, no full stop. Never a secret.
    package let message: String
    /// With `lockFileExists`: their paths.
    package let lockFiles: [String]?
    /// With `tooManyTries`.
    package let retryAfterSeconds: Double?

    package init(
        _ code: Code, _ message: String, lockFiles: [String]? = nil, retryAfterSeconds: Double? = nil
    ) {
        self.code = code
        self.message = message
        self.lockFiles = lockFiles
        self.retryAfterSeconds = retryAfterSeconds
    }
}
