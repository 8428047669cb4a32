internal import ArgumentParser
internal import SystemPackage
internal import VaultControl
internal import VaultStore

/// `vaultfs status [MOUNTPOINT]`
struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show the state of a mount, or of all your mounts.",
        discussion: "With --json: the status of MOUNTPOINT as an object; without MOUNTPOINT, an array of them.")

    @Argument(help: "Where a vault is mounted.")
    var mountpoint: PathArgument?

    @Flag(help: "Print JSON.")
    var json = false

    func run() throws {
        if let mountpoint {
            let status = try DaemonAccess.status(of: mountpoint.path)
            if json {
                try Console.printJSON(status)
            } else {
                StatusText.print(status)
            }
            return
        }
        let all = VaultUse.statuses().sorted { $0.mountpoint < $1.mountpoint }
        if json {
            try Console.printJSON(all)
        } else if all.isEmpty {
            print("No vault is mounted.")
        } else {
            for (index, status) in all.enumerated() {
                if index > 0 { print("") }
                StatusText.print(status)
            }
        }
    }
}

/// A status as people read it.
private enum StatusText {
    static func print(_ status: MountStatus) {
        Console.printField("mountpoint", status.mountpoint)
        Console.printField("vault", status.vaultPath)
        Console.printField("state", status.state.rawValue + (status.readOnly ? ", read-only" : ""))
        Console.printField(
            "mounted", "\(status.mounted), \(duration(status.uptimeSeconds)) ago, by process \(status.pid)")
        let keys = status.keysLocked ? "locked in memory" : "not locked in memory: may reach swap"
        Console.printField("keys", keys)
        Console.printField("cache", status.cacheLocked ? "locked in memory" : "not locked in memory: may reach swap")
        if case .object(let counters)? = status.statistics { printCounters(counters) }
    }

    private static func printCounters(_ counters: [String: JSONValue]) {
        // Said already, in words.
        let shown = counters.filter { !["keysLocked", "cacheLocked"].contains($0.key) }
        for (name, value) in shown.sorted(by: { $0.key < $1.key }) {
            switch value {
            case .integer(let number): Console.printField(words(name), "\(number)")
            case .unsigned(let number): Console.printField(words(name), "\(number)")
            case .number(let number): Console.printField(words(name), "\(number)")
            case .string(let text): Console.printField(words(name), text)
            case .bool(let isTrue): Console.printField(words(name), isTrue ? "yes" : "no")
            case .object(let inner): printCounters(inner)
            case .null, .array: break
            }
        }
    }

    private static func memory(isLocked: Bool) -> String {
        isLocked ? "locked in memory" : "not locked in memory: may reach swap"
    }

    /// `cacheHits` → `cache hits`
    private static func words(_ name: String) -> String {
        name.map { $0.isUppercase ? " \($0.lowercased())" : String($0) }.joined()
    }

    private static func duration(_ seconds: Int64) -> String {
        switch seconds {
        case ..<60: "\(seconds) s"
        case ..<3600: "\(seconds / 60) min"
        case ..<86400: "\(seconds / 3600) h \(seconds / 60 % 60) min"
        default: "\(seconds / 86400) d \(seconds / 3600 % 24) h"
        }
    }
}
