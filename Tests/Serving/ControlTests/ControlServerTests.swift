import Foundation
import LinuxSystem
import SystemPackage
import Testing

@testable import Control

@Suite struct ControlServerTests {
    private let place: ControlTestDirectory

    init() throws {
        place = try ControlTestDirectory()
    }

    @Test("answers a request")
    func answersRequest() throws {
        try place.server()
        let client = try place.client()
        #expect(client.processID == getpid())
        for _ in 0..<3 { #expect(try client.send(.status) == .status(status())) }
    }

    @Test("hands a failure on")
    func handsFailure() throws {
        try place.server { _ in .error(ControlFailure(.failed, "no status today")) }
        #expect(try place.client().send(.status) == .error(ControlFailure(.failed, "no status today")))
    }

    @Test("one socket for each mount")
    func oneSocketForEachMount() throws {
        for mountpoint in ["/a", "/b", "/c"] {
            try place.server(mountpoint) { _ in .status(status(mountpoint: mountpoint)) }
        }
        #expect(try place.client("/b").send(.status) == .status(status(mountpoint: "/b")))
        let clients = try place.directory.socketNames().map { name in
            try ControlClient(name: name, directory: place.directory)
        }
        let mountpoints = try clients.map { client in
            guard case .status(let status) = try client.send(.status) else { return "" }
            return status.mountpoint
        }
        #expect(mountpoints.sorted() == ["/a", "/b", "/c"])
    }

    @Test("the socket is the owner's only and goes at the end")
    func socketIsOwnersOnly() throws {
        let server = try place.server()
        #expect(try place.entries() == [RuntimeDirectory.socketName(mountpoint: Array("/mnt".utf8)).description])
        var information = stat()
        #expect(stat(place.path.string, &information) == 0)
        #expect(information.st_mode & 0o7777 == 0o700)
        server.stop()
        server.stop()
        #expect(try place.entries().isEmpty)
        #expect(throws: ControlError.noDaemon) { try place.client() }
    }

    @Test("a client sees the end of the daemon")
    func clientSeesEndOfDaemon() throws {
        let server = try place.server()
        let client = try place.client()
        #expect(try client.send(.status) == .status(status()))
        #expect(!client.waitUntilClosed(timeout: .milliseconds(10)))
        server.removeSocket()
        #expect(!client.waitUntilClosed(timeout: .milliseconds(10)))
        server.stop()
        #expect(client.waitUntilClosed(timeout: .seconds(60)))
    }

    /// Leaves a socket that refuses connections.
    private func leaveDeadSocket(_ name: Component) throws {
        try Descriptor.streamSocket(isBlocking: true).call(bind, name, in: place.directory.descriptor)
    }

    @Test("a dead daemon's socket is removed")
    func deadDaemonsSocketIsRemoved() throws {
        let name = RuntimeDirectory.socketName(mountpoint: Array("/mnt".utf8))
        try leaveDeadSocket(name)
        #expect(try place.entries() == [name.description])
        #expect(throws: ControlError.noDaemon) { try place.client() }
        #expect(try place.entries().isEmpty)
    }

    @Test("a new daemon's socket is not removed for a dead one's that was there before")
    func newDaemonsSocket() throws {
        let name = RuntimeDirectory.socketName(mountpoint: Array("/mnt".utf8))
        try leaveDeadSocket(name)
        let dead = try #require(place.directory.inode(of: name))
        try place.server()
        place.directory.remove(name, inode: dead)
        #expect(try place.client().send(.status) == .status(status()))
    }

    @Test("a daemon that takes the mountpoint over keeps its socket")
    func daemonThatTakesMountpointOver() throws {
        let old = try place.server { _ in .error(ControlFailure(.failed, "old")) }
        try place.server { _ in .error(ControlFailure(.failed, "new")) }
        old.stop()
        #expect(try place.client().send(.status) == .error(ControlFailure(.failed, "new")))
    }

    @Test("a socket whose directory has gone is made again, where clients look", arguments: [true, false])
    func renewal(movesDirectory: Bool) throws {
        let path = place.path.appending("run")
        let log = Monitor<[String]>([])
        let server = try ControlServer(
            directory: { () throws(ControlError) in try .make(at: path, user: geteuid()) }, mountpoint: [1],
            log: { line in log.update { $0.append(line) } })
        try server.start { _, reply in reply(.status(status())) }
        defer { server.stop() }
        let name = RuntimeDirectory.socketName(mountpoint: [1])
        let client = try ControlClient(name: name, directory: .make(at: path, user: geteuid()))
        let connected = try RawClient(directory: .make(at: path, user: geteuid()), name: name)
        #expect(try client.send(.status) == .status(status()))
        if movesDirectory {
            try FileManager.default.moveItem(atPath: path.string, toPath: path.string + ".old")
        } else {
            try FileManager.default.removeItem(atPath: path.string)
        }
        let line = log.wait(until: .now + .seconds(20)) { $0.first }
        #expect(line == "the control socket was removed: the new one is in \(path)")
        for _ in 0..<2 {
            let client = try ControlClient(name: name, directory: .make(at: path, user: geteuid()))
            #expect(try client.send(.status) == .status(status()))
        }
        // An earlier client stays connected.
        connected.send("{\"request\":\"status\"}\n")
        #expect(connected.readLine()?.contains("\"/vault\"") == true)
    }

    @Test("a socket is not made again after the end, nor over the one of a daemon that has taken the mountpoint over")
    func noRenewal() throws {
        let old = try place.server { _ in .error(ControlFailure(.failed, "old")) }
        let new = try place.server { _ in .error(ControlFailure(.failed, "new")) }
        #expect(old.renewSocket(now: .now) == nil)
        #expect(try place.client().send(.status) == .error(ControlFailure(.failed, "new")))
        new.removeSocket()
        #expect(new.renewSocket(now: .now) == nil)
        #expect(try place.entries() == [])
    }

    @Test("a run-time directory with a long path")
    func runTimeDirectoryWithLong() throws {
        let path = place.path.appending(String(repeating: "x", count: 200))
        let directory = try RuntimeDirectory.make(at: path, user: geteuid())
        let server = try ControlServer(directory: { directory }, mountpoint: [1])
        try server.start { _, reply in reply(.error(ControlFailure(.failed, "here"))) }
        defer { server.stop() }
        let name = RuntimeDirectory.socketName(mountpoint: [1])
        let client = try ControlClient(name: name, directory: directory)
        #expect(try client.send(.status) == .error(ControlFailure(.failed, "here")))
    }
}
