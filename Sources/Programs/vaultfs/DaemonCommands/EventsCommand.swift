internal import ArgumentParser
internal import Control
internal import Daemon
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage

/// `vaultfs events [MOUNTPOINT | --all]`
struct EventsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "events", abstract: "Print a mount's events, a line each, until it ends.",
        discussion: """
            Each line has the time, the mountpoint, and what happened in words. The first has the current state. Then \
            follow locks, unlocks, refused requests, damage and problems as they happen, and "unmounted" at the end. The \
            command ends with success when the mount ends, or when nobody reads the output. If the daemon was killed, the \
            last event is a problem, and the exit code is \(FailureCode.mountpoint.rawValue). With --all the command does \
            not end, and a mount that is made later begins with "mounted". With --json: each line is an object, as the \
            control socket sends it.
            """)

    @OptionGroup
    var mounts: MountChoice

    func run() throws {
        let output = EventOutput(isJSON: mounts.json)
        if mounts.all { return try EventFollower(output: output).run() }
        let (name, client) = try connect()
        try output.follow(client, at: name)
    }

    private func connect() throws(CommandFailure) -> (mountpoint: String, client: ControlClient) {
        guard let mountpoint = mounts.mountpoint else {
            let mount = try DaemonSearch.onlyMount()
            return (mount.mountpoint, mount.client)
        }
        let mount = try MountTable.Entry(at: mountpoint.path)
        do throws(ControlError) { return (mount.path.string, try mount.connect().client) } catch {
            if mount.isDead() { throw .dead(at: mount.path.shown) }
            let reason = mount.reason(error, to: ControlRequest.events.action)
            throw CommandFailure(.failure, "\(mount.path.shown): \(reason)")
        }
    }
}

/// Prints events, a line each. Any thread.
final class EventOutput: Sendable {
    private let isJSON: Bool
    /// Held during a write, so lines stay whole.
    private let writing = Mutex(())

    init(isJSON: Bool) { self.isJSON = isJSON }

    /// Prints a mount's events until it ends or the output has no reader left.
    /// - Parameter mountpoint: for the event of its end.
    /// - Throws: code `mountpoint` if the daemon was killed, which leaves the mount.
    func follow(_ client: ControlClient, at mountpoint: String) throws {
        switch try client.send(.events) {
        case .subscribed(let event): guard try write(event, line: Data(event.line)) else { return }
        case .error(let failure): throw CommandFailure(.failure, Console.shown(failure.message))
        default: throw ControlError.notUnderstood("no event")
        }
        while let (event, line) = try client.nextEvent(whileReading: STDOUT_FILENO) {
            guard try write(event, line: line) else { return }
            if event.isEnd { return }
        }
        let entry = try MountTable.read().entry(at: FilePath(mountpoint).bytes)
        guard let entry, entry.isOurs, entry.isDead() else {
            _ = try write(ControlEvent(isMounted: false, mountpoint: mountpoint))
            return
        }
        try write(ControlEvent(.problem("its daemon has ended", isAtEnd: false), mountpoint: mountpoint))
        throw CommandFailure.dead(at: FilePath(mountpoint).shown)
    }

    @discardableResult
    func write(_ event: ControlEvent) throws(CommandFailure) -> Bool { try write(event, line: Data(event.line)) }

    /// Writes an event without buffering. Returns false if the output has no reader.
    private func write(_ event: ControlEvent, line: Data) throws(CommandFailure) -> Bool {
        let text = (isJSON ? Array(line) : Array(EventText.line(event).utf8)) + [UInt8(ascii: "\n")]
        do throws(StoreError) {
            try writing.withLock { (_) throws(StoreError) in try writeAll(text, to: STDOUT_FILENO) }
            return true
        } catch {
            if error.errno == .brokenPipe { return false }
            throw CommandFailure(.failure, "cannot write: \(error.errno)")
        }
    }
}
