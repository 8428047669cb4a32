internal import FoundationEssentials
package import Locking

/// A daemon's answer: one JSON object on a line.
package enum ControlResponse: Encodable, Equatable, Sendable {
    case status(MountStatus)
    /// Answers `sync`.
    case synchronized
    /// Answers `lock`. `already`: the mount was locked before, and the receipt is from then.
    case locked(receipt: LockReceipt, already: Bool)
    /// Answers `unlock`. `already`: the mount was not locked. `arrivedFiles`: files made in inboxes during the lock.
    case unlocked(already: Bool, arrivedFiles: Int = 0)
    /// Answers `events` with the current state, in an event named `state`.
    case subscribed(ControlEvent)
    case error(ControlFailure)

    /// The longest line that a client reads, in bytes.
    static let maximumSize = 1 << 20

    /// The answers to `sync`, `lock` and `unlock`.
    private struct Fields: Codable {
        var synchronized: Bool?
        var state: String?
        var already: Bool?
        var receipt: LockReceipt?
        var arrivedFiles: Int?
    }

    package func encode(to encoder: any Encoder) throws {
        switch self {
        case .status(let status): try status.encode(to: encoder)
        case .synchronized: try Fields(synchronized: true).encode(to: encoder)
        case .locked(let receipt, let already):
            try Fields(state: "locked", already: already, receipt: receipt).encode(to: encoder)
        case .unlocked(let already, let arrived):
            try Fields(state: "unlocked", already: already, arrivedFiles: arrived == 0 ? nil : arrived).encode(
                to: encoder)
        case .subscribed(let event): try event.encode(to: encoder)
        case .error(let failure): try failure.encode(to: encoder)
        }
    }

    /// Decodes the response to `request` from arbitrary bytes.
    /// - Throws: `notUnderstood`.
    static func parse(_ line: Data, to request: ControlRequest) throws(ControlError) -> ControlResponse {
        let decoder = JSONDecoder()
        if let failure = try? decoder.decode(ControlFailure.self, from: line) { return .error(failure) }
        do {
            switch request {
            case .status: return .status(try decoder.decode(MountStatus.self, from: line))
            case .events: return .subscribed(try decoder.decode(ControlEvent.self, from: line))
            case .sync, .lock, .unlock:
                let fields = try decoder.decode(Fields.self, from: line)
                switch (request, fields.already, fields.receipt) {
                case (.sync, _, _) where fields.synchronized == true: return .synchronized
                case (.lock, let already?, let receipt?): return .locked(receipt: receipt, already: already)
                case (.unlock, let already?, _):
                    return .unlocked(already: already, arrivedFiles: fields.arrivedFiles ?? 0)
                default: break
                }
            }
        } catch {}
        throw .notUnderstood("\(line.count) bytes that are no answer to '\(request.name)'")
    }
}

/// The reason why a request was not done.
package struct ControlFailure: Error, Codable, Equatable, Sendable {
    /// The reason for programs. Existing codes are stable, but others may be added.
    package enum Code: String, CaseIterable, Sendable {
        /// The line is not a request of this protocol.
        case notARequest = "not-a-request"
        case unknownRequest = "unknown-request"
        /// The line is too long. The daemon hangs up.
        case requestTooLong = "request-too-long"
        /// Too many long requests at a time, or too many subscribers. In the first case the daemon hangs up.
        case busy
        /// This mount does not support the request.
        case notSupported = "not-supported"
        /// `lockFiles` keep the vault locked: they exist or cannot be examined.
        case lockFileExists = "lock-file-exists"
        /// The daemon has forgotten the keys. The client must ask again with a secret.
        case secretNeeded = "secret-needed"
        /// The secret opens no slot.
        case wrongSecret = "wrong-secret"
        /// The daemon did not try the secret. The client may ask again after `retryAfterSeconds`.
        case tooManyTries = "too-many-tries"
        /// Written data could not be made durable, or was lost.
        case notDurable = "not-durable"
        /// Any other reason, in `message`.
        case failed
    }

    private enum CodingKeys: String, CodingKey {
        case spelledCode = "code"
        case message = "error"
        case lockFiles, retryAfterSeconds
    }

    /// The code, possibly of another version.
    private let spelledCode: String?
    /// A line for people: lower case, no full stop. It never contains a secret.
    package let message: String
    /// With `lockFileExists`: their paths.
    package let lockFiles: [String]?
    /// With `tooManyTries`.
    package let retryAfterSeconds: Double?

    package init(_ code: Code, _ message: String, lockFiles: [String]? = nil, retryAfterSeconds: Double? = nil) {
        spelledCode = code.rawValue
        self.message = message
        self.lockFiles = lockFiles
        self.retryAfterSeconds = retryAfterSeconds
    }

    package var code: Code { spelledCode.flatMap(Code.init) ?? .failed }
}

/// Encodes an answer or an event as a line, with its LF.
func jsonLine(_ message: some Encodable) -> [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    do {
        return Array(try encoder.encode(message)) + [UInt8(ascii: "\n")]
    } catch {
        preconditionFailure("internal error: a control message cannot be encoded: \(error)")
    }
}
