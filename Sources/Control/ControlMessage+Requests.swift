internal import FoundationEssentials
internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// Encodes and decodes requests, a line each. A secret lies only in memory that is wiped.
extension ControlMessage {
    private struct RequestLine: Decodable {
        let request: String
        let secret: SecretField?
    }

    static func line(of request: ControlRequest) throws(CryptoError) -> SecretBytes {
        guard case .unlock(let secret?) = request else {
            return Array("{\"request\":\"\(request.name)\"}\n".utf8).withUnsafeBytes { SecretBytes(copying: $0) }
        }
        let head = "{\"request\":\"unlock\",\"secret\":{\"kind\":\"\(secret.kind.rawValue)\",\"bytes\":\""
        let tail = "\"}}\n"
        let size = Base64.standard.encodedCount(secret.bytes.count)
        return try SecretBytes(count: head.utf8.count + size + tail.utf8.count) { line in
            UnsafeMutableRawBufferPointer(rebasing: line[..<head.utf8.count]).copyBytes(from: head.utf8)
            let text = line[head.utf8.count...].prefix(size)
            secret.bytes.withUnsafeBytes {
                Base64.standard.encode($0, into: UnsafeMutableRawBufferPointer(rebasing: text))
            }
            UnsafeMutableRawBufferPointer(rebasing: line.suffix(tail.utf8.count)).copyBytes(from: tail.utf8)
        }
    }

    /// Returns the request in a line, or a failure. The failure does not contain the decoder's own message, which can be long
    /// and might quote the secret.
    static func request(line: UnsafeRawBufferPointer) -> Result<ControlRequest, ControlFailure> {
        guard let text = SecretText(line: line) else { return .failure(notARequest()) }
        guard text.withoutSecret.count <= maximumPlainRequestSize else {
            return .failure(notARequest("over \(maximumPlainRequestSize) bytes without the secret"))
        }
        guard let parsed = try? JSONDecoder().decode(RequestLine.self, from: Data(text.withoutSecret)) else {
            return .failure(notARequest())
        }
        guard parsed.secret == nil || parsed.request == "unlock" else {
            return .failure(notARequest("'secret' goes with 'unlock' only"))
        }
        switch parsed.request {
        case "status": return .success(.status)
        case "stats": return .success(.stats)
        case "lock": return .success(.lock)
        case "events": return .success(.events)
        case "unlock": return unlock(parsed.secret, text, line)
        default:
            return .failure(ControlFailure(.unknownRequest, "unknown request '\(parsed.request.prefix(40))'"))
        }
    }

    private static func unlock(
        _ field: SecretField?, _ text: SecretText, _ line: UnsafeRawBufferPointer
    ) -> Result<ControlRequest, ControlFailure> {
        guard let field else { return .success(.unlock(nil)) }
        do throws(FormatError) {
            return .success(.unlock(try field.secret(cutOutBy: text, of: line)))
        } catch {
            return .failure(notARequest(error.reason))
        }
    }

    private static func notARequest(
        _ reason: String = "expected a line such as {\"request\":\"status\"}"
    ) -> ControlFailure {
        ControlFailure(.notARequest, "not a request: \(reason)")
    }
}
