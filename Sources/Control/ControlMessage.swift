internal import FoundationEssentials
internal import VaultFormat

/// Responses and events as lines of bytes, and the limits of the protocol (ControlSocket). Pure; takes arbitrary bytes.
enum ControlMessage {
    /// The longest line that a daemon reads, in bytes: a keyfile of 8 MiB in base64.
    static let maximumRequestSize = 12 << 20
    /// The longest without the secret.
    static let maximumPlainRequestSize = 64 << 10
    /// The longest line that a client reads.
    static let maximumResponseSize = 1 << 20

    struct ErrorLine: Codable {
        var error: String
        var code: String?
        var lockFiles: [String]?
        var retryAfterSeconds: Double?
    }

    struct StatisticsLine: Codable {
        let statistics: JSONValue
    }

    struct LockedLine: Codable {
        let state: MountStatus.State
        let already: Bool
        let receipt: JSONValue
    }

    struct UnlockedLine: Codable {
        let state: MountStatus.State
        let already: Bool
    }

    static func line(of response: ControlResponse) -> [UInt8] {
        switch response {
        case .status(let status): encoded(status)
        case .stats(let statistics): encoded(StatisticsLine(statistics: statistics))
        case .locked(let receipt, let already): encoded(LockedLine(state: .locked, already: already, receipt: receipt))
        case .unlocked(let already): encoded(UnlockedLine(state: .unlocked, already: already))
        case .subscribed(let event): line(of: event)
        case .error(let failure):
            encoded(
                ErrorLine(
                    error: failure.message, code: failure.code.rawValue, lockFiles: failure.lockFiles,
                    retryAfterSeconds: failure.retryAfterSeconds))
        }
    }

    static func fields(of response: ControlResponse) -> [String: JSONValue] {
        (try? JSONDecoder().decode([String: JSONValue].self, from: Data(line(of: response)))) ?? [:]
    }

    static func line(of event: ControlEvent) -> [UInt8] { encoded(event) }

    /// The response in a line that answers `request`.
    /// - Throws: `notUnderstood`.
    static func response(line: Data, to request: ControlRequest) throws(ControlError) -> ControlResponse {
        let decoder = JSONDecoder()
        if let error = try? decoder.decode(ErrorLine.self, from: line) {
            return .error(
                ControlFailure(
                    error.code.map { ControlFailure.Code(rawValue: $0) } ?? .failed, error.error,
                    lockFiles: error.lockFiles, retryAfterSeconds: error.retryAfterSeconds))
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

    private static func encoded(_ value: some Encodable) -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        do {
            return Array(try encoder.encode(value)) + [UInt8(ascii: "\n")]
        } catch {
            preconditionFailure("internal error: a control message cannot be encoded: \(error)")
        }
    }
}
