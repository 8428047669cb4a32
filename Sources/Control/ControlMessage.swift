internal import FoundationEssentials
internal import Locking

/// Encodes and decodes responses and events, a line each. Pure. The input may be any bytes.
enum ControlMessage {
    /// The longest line that a daemon reads, in bytes: a keyfile of 8 MiB in base64.
    static let maximumRequestSize = 12 << 20
    /// The longest line without its secret.
    static let maximumPlainRequestSize = 64 << 10
    /// The longest line that a client reads.
    static let maximumResponseSize = 1 << 20

    private struct ErrorLine: Codable {
        var error: String
        var code: ControlFailure.Code?
        var lockFiles: [String]?
        var retryAfterSeconds: Double?
    }

    private struct StatisticsLine: Codable {
        let statistics: JSONValue
    }

    private struct LockedLine: Codable {
        var state = MountStatus.State.locked
        let already: Bool
        let receipt: LockReceipt
    }

    private struct UnlockedLine: Codable {
        var state = MountStatus.State.unlocked
        let already: Bool
    }

    static func line(of message: some Encodable) -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        do {
            return Array(try encoder.encode(message)) + [UInt8(ascii: "\n")]
        } catch {
            preconditionFailure("internal error: a control message cannot be encoded: \(error)")
        }
    }

    static func encode(_ response: ControlResponse, to encoder: any Encoder) throws {
        switch response {
        case .status(let status): try status.encode(to: encoder)
        case .stats(let statistics): try StatisticsLine(statistics: statistics).encode(to: encoder)
        case .locked(let receipt, let already): try LockedLine(already: already, receipt: receipt).encode(to: encoder)
        case .unlocked(let already): try UnlockedLine(already: already).encode(to: encoder)
        case .subscribed(let event): try event.encode(to: encoder)
        case .error(let failure):
            try ErrorLine(
                error: failure.message, code: failure.code, lockFiles: failure.lockFiles,
                retryAfterSeconds: failure.retryAfterSeconds
            ).encode(to: encoder)
        }
    }

    /// The response to `request` in a line.
    /// - Throws: `notUnderstood`.
    static func response(line: Data, to request: ControlRequest) throws(ControlError) -> ControlResponse {
        let decoder = JSONDecoder()
        if let error = try? decoder.decode(ErrorLine.self, from: line) {
            return .error(
                ControlFailure(
                    error.code ?? .failed, error.error, lockFiles: error.lockFiles,
                    retryAfterSeconds: error.retryAfterSeconds))
        }
        do {
            switch request {
            case .status: return .status(try decoder.decode(MountStatus.self, from: line))
            case .stats: return .stats(try decoder.decode(StatisticsLine.self, from: line).statistics)
            case .lock:
                let answer = try decoder.decode(LockedLine.self, from: line)
                return .locked(receipt: answer.receipt, already: answer.already)
            case .unlock: return .unlocked(already: try decoder.decode(UnlockedLine.self, from: line).already)
            case .events: return .subscribed(try decoder.decode(ControlEvent.self, from: line))
            }
        } catch {
            throw .notUnderstood("\(line.count) bytes that are no answer to '\(request.name)'")
        }
    }

    /// - Throws: `notUnderstood`.
    static func event(line: Data) throws(ControlError) -> ControlEvent {
        do {
            return try JSONDecoder().decode(ControlEvent.self, from: line)
        } catch {
            throw .notUnderstood("\(line.count) bytes that are no event")
        }
    }
}
