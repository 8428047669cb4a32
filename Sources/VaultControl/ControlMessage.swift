internal import FoundationEssentials

/// What a client asks of a daemon: one JSON object on a line, `{"request":"status"}`.
package enum ControlRequest: String, Codable, Equatable, Sendable {
    case status
}

/// What a daemon answers: one JSON object on a line; an error is `{"error":"…"}`.
package enum ControlResponse: Equatable, Sendable {
    case status(MountStatus)
    case error(String)
}

/// Requests and responses as lines of bytes. Pure; takes arbitrary bytes.
enum ControlMessage {
    /// The longest line, in bytes, that a daemon reads.
    static let maximumRequestSize = 64 << 10
    /// The longest line that a client reads.
    static let maximumResponseSize = 1 << 20

    private struct RequestLine: Codable {
        let request: String
    }

    private struct ErrorLine: Codable {
        let error: String
    }

    static func line(of request: ControlRequest) -> [UInt8] {
        encoded(RequestLine(request: request.rawValue))
    }

    static func line(of response: ControlResponse) -> [UInt8] {
        switch response {
        case .status(let status): encoded(status)
        case .error(let message): encoded(ErrorLine(error: message))
        }
    }

    /// The request in a line, or what is wrong with it.
    static func request(line: some Collection<UInt8>) -> Result<ControlRequest, RequestProblem> {
        // Said without the decoder's own words: they can be long and are no interface.
        guard let parsed = try? JSONDecoder().decode(RequestLine.self, from: Data(line)) else {
            return .failure(RequestProblem(reason: "not a request: expected a line such as {\"request\":\"status\"}"))
        }
        guard let request = ControlRequest(rawValue: parsed.request) else {
            return .failure(RequestProblem(reason: "unknown request '\(parsed.request.prefix(40))'"))
        }
        return .success(request)
    }

    static func response(line: some Collection<UInt8>) throws(ControlError) -> ControlResponse {
        let data = Data(line)
        let decoder = JSONDecoder()
        if let error = try? decoder.decode(ErrorLine.self, from: data) { return .error(error.error) }
        do {
            return .status(try decoder.decode(MountStatus.self, from: data))
        } catch {
            throw .notUnderstood("\(data.count) bytes that are no status")
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

/// Why a line is no request.
struct RequestProblem: Error, Equatable {
    let reason: String
}
