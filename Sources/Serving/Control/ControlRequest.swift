internal import LinuxSystem
package import VaultCrypto

/// A secret from a client to unlock a mount. The file system checks its kind and finds the slot for it.
package struct ClientSecret: Sendable {
    /// One word, such as `passphrase`.
    package let kind: String
    package let bytes: SecretBytes

    package init(kind: String, bytes: SecretBytes) { (self.kind, self.bytes) = (kind, bytes) }
}

/// A client's request: one JSON object on a line, such as `{"request":"status"}`. A secret lies only in wiped memory.
package enum ControlRequest: Sendable {
    case status
    /// Makes everything durable, in place.
    case sync
    /// - Parameter forgetsKeys: true to treat the keys as with the policy `forget`. An older daemon ignores the field,
    ///   and its receipt then names another policy.
    case lock(forgetsKeys: Bool)
    /// Has a secret if the daemon has forgotten its keys.
    case unlock(ClientSecret?)
    /// Asks for the current state, and then for every event until the connection ends.
    case events

    /// The longest line accepted by a daemon, in bytes: a keyfile of 8 MiB in base64.
    static let maximumSize = 12 << 20
    /// The longest line without its secret.
    static let maximumPlainSize = 64 << 10

    private struct Fields: Decodable {
        let request: String
        let secret: SecretField?
        let forget: Bool?
    }

    package var name: String {
        switch self {
        case .status: "status"
        case .sync: "sync"
        case .lock: "lock"
        case .unlock: "unlock"
        case .events: "events"
        }
    }

    /// Encodes the request as a line, with its LF.
    func line() throws(CryptoError) -> SecretBytes {
        guard case .unlock(let secret?) = self else {
            let option = if case .lock(forgetsKeys: true) = self { ",\"forget\":true" } else { "" }
            return Array("{\"request\":\"\(name)\"\(option)}\n".utf8).withUnsafeBytes { SecretBytes(copying: $0) }
        }
        let head = Array("{\"request\":\"unlock\",\"secret\":{\"kind\":\"\(secret.kind)\",\"bytes\":\"".utf8)
        let tail = Array("\"}}\n".utf8)
        let size = Base64.standard.encodedCount(secret.bytes.count)
        return try SecretBytes(count: head.count + size + tail.count) { line in
            line.copyBytes(from: head)
            let text = line.slice(head.count..<(head.count + size))
            secret.bytes.withUnsafeBytes { Base64.standard.encode($0, into: text) }
            line.slice((head.count + size)...).copyBytes(from: tail)
        }
    }

    /// Decodes a line of arbitrary bytes. The error omits the decoder's own message, which can be long and might quote
    /// the secret.
    static func parse(_ line: UnsafeRawBufferPointer) throws(ControlFailure) -> ControlRequest {
        guard let text = SecretText(line: line) else { throw notARequest() }
        guard text.withoutSecret.count <= maximumPlainSize else {
            throw notARequest("over \(maximumPlainSize) bytes without the secret")
        }
        guard let fields = text.decode(Fields.self) else { throw notARequest() }
        guard fields.secret == nil || fields.request == "unlock" else {
            throw notARequest("'secret' goes with 'unlock' only")
        }
        guard fields.forget == nil || fields.request == "lock" else {
            throw notARequest("'forget' goes with 'lock' only")
        }
        switch fields.request {
        case "status": return .status
        case "sync": return .sync
        case "lock": return .lock(forgetsKeys: fields.forget ?? false)
        case "events": return .events
        case "unlock":
            guard let field = fields.secret else { return .unlock(nil) }
            guard let secret = field.secret(in: text) else {
                throw notARequest("a secret has a kind, and one field 'bytes' in base64")
            }
            return .unlock(secret)
        default: throw ControlFailure(.unknownRequest, "unknown request '\(fields.request.prefix(40))'")
        }
    }

    /// Returns the failure for a line that is not a request, or has a useless secret.
    package static func notARequest(
        _ reason: String = "expected a line such as {\"request\":\"status\"}"
    ) -> ControlFailure { ControlFailure(.notARequest, "not a request: \(reason)") }
}
