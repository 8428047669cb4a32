package import Locking

/// A daemon's answer: one JSON object on a line.
package enum ControlResponse: Encodable, Equatable, Sendable {
    case status(MountStatus)
    /// The counters, an object.
    case stats(JSONValue)
    /// Answers `lock`. `already`: the mount was locked before, and the receipt is that lock's.
    case locked(receipt: LockReceipt, already: Bool)
    /// Answers `unlock`. `already`: the mount was not locked.
    case unlocked(already: Bool)
    /// Answers `events`: the state now, in an event named `state`.
    case subscribed(ControlEvent)
    case error(ControlFailure)

    package func encode(to encoder: any Encoder) throws {
        try ControlMessage.encode(self, to: encoder)
    }
}

/// The reason why a request was not done.
package struct ControlFailure: Error, Equatable, Sendable {
    /// The reason for programs. Stable; others may be added.
    package struct Code: RawRepresentable, Codable, Hashable, Sendable {
        package let rawValue: String

        package init(rawValue: String) {
            self.rawValue = rawValue
        }

        /// The line is no request of this protocol.
        package static let notARequest = Code(rawValue: "not-a-request")
        package static let unknownRequest = Code(rawValue: "unknown-request")
        /// The line is too long. The daemon hangs up.
        package static let requestTooLong = Code(rawValue: "request-too-long")
        /// The daemon has too much else to do, and hangs up.
        package static let busy = Code(rawValue: "busy")
        /// This daemon cannot do it.
        package static let notSupported = Code(rawValue: "not-supported")
        /// `lockFiles` keep the vault locked: they exist or cannot be examined.
        package static let lockFileExists = Code(rawValue: "lock-file-exists")
        /// The keys were forgotten: ask again with a secret.
        package static let secretNeeded = Code(rawValue: "secret-needed")
        /// The secret opens no slot.
        package static let wrongSecret = Code(rawValue: "wrong-secret")
        /// The secret was not tried: ask again after `retryAfterSeconds`.
        package static let tooManyTries = Code(rawValue: "too-many-tries")
        /// Any other reason, in `message`.
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
