internal import ArgumentParser
internal import Control
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// `vaultfs events [MOUNTPOINT]`
struct EventsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "events", abstract: "Print the events of a mount, a line each, until it ends.",
        discussion: """
            The first line has the state now. Then come will-lock, did-lock, will-unlock, did-unlock, denied and \
            integrity-error as they happen. The command ends with success when the mount ends, or when nobody reads the \
            output. With --json: each line is an object, as the control socket sends it.
            """)

    @Argument(help: "The mountpoint. It may be left out if you have only one mount.")
    var mountpoint: PathArgument?

    @Flag(help: "Print JSON.")
    var json = false

    func run() throws {
        let client = try connect()
        switch try client.send(.events) {
        case .subscribed(let event): guard try write(event, line: Data(event.line)) else { return }
        case .error(let failure): throw CommandFailure(.failure, Console.shown(failure.message))
        default: throw ControlError.notUnderstood("no event")
        }
        while let (event, line) = try client.nextEvent(whileReading: STDOUT_FILENO) {
            guard try write(event, line: line) else { return }
        }
    }

    private func connect() throws(CommandFailure) -> ControlClient {
        guard let mountpoint else { return try DaemonSearch.onlyMount(option: nil).client }
        let mount = try FoundMount(at: mountpoint.path)
        do throws(ControlError) { return try mount.connect().client } catch {
            throw CommandFailure(.failure, "\(mount.path.shown): \(error)")
        }
    }

    /// Writes an event without buffering. Returns false if nobody reads.
    private func write(_ event: ControlEvent, line: Data) throws(CommandFailure) -> Bool {
        do throws(StoreError) {
            try writeAll(
                (json ? Array(line) : Array(Self.text(event, line).utf8)) + Array("\n".utf8), to: STDOUT_FILENO)
            return true
        } catch {
            if error.errno == .brokenPipe { return false }
            throw CommandFailure(.failure, "cannot write: \(error.errno)")
        }
    }

    /// `2026-11-21T10:00:00Z will-lock /mnt grace seconds 0, reasons lock-file`
    private static func text(_ event: ControlEvent, _ line: Data) -> String {
        var parts = [event.time, event.event, event.mountpoint].map(Console.shown)
        // From the line, which may have fields of another version.
        if case .object(let fields)? = try? JSONDecoder().decode(JSONValue.self, from: line) {
            let details = fields.filter { !["event", "time", "mountpoint", "receipt"].contains($0.key) }
            if !details.isEmpty { parts.append(JSONText.line(.object(details)) ?? "") }
        }
        if let receipt = event.receipt { parts.append(receipt.summary) }
        return parts.joined(separator: " ")
    }
}
