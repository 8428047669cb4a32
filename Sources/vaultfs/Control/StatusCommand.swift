internal import ArgumentParser
internal import Control
internal import LinuxSystem

/// `vaultfs status [MOUNTPOINT]`
struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show the state of a mount, or of all your mounts.",
        discussion: """
            With --json: the status of MOUNTPOINT as an object; without MOUNTPOINT, an array of them. With --prometheus: the \
            counters in the text format that node_exporter's textfile collector reads.
            """)

    @Argument(help: "The mountpoint.")
    var mountpoint: PathArgument?

    @Flag(help: "Print JSON.")
    var json = false

    @Flag(help: "Print metrics for Prometheus.")
    var prometheus = false

    func validate() throws {
        if json && prometheus { throw ValidationError("only one of --json, --prometheus can be given") }
    }

    func run() throws {
        if prometheus {
            let mounts = try mountpoint.map { [try status(at: $0)] } ?? Self.all()
            return try Console.write(PrometheusText(mounts).text)
        }
        if let mountpoint {
            let status = try status(at: mountpoint)
            if json { try Console.printJSON(status) } else { Self.print(status) }
            return
        }
        let all = Self.all()
        if json { return try Console.printJSON(all) }
        if all.isEmpty { Swift.print("No vault is mounted.") }
        for (index, status) in all.enumerated() {
            if index > 0 { Swift.print("") }
            Self.print(status)
        }
    }

    private static func all() -> [MountStatus] { DaemonSearch.statuses().sorted { $0.mountpoint < $1.mountpoint } }

    private func status(at mountpoint: PathArgument) throws(CommandFailure) -> MountStatus {
        let mount = try FoundMount(at: mountpoint.path)
        do throws(ControlError) { return try mount.connect().client.status() } catch {
            throw CommandFailure(.failure, "\(mount.path.shown): \(error)")
        }
    }

    private static func print(_ status: MountStatus) {
        Console.printField("mountpoint", Console.shown(status.mountpoint))
        Console.printField(status.view.map { "\($0) view of" } ?? "vault", Console.shown(status.vaultPath))
        Console.printField("state", Console.shown(status.state) + (status.readOnly ? ", read-only" : ""))
        // Only the lock command prints the receipt.
        printFields(status.lock, without: ["state", "lastReceipt"])
        let uptime = AmountText.short(seconds: status.uptimeSeconds)
        Console.printField("mounted", "\(status.mounted), \(uptime) ago, by process \(status.pid)")
        printFields(status.memory)
        printFields(status.statistics, without: ["keysLocked", "cacheLocked"])
        printFields(status.requests)
        for problem in status.problems ?? [] { Console.printField("problem", Console.shown(problem)) }
    }

    /// Prints a line for each field of an object.
    private static func printFields(_ value: JSONValue?, without hidden: Set<String> = []) {
        guard case .object(let fields)? = value else { return }
        for (name, value) in fields.sorted(by: { $0.key < $1.key }) where !hidden.contains(name) {
            if let text = JSONText.line(value) { Console.printField(JSONText.words(name), text) }
        }
    }
}
