internal import ArgumentParser
internal import Control
internal import Locking

/// `vaultfs lock [MOUNTPOINT | --all] [--forget] [--verbose]`
struct LockCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lock", abstract: "Refuse access and purge plaintext; the mount stays.",
        discussion: """
            Without a mountpoint, locks all your mounts. Returns when the purge is done, and prints the receipt, with --verbose \
            all of it: what was purged, and how long each step took. If \
            something could not be purged, it is named, and the exit code is \(FailureCode.notPurged.rawValue). If written \
            data could not be made durable, or was lost since the mount, it is \(FailureCode.notDurable.rawValue).

            A mount whose daemon has died holds nothing, so that is no failure. But the programs that have its files open \
            can still read what the kernel has cached: they are named, with exit code \(FailureCode.notPurged.rawValue). A \
            daemon that does not answer is a failure: exit code \(FailureCode.failure.rawValue). If it was asked, it may \
            still lock. With --json: the receipt as an object; without a mountpoint, an array of them.
            """)

    @OptionGroup
    var mounts: MountChoice

    @Flag(help: "Forget the keys with this lock, as mount --on-lock forget does at each: unlocking needs a secret.")
    var forget = false

    @Flag(name: .shortAndLong, help: "Print the whole receipt.")
    var verbose = false

    @Option(
        help: ArgumentHelp(
            "Time to wait for the answer, beyond the mount's --grace. The daemon itself gives up each step after at most 60s.",
            valueName: "duration"),
        transform: DurationArgument.parse)
    var timeout = DurationArgument(milliseconds: 300_000)

    mutating func run() throws {
        // A user who wants everything locked must not be asked to choose, so no mountpoint means all mounts.
        mounts.all = mounts.mountpoint == nil
        let answers = try mounts.ask(.lock(forgetsKeys: forget)) { [timeout] socket in
            // Use a connection of its own, because the lock's connection would take a late answer for that of the lock.
            let status = try? socket.connect().status()
            let grace = status?.lock?.graceSeconds ?? 0
            return max(1, Int((Double(timeout.milliseconds) / 1000 + grace).rounded(.up)))
        }
        try mounts.report(answers, acceptsDead: true, show: show)
    }

    private func show(_ mountpoint: String, _ response: ControlResponse) throws(CommandFailure) {
        switch response {
        case .locked(let receipt, let already):
            let missing = (receipt.missingData ?? []).map(Console.shown).joined(separator: "; ")
            let isPurged = receipt.left == nil
            if !mounts.json {
                let state = already ? "is locked already" : isPurged && missing.isEmpty ? "locked and purged" : "locked"
                let parts = [state, receipt.unlocking].compactMap(\.self)
                Console.confirm("\(mountpoint): " + parts.joined(separator: "; "))
                for (label, text) in verbose && !already ? receipt.lines : [] { Console.printField("  " + label, text) }
            }
            guard !forget || receipt.policy == LockPolicy.forget.rawValue else {
                throw CommandFailure(
                    .notPurged,
                    "\(mountpoint): locked, but its daemon is of an earlier version and has kept the keys: unmount it")
            }
            if let left = receipt.left {
                throw CommandFailure(.notPurged, "\(mountpoint): locked, but not purged: \(left)")
            }
            if !missing.isEmpty {
                throw CommandFailure(.notDurable, "\(mountpoint): locked and purged, but not durable: \(missing)")
            }
        case .error(let failure):
            throw CommandFailure(.failure, "\(mountpoint): not locked: \(Console.shown(failure.message))")
        default: throw CommandFailure(.failure, "\(mountpoint): the daemon answered something else")
        }
    }
}

extension LockReceipt {
    /// The unpurged data, or nil if everything was purged.
    var left: String? {
        let names = unpurged.map(Console.shown).joined(separator: "; ")
        return names.isEmpty ? complete ? nil : "the receipt does not say what" : names
    }

    var lines: [(label: String, text: String)] {
        let purged = [
            inodes.map { "\($0) inodes" }, names.map { $0.isEmpty ? "" : "names (\(Console.shown($0)))" },
            cacheBytes.map { "\($0) bytes of cached blocks" },
            writtenBackBytes.map { "\($0) bytes written back first" },
            filesSealed.map { "the lengths of \($0) files authenticated" },
        ].compactMap { $0 }
        let took = steps?.map { step in
            Console.shown(step.name) + (step.milliseconds.map { " \(FieldText.rounded($0)) ms" } ?? "")
        }
        return [
            ("locked by", reasons?.map(Console.shown)), ("on lock", policy.map { [Console.shown($0)] }),
            ("purged", purged),
            ("keys wiped", keysForgotten?.map(Console.shown)), ("took", took), ("in all", times),
        ].map { ($0, ($1 ?? []).filter { !$0.isEmpty }.joined(separator: ", ")) }.filter { !$0.1.isEmpty }
    }

    /// Says which secret an unlock will need, if any. Nil if a daemon of another version does not report it.
    fileprivate var unlocking: String? {
        guard let needsSecret, let policy else { return nil }
        if needsSecret { return "'vaultfs unlock' will need the passphrase or another secret" }
        return "'vaultfs unlock' will ask for no passphrase"
            + (policy == LockPolicy.refuse.rawValue ? " ('vaultfs lock --forget' makes it ask)" : "")
    }

    /// The times, or the unpurged data, in one line.
    var summary: String { left.map { "not purged: \($0)" } ?? times.joined(separator: ", ") }

    private var times: [String] {
        [
            purgeMilliseconds.map { "refused and purged after \(FieldText.rounded($0)) ms" },
            totalMilliseconds.map { "done after \(FieldText.rounded($0)) ms" },
        ].compactMap { $0 }
    }
}
