import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import Control

/// Attacks by clients, which must not stop a server from answering others.
@Suite struct HostileClientTests {
    private let place: ControlTestDirectory

    /// Makes a server with a longer timeout than any of these clients needs.
    init() throws {
        place = try ControlTestDirectory()
        try place.server(timeout: .seconds(60))
    }

    @Test(
        "a line that is no request is answered with an error",
        arguments: [
            ("garbage", "\u{1}\u{2}\u{3}"), ("empty line", ""), ("null", "null"), ("number", "12"), ("array", "[1]"),
            ("no request", "{}"), ("wrong type", "{\"request\":1}"),
            ("nested", "{\"request\":{\"request\":\"status\"}}"),
            ("deep", String(repeating: "[", count: 60_000)),
            ("deep objects", String(repeating: "{\"a\":", count: 10_000)),
            ("invalid UTF-8", "\u{FFFD}"), ("cut off", "{\"request\":\"stat"),
        ]
    )
    func lineThatIsNoRequest(name: String, line: String) throws {
        let client = try place.rawClient()
        client.send(line + "\n")
        let answer = client.readLine()
        #expect(
            answer?.hasPrefix("{\"code\":\"not-a-request\",\"error\":\"not a request: ") == true,
            "\(name): \(answer ?? "nothing")")
        // The connection must survive.
        client.send("{\"request\":\"status\"}\n")
        #expect(client.readLine()?.contains("\"mountpoint\":\"/mnt\"") == true)
    }

    /// The directory's mode keeps other users out, unless someone has changed it.
    @Test("a client of another user is hung up on", .enabled(if: geteuid() == 0, "takes root"))
    func clientOfAnotherUser() throws {
        let name = RuntimeDirectory.socketName(mountpoint: Array("/mnt".utf8)).description
        #expect(chmod(place.path.string, 0o755) == 0 && chmod(place.path.appending(name).string, 0o777) == 0)
        let program = """
            import os, socket, sys
            os.chdir(sys.argv[1])
            os.setgid(int(sys.argv[3]))
            os.setuid(int(sys.argv[3]))
            client = socket.socket(socket.AF_UNIX)
            client.connect(sys.argv[2])
            try:
                client.sendall(b'{"request":"status"}\\n')
                print("answer", client.recv(1))
            except (BrokenPipeError, ConnectionResetError):
                print("answer", b"")
            """
        func answer(user: Int) throws -> String {
            try Command([Products.python, "-c", program, place.path.string, name, "\(user)"]).run().succeeded().output
        }
        #expect(try answer(user: 65534) == "answer b''\n")
        #expect(try answer(user: 0) == "answer b'{'\n")
    }

    @Test("an unknown request is named")
    func unknownRequestIsNamed() throws {
        let client = try place.rawClient()
        client.send("{\"request\":\"explode\"}\n")
        #expect(client.readLine() == "{\"code\":\"unknown-request\",\"error\":\"unknown request 'explode'\"}")
        client.send("{\"request\":\"\(String(repeating: "x", count: 60_000))\"}\n")
        #expect(client.readLine()?.utf8.count ?? 0 < 200)
    }

    @Test("raw bytes")
    func rawBytes() throws {
        let client = try place.rawClient()
        client.send([0xFF, 0xFE, 0x00, 0x0A])
        #expect(client.readLine()?.contains("\"error\":") == true)
    }

    @Test("a giant line is refused and the connection closed")
    func giantLineIsRefused() throws {
        let client = try place.rawClient()
        client.send([UInt8](repeating: UInt8(ascii: "a"), count: ControlRequest.maximumSize + (1 << 20)))
        // If the server closes the connection while bytes are in transit, its answer is lost.
        if let answer = client.readLine() { #expect(answer.contains("over 12582912 bytes")) }
        #expect(client.readLine() == nil)
        try place.expectService()
    }

    @Test("many requests in one piece are all answered")
    func manyRequestsInOnePiece() throws {
        let client = try place.rawClient()
        client.send(String(repeating: "{\"request\":\"status\"}\n", count: 100))
        for _ in 0..<100 { #expect(client.readLine()?.hasPrefix("{\"cacheNeverSwapped\"") == true) }
    }

    @Test("a request in single bytes is answered")
    func requestInSingleBytes() throws {
        let client = try place.rawClient()
        for byte in Array("{\"request\":\"status\"}\n".utf8) { client.send([byte]) }
        #expect(client.readLine()?.hasPrefix("{\"cacheNeverSwapped\"") == true)
    }

    @Test("many silent connections keep nobody out")
    func manySilentConnectionsKeepNobody() throws {
        var silent: [RawClient] = []
        for _ in 0..<(3 * ControlServer.maximumClients) { silent.append(try place.rawClient()) }
        try place.expectService()
        #expect(silent.count == 3 * ControlServer.maximumClients)
    }

    @Test("clients that hang up at once")
    func clientsThatHangUp() throws {
        for _ in 0..<200 {
            let client = try place.rawClient()
            client.send("{\"request\":\"status\"}\n")
        }
        try place.expectService()
    }
}

/// Clients to be disconnected by the server.
@Suite struct SilentClientTests {
    private static let timeout: Duration = .seconds(1)
    private let place: ControlTestDirectory

    init() throws {
        place = try ControlTestDirectory()
        try place.server(timeout: Self.timeout)
    }

    @Test("half a line, then silence: cut off, and others are served meanwhile")
    func halfLine() throws {
        let client = try place.rawClient()
        let start = ContinuousClock.now
        client.send("{\"request\":")
        try place.expectService()
        // The read ends when the server closes the connection, or after 30 s.
        #expect(client.readLine() == nil)
        #expect(!client.send([0]))
        #expect(ContinuousClock.now - start >= Self.timeout - .milliseconds(100))
    }

    @Test("a client that never reads its answers is cut off")
    func clientThatNeverReads() throws {
        let client = try place.rawClient()
        let request = Array("{\"request\":\"status\"}\n".utf8)
        // The buffers of both directions fill up, and then the server closes the connection.
        while client.send(request) {}
        try place.expectService()
    }
}
