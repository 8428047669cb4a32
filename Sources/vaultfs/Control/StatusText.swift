internal import Control
internal import FileSystem
internal import Locking

/// A mount's status for people.
enum StatusText {
    /// Five lines, one more for conflicts, and with `verbosely` everything that the daemon says.
    static func print(_ status: MountStatus, verbosely: Bool) {
        Console.printField("mountpoint", Console.shown(status.mountpoint))
        Console.printField(status.view.map { "\($0) view of" } ?? "vault", Console.shown(status.vaultPath))
        Console.printField("state", state(status))
        Console.printField("since", Console.shown(status.lock?.since ?? status.mounted))
        let problems = status.problems ?? []
        if problems.isEmpty { Console.printField("problems", "none") }
        for problem in problems { Console.printField("problem", Console.shown(problem)) }
        if let arrived = status.lock?.arrivedFiles, arrived > 0 {
            let files = AmountText.counted(arrived, "file")
            Console.printField("arrived", files + (status.state == "locked" ? " since the lock" : " during the last lock"))
        }
        if let copies = status.statistics?.conflictCopies, copies > 0 {
            let count = AmountText.counted(copies, "copy", "copies")
            Console.printField("conflicts", "\(count) of sync clients were seen: 'vaultfs verify' lists all")
        }
        guard verbosely else { return }
        let uptime = AmountText.short(seconds: status.uptimeSeconds)
        Console.printField("mounted", "\(status.mounted), \(uptime) ago, by process \(status.pid)")
        // Only the lock command prints the receipt.
        printFields(status.lock, without: ["state", "lastReceipt", "since", "seen", "reasons"])
        printFields(status.memory)
        printFields(status.statistics, without: ["cacheNeverSwapped"])
        printFields(status.requests)
    }

    /// Several mounts: a line for each, or with `verbosely` everything.
    static func print(_ answers: [MountAnswer], verbosely: Bool) {
        guard let first = answers.first else { return Swift.print("No vault is mounted.") }
        if !verbosely {
            guard answers.count == 1, case .success(let status) = first.status else {
                return Console.printTable([["STATE", "PROBLEMS", "MOUNTPOINT", "VAULT"]] + answers.map(row))
            }
            return print(status, verbosely: false)
        }
        for (index, answer) in answers.enumerated() {
            if index > 0 { Swift.print("") }
            switch answer.status {
            case .success(let status): print(status, verbosely: true)
            case .failure(let failure): Swift.print(failure.message)
            }
        }
    }

    private static func row(_ answer: MountAnswer) -> [String] {
        switch answer.outcome {
        case .answered(.status(let status)):
            let problems = status.problems?.count ?? 0
            return [
                Console.shown(status.state) + (status.readOnly ? ", read-only" : ""),
                problems == 0 ? "none" : "\(problems)",
                Console.shown(status.mountpoint), Console.shown(status.vaultPath),
            ]
        case .dead: return ["dead", "-", answer.mountpoint, "'vaultfs unmount \(answer.mountpoint)' removes it"]
        case .unreachable(let reason): return ["unknown", "-", answer.mountpoint, reason]
        case .answered: return ["unknown", "-", answer.mountpoint, "the daemon answered something else"]
        }
    }

    /// `locked by a lock file: /run/…, read-only`
    private static func state(_ status: MountStatus) -> String {
        var parts = [Console.shown(status.state)]
        // The files that were seen say more than "by lock-file".
        let (seen, reasons) = (status.lock?.seen ?? [], status.lock?.reasons ?? [])
        parts += seen.isEmpty ? reasons.map { "by \($0.rawValue)" } : seen.map(Console.shown)
        if status.lock?.needsSecret == true { parts.append("unlock needs the passphrase") }
        if status.readOnly { parts.append("read-only") }
        return parts.joined(separator: ", ")
    }

    /// Prints a line for each field of a structure.
    private static func printFields(_ value: Any?, without hidden: Set<String> = []) {
        guard let value else { return }
        for (name, text) in FieldText.fields(of: value, without: hidden) { Console.printField(name, text) }
    }
}
