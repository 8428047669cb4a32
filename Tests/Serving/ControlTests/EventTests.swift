import Foundation
import LinuxSystem
import SystemPackage
import Testing

@testable import Control

/// The stream of events, and its limits for readers.
@Suite(.timeLimit(.minutes(60))) struct EventTests {
    private let place: ControlTestDirectory
    private let requests = HeldRequests()
    private let server: ControlServer

    init() throws {
        place = try ControlTestDirectory()
        server = try place.asynchronousServer(timeout: .seconds(1), handler: requests.handler)
    }

    private static let events = "{\"request\":\"events\"}\n"

    private func subscriber() throws -> RawClient {
        let client = try place.rawClient()
        client.send(Self.events)
        #expect(try client.readEvent() == state())
        return client
    }

    @Test("the state first, then every event in order")
    func stateFirst() throws {
        server.broadcast(event(-1))
        let clients = [try subscriber(), try subscriber()]
        for number in 0..<100 { server.broadcast(event(number)) }
        for client in clients {
            for number in 0..<100 { #expect(try client.readEvent() == event(number)) }
        }
        server.stop()
        for client in clients { #expect(client.readLine() == nil) }
    }

    @Test("an event that comes before the state was sent is not lost")
    func eventThatComesBeforeState() throws {
        let other = try ControlTestDirectory()
        let slow = Monitor<ControlServer?>(nil)
        let server = try other.asynchronousServer { _, reply in
            // A lock on another thread could broadcast at this moment.
            slow.access { $0 }?.broadcast(event(1))
            reply(.subscribed(state()))
            slow.access { $0 }?.broadcast(event(2))
        }
        slow.update { $0 = server }
        defer { server.stop() }
        let client = try other.rawClient()
        client.send(Self.events)
        #expect(try client.readEvent() == state())
        #expect(try client.readEvent() == event(1))
        #expect(try client.readEvent() == event(2))
    }

    @Test("a refused subscription is none")
    func refusedSubscriptionIsNone() throws {
        let other = try ControlTestDirectory()
        let server = try other.server { request in
            if case .status = request { return .status(status()) }
            return .error(ControlFailure(.notSupported, "no"))
        }
        defer { server.stop() }
        let client = try other.rawClient()
        client.send(Self.events)
        #expect(client.readLine() == "{\"code\":\"not-supported\",\"error\":\"no\"}")
        server.broadcast(event(1))
        client.send("{\"request\":\"status\"}\n")
        #expect(client.readLine()?.contains("\"mountpoint\"") == true)
    }

    @Test("a client that does not ask gets no events")
    func clientThatDoesNotAsk() throws {
        let listener = try subscriber()
        let client = try place.rawClient()
        client.send("{\"request\":\"status\"}\n")
        #expect(client.readLine()?.contains("\"state\":\"unlocked\"") == true)
        server.broadcast(event(1))
        #expect(try listener.readEvent() == event(1))
        client.send("{\"request\":\"status\"}\n")
        #expect(client.readLine()?.contains("\"uptimeSeconds\"") == true)
    }

    @Test("a subscriber that does not read is hung up on, others go on")
    func subscriberThatDoesNotRead() throws {
        let silent = try subscriber()
        let reader = try subscriber()
        let padding = 16 << 10
        // Far more than the server's bound and the kernel's buffers (net.core.wmem_max) together.
        let count = 200
        for number in 0..<count {
            server.broadcast(event(number, padding: padding))
            #expect(try reader.readEvent() == event(number, padding: padding))
        }
        var received = 0
        while silent.readLine() != nil { received += 1 }
        #expect(received < count)
    }

    @Test("a subscriber that stops reading for a while misses nothing")
    func subscriberThatStopsReading() throws {
        let silent = try subscriber()
        let half = try place.rawClient()
        for number in 0..<10 { server.broadcast(event(number, padding: 16 << 10)) }
        // After its timeout the server cuts this client off.
        half.send("{")
        #expect(half.readLine() == nil)
        for number in 0..<10 { #expect(try silent.readEvent() == event(number, padding: 16 << 10)) }
    }

    @Test("as many subscribers as there are places, and others are served")
    func asManySubscribersAsThere() throws {
        let subscribers = try (0..<ControlServer.maximumSubscribers).map { _ in try subscriber() }
        let refused = try place.rawClient()
        refused.send(Self.events)
        #expect(refused.readLine()?.hasPrefix("{\"code\":\"busy\"") == true)
        let silent = try (0..<(2 * ControlServer.maximumClients)).map { _ in try place.rawClient() }
        try place.expectService()
        server.broadcast(event(1))
        for subscriber in subscribers { #expect(try subscriber.readEvent() == event(1)) }
        #expect(silent.count == 2 * ControlServer.maximumClients)
    }

    @Test("a subscriber's place is free again when it has gone")
    func subscribersPlaceIsFreeAgain() throws {
        for _ in 0..<(3 * ControlServer.maximumSubscribers) {
            _ = try subscriber()
            // The server notices a closed connection at the latest when the next client connects.
            try place.expectService()
        }
    }

    @Test("a subscriber that sends on and on is not read")
    func subscriberThatSends() throws {
        let client = try subscriber()
        client.send(String(repeating: Self.events, count: 100))
        server.broadcast(event(1))
        #expect(try client.readEvent() == event(1))
        client.closeSendingSide()
        server.broadcast(event(2))
        #expect(try client.readEvent() == event(2))
    }

    @Test("broadcasts from many threads while clients come and go")
    func broadcastsFromManyThreadsWhile() throws {
        // The events that may still be sent, nil at the end. A client gets fewer than 100 of them, because the server
        // would hang up on one that gets no processor time while more than its bound is sent.
        let allowed = Monitor<Int?>(0)
        defer { allowed.update { $0 = nil } }
        let broadcasters = DispatchGroup()
        for _ in 0..<2 {
            broadcasters.enter()
            Thread.detachNewThread { [server] in
                let take = { (allowed: inout Int?) -> Bool? in
                    guard let rest = allowed else { return false }
                    guard rest > 0 else { return nil }
                    allowed = rest - 1
                    return true
                }
                for number in 0... {
                    guard allowed.wait(for: take) else { break }
                    server.broadcast(event(number, padding: number * 37 % 2000))
                }
                broadcasters.leave()
            }
        }
        for round in 0..<200 {
            // Clients that have gone must leave their places, because one subscriber too many is refused.
            server.clients.wait { $0.count < ControlServer.maximumSubscribers / 2 ? () : nil }
            allowed.update { $0 = 40 }
            let client = try subscriber()
            allowed.update { $0 = 40 }
            for _ in 0..<(round % 5) { #expect(try client.readEvent()?.event == "integrity-error") }
        }
        try place.expectService()
        allowed.update { $0 = nil }
        #expect(broadcasters.wait(timeout: .now() + 30) == .success)
        server.stop()
        server.broadcast(event(1))
    }

    @Test("a client reads events until the daemon has gone")
    func clientReadsEventsUntilDaemon() throws {
        let client = try place.client()
        #expect(try client.send(.events) == .subscribed(state()))
        server.broadcast(event(1))
        let received = try #require(try client.nextEvent())
        #expect(received.event == event(1))
        #expect(Array(received.line) == event(1).line)
        server.stop()
        #expect(try client.nextEvent() == nil)
    }

    @Test("a client whose own reader has gone stops waiting")
    func clientWhoseOwnReader() throws {
        // Not a pipe(2), because another test's child would keep its ends open.
        let fifo = place.path.appending("fifo").string
        try #require(mkfifo(fifo, 0o600) == 0)
        let ends = [O_RDONLY | O_NONBLOCK, O_WRONLY].map { open(fifo, $0 | O_CLOEXEC) }
        defer { close(ends[1]) }
        let client = try place.client()
        #expect(try client.send(.events) == .subscribed(state()))
        server.broadcast(event(1))
        #expect(try client.nextEvent(whileReading: ends[1])?.event == event(1))
        close(ends[0])
        #expect(try client.nextEvent(whileReading: ends[1]) == nil)
    }
}
