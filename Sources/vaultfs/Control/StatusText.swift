internal import Control

/// A status as people read it.
enum StatusText {
    static func print(_ status: MountStatus) {
        Console.printField("mountpoint", Console.shown(status.mountpoint))
        Console.printField(status.view.map { "\($0) view of" } ?? "vault", Console.shown(status.vaultPath))
        Console.printField("state", status.state.rawValue + (status.readOnly ? ", read-only" : ""))
        // The receipt is the lock command's.
        if let lock = status.lock { printFields(lock, without: ["state", "lastReceipt"]) }
        Console.printField(
            "mounted", "\(status.mounted), \(TimeSpanText.short(status.uptimeSeconds)) ago, by process \(status.pid)")
        if let memory = status.memory {
            printFields(memory)
        } else {
            Console.printField("keys", protection(isLocked: status.keysLocked))
            Console.printField("cache", protection(isLocked: status.cacheLocked))
        }
        // Said already, in words.
        if let counters = status.statistics { printFields(counters, without: ["keysLocked", "cacheLocked"]) }
        if let requests = status.requests { printFields(requests) }
        for problem in status.problems ?? [] { Console.printField("problem", Console.shown(problem)) }
    }

    /// A line for each field of an object.
    private static func printFields(_ value: JSONValue, without hidden: Set<String> = []) {
        guard case .object(let fields) = value else { return }
        for (name, value) in fields.sorted(by: { $0.key < $1.key }) where !hidden.contains(name) {
            if let text = JSONText.line(value) { Console.printField(JSONText.words(name), text) }
        }
    }

    private static func protection(isLocked: Bool) -> String {
        isLocked ? "locked in memory" : "not locked in memory: may reach swap"
    }
}
