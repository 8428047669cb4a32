internal import Control
internal import FileSystem
internal import Locking

/// A mount's status for people.
enum StatusText {
    /// Prints five lines, one more each for a lease and for conflicts, and with `verbosely` the whole status.
    static func print(_ status: MountStatus, verbosely: Bool) {
        Console.printField("mountpoint", Console.shown(status.mountpoint))
        Console.printField(status.view.map { "\($0) view of" } ?? "vault", Console.shown(status.vaultPath))
        Console.printField("state", state(status))
        Console.printField("since", Console.shown(status.lock?.since ?? status.mounted))
        if let end = status.lock?.leaseEnds { Console.printField("lease ends", Console.shown(end)) }
        let problems = status.problems ?? []
        if problems.isEmpty { Console.printField("problems", "none") }
        for problem in problems { Console.printField("problem", Console.shown(problem)) }
        if let arrived = status.lock?.arrivedFiles, arrived > 0 {
            let moment = status.state == "locked" ? "since the lock" : "during the last lock"
            Console.printField("arrived", "\(AmountText.counted(arrived, "file")) \(moment)")
        }
        if let copies = status.statistics?.conflictCopies, copies > 0 {
            let count = AmountText.counted(copies, "copy of a sync client was", "copies of sync clients were")
            Console.printField("conflicts", "\(count) listed since the mount: 'vaultfs verify' finds all")
        }
        guard verbosely else { return }
        let uptime = status.uptimeSeconds.map { "\(AmountText.short(seconds: $0)) ago, " } ?? ""
        Console.printField("mounted", "\(status.mounted), \(uptime)by process \(status.pid)")
        if let store = status.store { Console.printField("store lacks", StoreText.lacks(store)) }
        // Only the lock command prints the receipt.
        printFields(status.lock, without: ["state", "lastReceipt", "since", "seen", "reasons", "leaseEnds"])
        printFields(status.memory)
        for shortcoming in status.memory?.shortcomings ?? [] { Console.printField("not protected", shortcoming) }
        printFields(status.statistics, without: ["cacheNeverSwapped"])
        printFields(status.requests)
    }

    /// Prints a line for each of several mounts, or with `verbosely` everything.
    static func print(_ answers: [MountAnswer], verbosely: Bool) {
        guard let first = answers.first else { return Swift.print("No vault is mounted.") }
        if !verbosely {
            guard answers.count == 1, case .success(let status) = first.status else {
                Console.printTable([["STATE", "PROBLEMS", "MOUNTPOINT", "VAULT"]] + answers.map(row))
                // Skip dead mounts, because the command fails with their reason.
                for case .failure(let failure) in answers.map(\.status) where failure.code != .mountpoint {
                    Swift.print(failure.message)
                }
                return
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
        case .dead: return ["dead", "-", answer.mountpoint, answer.source ?? "-"]
        case .unreachable, .answered: return ["unknown", "-", answer.mountpoint, answer.source ?? "-"]
        }
    }

    /// `locked by a lock file: /run/…, read-only`
    private static func state(_ status: MountStatus) -> String {
        var parts = [Console.shown(status.state)]
        // Prefer the lock files themselves, which say more than "by lock-file".
        let (seen, reasons) = (status.lock?.seen ?? [], status.lock?.reasons ?? [])
        parts += seen.isEmpty ? reasons.map(reason) : seen.map(Console.shown)
        if status.lock?.needsSecret == true {
            let isExpired = reasons.contains(LockReason.expired.rawValue)
            parts.append("unlock needs " + (isExpired ? "the secret of a slot that has not expired" : "the passphrase"))
        }
        if status.readOnly { parts.append("read-only") }
        return parts.joined(separator: ", ")
    }

    private static func reason(_ reason: String) -> String {
        reason == LockReason.expired.rawValue ? "the slot has expired" : "by \(Console.shown(reason))"
    }

    /// Labels for fields with names unclear to a reader.
    private static let labels = [
        "aes blocks decrypted": "AES blocks decrypted", "cache": "cache memory",
        "class keys": "classes with keys", "clients followed": "single-program runs",
        "crypto microseconds": "encryption microseconds", "is completing": "completing files",
        "keys": "key memory", "log": "redo log", "needs secret": "unlock needs a secret",
        "nodes": "files the kernel knows", "not dumpable": "hidden from debuggers", "policy": "on lock",
        "served": "requests served",
    ]

    private static func printFields(_ value: Any?, without hidden: Set<String> = []) {
        guard let value else { return }
        for (name, text) in FieldText.fields(of: value, without: hidden) {
            Console.printField(labels[name] ?? name, text)
        }
    }
}
