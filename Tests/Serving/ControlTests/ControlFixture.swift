import FileSystem
import Foundation
import LinuxSystem
import Synchronization
import SystemPackage
import Testing

@testable import Control

/// A run-time directory for one test. Its servers end with it.
final class ControlTestDirectory: Sendable {
    let path: FilePath
    let directory: RuntimeDirectory
    private let servers = Mutex<[ControlServer]>([])

    init() throws {
        let name = "vaultfs-control-tests-" + String(UInt64.random(in: 0 ... .max), radix: 16)
        path = FilePath(NSTemporaryDirectory()).appending(name)
        directory = try RuntimeDirectory.make(at: path, user: geteuid())
    }

    deinit {
        for server in servers.withLock({ $0 }) { server.stop() }
        try? FileManager.default.removeItem(atPath: path.string)
    }

    func entries() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: path.string).sorted()
    }

    @discardableResult
    func server(
        _ mountpoint: String = "/mnt",
        timeout: Duration = ControlServer.clientTimeout,
        answer: @escaping @Sendable (ControlRequest) -> ControlResponse = { _ in .status(status()) }
    ) throws -> ControlServer {
        try asynchronousServer(mountpoint, timeout: timeout) { request, reply in reply(answer(request)) }
    }

    @discardableResult
    func asynchronousServer(
        _ mountpoint: String = "/mnt", timeout: Duration = ControlServer.clientTimeout,
        handler: @escaping ControlServer.Handler
    ) throws -> ControlServer {
        let server = try ControlServer(
            directory: { [directory] in directory }, mountpoint: Array(mountpoint.utf8), timeout: timeout)
        try server.start(handler: handler)
        servers.withLock { $0.append(server) }
        return server
    }

    func client(_ mountpoint: String = "/mnt") throws -> ControlClient {
        let name = RuntimeDirectory.socketName(mountpoint: Array(mountpoint.utf8))
        return try ControlClient(name: name, directory: directory)
    }

    func expectService() throws { #expect(try client().send(.status) == .status(status())) }

    /// Returns a client that can send anything.
    func rawClient(_ mountpoint: String = "/mnt") throws -> RawClient {
        try RawClient(directory: directory, name: RuntimeDirectory.socketName(mountpoint: Array(mountpoint.utf8)))
    }
}

func status(mountpoint: String = "/mnt") -> MountStatus {
    var status = MountStatus(
        version: "1", pid: getpid(), vaultPath: "/vault", vaultID: "00", mountpoint: mountpoint, state: "unlocked",
        readOnly: false, mounted: "2026-11-20T12:00:00Z")
    (status.uptimeSeconds, status.keysNeverSwapped, status.cacheNeverSwapped) = (1, true, true)
    status.requests = RequestStatistics(served: 7, clientsFollowed: 1)
    return status
}

/// A bare connection: blocking, with a timeout well above the server's.
final class RawClient {
    let socket: Descriptor

    init(directory: RuntimeDirectory, name: Component) throws {
        socket = try .streamSocket(isBlocking: true)
        try socket.setTimeout(seconds: 30)
        try socket.call(connect, name, in: directory.descriptor)
    }

    /// Sends as much as possible. Returns false if the server has closed the connection.
    @discardableResult
    func send(_ bytes: [UInt8]) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(socket.fd, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }

    func send(_ text: String) { send(Array(text.utf8)) }

    /// Reads one line, without its LF. Nil at the end of the stream.
    func readLine() -> String? {
        var line: [UInt8] = []
        var byte: UInt8 = 0
        while recv(socket.fd, &byte, 1, 0) == 1 {
            if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
        return nil
    }
}
