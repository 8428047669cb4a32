import Foundation
import LinuxSystem
import Testing

@testable import Control

/// Replies that come late, from any thread, or never.
@Suite(.timeLimit(.minutes(60))) struct LateReplyTests {
    private let place: ControlTestDirectory
    private let requests = HeldRequests()
    private let server: ControlServer

    init() throws {
        place = try ControlTestDirectory()
        server = try place.asynchronousServer(timeout: .seconds(1), handler: requests.handler)
    }

    private static let lock = "{\"request\":\"lock\"}\n"
    private static let locked = ControlResponse.locked(receipt: receipt, already: false)
    private static let lockedLine = String(decoding: jsonLine(locked).dropLast(), as: UTF8.self)

    @Test("others are served while a request is under way")
    func othersAreServedWhileRequest() throws {
        let client = try place.rawClient()
        client.send(Self.lock)
        let held = try requests.next()
        for _ in 0..<10 { try place.expectService() }
        Thread.detachNewThread { held.reply(Self.locked) }
        #expect(client.readLine() == Self.lockedLine)
        // The connection must survive.
        client.send("{\"request\":\"status\"}\n")
        #expect(client.readLine()?.contains("\"mountpoint\":\"/mnt\"") == true)
    }

    @Test("others are served while a handler is busy")
    func othersAreServedWhileHandlerIsBusy() throws {
        let other = try ControlTestDirectory()
        let isOver = Monitor(false)
        let server = try other.server { request in
            if case .sync = request { isOver.wait { $0 ? () : nil } }
            return .status(status())
        }
        let client = try other.rawClient()
        client.send("{\"request\":\"sync\"}\n")
        for _ in 0..<10 { #expect(try other.client().send(.status) == .status(status())) }
        isOver.update { $0 = true }
        #expect(client.readLine() != nil)
        server.stop()
    }

    @Test("a client that waits is neither impatient nor silent")
    func clientThatWaitsIsNeither() throws {
        let client = try place.rawClient()
        client.send(Self.lock)
        let held = try requests.next()
        // More new clients than the server has room for, and one to be cut off after its timeout.
        let newcomers = try (0..<(2 * ControlServer.maximumClients)).map { _ in try place.rawClient() }
        let half = try place.rawClient()
        half.send("{\"request\":")
        #expect(half.readLine() == nil)
        held.reply(Self.locked)
        #expect(client.readLine() == Self.lockedLine)
        #expect(newcomers.count == 2 * ControlServer.maximumClients)
    }

    @Test("newcomers are served while every place is taken by one who waits")
    func newcomersAreServedWhileEvery() throws {
        let clients = try (0..<(ControlServer.maximumClients + 3)).map { _ in
            let client = try place.rawClient()
            client.send(Self.lock)
            _ = try requests.next()
            return client
        }
        try place.expectService()
        #expect(clients.count > ControlServer.maximumClients)
    }

    @Test("requests on one connection are done one after another")
    func requestsOnOneConnection() throws {
        let client = try place.rawClient()
        client.send(Self.lock + "{\"request\":\"status\"}\n" + Self.lock)
        let first = try requests.next()
        first.reply(Self.locked)
        #expect(client.readLine() == Self.lockedLine)
        #expect(client.readLine()?.contains("\"mountpoint\"") == true)
        try requests.next().reply(.error(ControlFailure(.failed, "no")))
        #expect(client.readLine() == "{\"code\":\"failed\",\"error\":\"no\"}")
    }

    @Test("a client that has left before the reply")
    func clientThatHasLeftBefore() throws {
        for _ in 0..<50 {
            try place.rawClient().send(Self.lock)
            // The vault is locked all the same.
            let held = try requests.next()
            // Its thread and its descriptors go before the reply, which may take long.
            try #require(server.clients.wait(until: .now + .seconds(60)) { $0.isEmpty ? true : nil } == true)
            held.reply(Self.locked)
        }
        try place.expectService()
        server.stop()
    }

    @Test("a client that sends no more still gets its reply, and then the end")
    func clientThatSendsNoMore() throws {
        let client = try place.rawClient()
        client.send(Self.lock)
        client.closeSendingSide()
        let held = try requests.next()
        try place.expectService()
        held.reply(Self.locked)
        #expect(client.readLine() == Self.lockedLine)
        #expect(client.readLine() == nil)
    }

    @Test("a reply when the server has stopped")
    func replyWhenServerHasStopped() throws {
        let client = try place.rawClient()
        client.send(Self.lock)
        let held = try requests.next()
        server.stop()
        held.reply(Self.locked)
        #expect(client.readLine() == nil)
    }

    @Test("a client waits for a lock longer than for a status")
    func clientWaitsForLockLonger() throws {
        Thread.detachNewThread { [requests] in
            guard let held = try? requests.next() else { return }
            // This waits for another server's timeout, as long as the client's.
            let other = try? ControlTestDirectory()
            let server = try? other?.server()
            let half = try? other?.rawClient()
            half?.send("{")
            _ = half?.readLine()
            server?.stop()
            held.reply(Self.locked)
        }
        #expect(try place.client().send(.lock(forgetsKeys: false)) == Self.locked)
    }

    @Test("the end of the daemon is no answer")
    func endOfDaemon() throws {
        let client = try place.client()
        Thread.detachNewThread { [requests, server] in
            let held = try? requests.next()
            server.stop()
            held?.reply(Self.locked)
        }
        #expect(throws: ControlError.noAnswer("it hung up")) { try client.send(.lock(forgetsKeys: false)) }
    }
}
