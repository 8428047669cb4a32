import Foundation
import Testing
import VaultCrypto

@testable import Control

/// Secrets in requests, received whole and wiped from memory afterwards.
@Suite(.timeLimit(.minutes(60))) struct SecretRequestTests {
    private static func parse(_ line: String) -> Result<ControlRequest, ControlFailure> {
        Array(line.utf8).withUnsafeBytes { bytes in
            Result { () throws(ControlFailure) in try ControlRequest.parse(bytes) }
        }
    }

    private static func bytes(_ secret: ClientSecret) -> [UInt8] { secret.bytes.withUnsafeBytes { Array($0) } }

    private static func secret(in result: Result<ControlRequest, ControlFailure>) throws -> ClientSecret {
        guard case .unlock(let secret?) = try result.get() else { throw ControlError.notUnderstood("no secret") }
        return secret
    }

    @Test("a secret comes back as it was", arguments: ["passphrase", "keyfile"])
    func secretComesBack(kind: String) throws {
        for count in [32, 33, 34, 35, 1000] {
            let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 167 &+ 251) }
            let secret = ClientSecret(kind: kind, bytes: bytes.withUnsafeBytes { SecretBytes(copying: $0) })
            let line = try ControlRequest.unlock(secret).line()
            let text = line.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
            #expect(text.hasSuffix("}\n"))
            // Decode it as any JSON reader does.
            let object = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
            let encoded = Data(bytes).base64EncodedString()
            #expect(object?["request"] as? String == "unlock" && object?.count == 2)
            #expect(object?["secret"] as? [String: String] == ["kind": kind, "bytes": encoded])
            let parsed = try Self.secret(in: Self.parse(String(text.dropLast())))
            #expect(parsed.kind == kind)
            #expect(Self.bytes(parsed) == bytes)
        }
    }

    @Test(
        "spellings of one request",
        arguments: [
            "{\"request\":\"unlock\",\"secret\":{\"kind\":\"passphrase\",\"bytes\":\"Pz8/\"}}",
            "{\"secret\":{\"bytes\":\"Pz8\\/\",\"kind\":\"passphrase\"},\"request\":\"unlock\"}",
            " { \"request\" : \"unlock\" , \"secret\" : { \"kind\" : \"passphrase\" , \"bytes\"\t: \"Pz8/\" } , \"x\" : [1] } ",
        ]
    )
    func spellingsOfOneRequest(line: String) throws {
        #expect(Self.bytes(try Self.secret(in: Self.parse(line))) == Array("???".utf8))
    }

    @Test(
        "a value that is no secret is refused, and not quoted",
        arguments: [
            ("no base64", "unlock", "\"kind\":\"passphrase\",\"bytes\":\"a*aa\""),
            ("cut off", "unlock", "\"kind\":\"passphrase\",\"bytes\":\"QUJ\""),
            ("too much padding", "unlock", "\"kind\":\"passphrase\",\"bytes\":\"Q===\""),
            ("padding within", "unlock", "\"kind\":\"passphrase\",\"bytes\":\"QQ==QUJD\""),
            ("bits left over", "unlock", "\"kind\":\"passphrase\",\"bytes\":\"QR==\""),
            ("an escape", "unlock", "\"kind\":\"passphrase\",\"bytes\":\"QUJ\\u0044\""),
            ("no bytes", "unlock", "\"kind\":\"passphrase\""),
            ("a number", "unlock", "\"kind\":\"passphrase\",\"bytes\":7"),
            ("an object", "unlock", "\"kind\":\"passphrase\",\"bytes\":{\"bytes\":\"QUJD\"}"),
            ("twice", "unlock", "\"kind\":\"passphrase\",\"bytes\":\"QUJD\",\"bytes\":\"QUJD\""),
            ("elsewhere, too", "unlock", "\"kind\":\"passphrase\",\"bytes\":\"QUJD\",\"x\":{\"bytes\":\"QUJD\"}"),
            ("an escaped name", "unlock", "\"kind\":\"passphrase\",\"b\\u0079tes\":\"QUJD\""),
            ("with another request", "lock", "\"kind\":\"passphrase\",\"bytes\":\"QUJD\""),
        ]
    )
    func valueThatIsNoSecret(name: String, request: String, secret: String) {
        let result = Self.parse("{\"request\":\"\(request)\",\"secret\":{\(secret)}}")
        guard case .failure(let failure) = result else {
            Issue.record("\(name): taken")
            return
        }
        #expect(failure.code == .notARequest, "\(name)")
        #expect(!failure.message.contains("QUJ"), "\(name)")
    }

    @Test("no decoder sees the secret")
    func noDecoderSeesSecret() throws {
        let line = "{\"request\":\"unlock\",\"secret\":{\"kind\":\"passphrase\",\"bytes\":\"QUJD\"}}"
        let text = try #require(Array(line.utf8).withUnsafeBytes { SecretText(line: $0) })
        #expect(String(decoding: text.withoutSecret, as: UTF8.self) == line.replacingOccurrences(of: "QUJD", with: ""))
    }

    @Test("any bytes are survived")
    func anyBytesAreSurvived() {
        let line = Array("{\"secret\":{\"bytes\":\"QUJD\\/\",\"kind\":\"passphrase\"},\"request\":\"unlock\"}".utf8)
        for count in line.indices {
            _ = try? line[..<count].withUnsafeBytes { try ControlRequest.parse($0) }
            for byte in [UInt8(0), 0x22, 0x5C, 0x3A, 0xFF] {
                var changed = line
                changed[count] = byte
                _ = try? changed.withUnsafeBytes { try ControlRequest.parse($0) }
            }
        }
    }

    @Test("a taken line is zeroed")
    func takenLineIsZeroed() throws {
        let buffer = LineBuffer(maximumLineSize: 100)
        buffer.append(Array("secret\nrest".utf8))
        // The buffer's memory does not move while it has room.
        let place = buffer.storage
        #expect(try buffer.withNextLine { $0.count } == 6)
        #expect(buffer.storage.baseAddress == place.baseAddress)
        // The rest has moved to the front.
        #expect(Array(place.prefix(11)) == Array("rest".utf8) + [0, 0, 0, 0, 0, 0, 0])
    }

    @Test("the largest keyfile arrives")
    func largestKeyfileArrives() throws {
        let place = try ControlTestDirectory()
        let requests = HeldRequests()
        let server = try place.asynchronousServer(handler: requests.handler)
        defer { server.stop() }
        let keyfile = (0..<(8 << 20)).map { UInt8(truncatingIfNeeded: $0 &* 31 ^ $0 >> 8) }
        let secret = ClientSecret(kind: "keyfile", bytes: keyfile.withUnsafeBytes { SecretBytes(copying: $0) })
        let client = try place.client()
        Thread.detachNewThread {
            guard let held = try? requests.next(), case .unlock(let received?) = held.request else { return }
            let isSame = Self.bytes(received) == keyfile
            held.reply(isSame ? .unlocked(already: false) : .error(ControlFailure(.wrongSecret, "it differs")))
        }
        #expect(try client.send(.unlock(secret)) == .unlocked(already: false))
    }

    @Test("incomplete requests of all clients together are bounded")
    func incompleteRequestsOfAllClients() throws {
        let place = try ControlTestDirectory()
        let server = try place.server(timeout: .seconds(60))
        defer { server.stop() }
        let half = [UInt8](repeating: UInt8(ascii: "a"), count: ControlRequest.maximumSize - (1 << 20))
        let clients = [try place.rawClient(), try place.rawClient()]
        clients[0].send(half)
        // If the server closes the connection while bytes are in transit, its answer is lost.
        // A variable, because a failed expectation would print the bytes.
        let isTaken = clients[1].send(half)
        #expect(!isTaken)
        if let answer = clients[1].readLine() { #expect(answer.contains("\"code\":\"busy\"")) }
        #expect(clients[1].readLine() == nil)
        #expect(try place.client().send(.status) == .status(status()))
    }
}
