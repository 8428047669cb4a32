internal import ArgumentParser
internal import VaultFormat

/// The cost of guessing a new passphrase.
struct KdfOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Cost of guessing the passphrase: scrypt with N = 2^n, 10 to 20; each step doubles time and memory.",
            valueName: "n"))
    var scryptLogn: Int?

    @Option(
        help: ArgumentHelp(
            "Measure scrypt and take the largest N that takes at most this time here, such as 1s.", valueName: "time"),
        transform: DurationArgument.parse)
    var kdfTime: DurationArgument?

    var isGiven: Bool { scryptLogn != nil || kdfTime != nil }

    func validate() throws {
        guard scryptLogn == nil || kdfTime == nil else {
            throw ValidationError("only one of --scrypt-logn, --kdf-time can be given")
        }
        do throws(FormatError) {
            if let scryptLogn { _ = try cost(logN: scryptLogn) }
        } catch {
            throw ValidationError(error.reason)
        }
    }

    /// The requested cost. Nil for none. With --kdf-time it is measured, and reported on stderr.
    func cost() throws -> ScryptCost? {
        if let scryptLogn { return try cost(logN: scryptLogn) }
        guard let kdfTime else { return nil }
        let progress = ProgressLine()
        progress.show("measuring scrypt …")
        let largest = try ScryptCost.largest(within: .milliseconds(kdfTime.milliseconds))
        progress.clear()
        guard let largest else {
            throw CommandFailure(.usage, "--kdf-time \(kdfTime) is too short: scrypt with N=2^10 takes longer here")
        }
        let memory = "\(largest.cost.memory >> 20) MiB"
        Console.report(
            "\(SlotReport.text(largest.cost)) takes \(AmountText.milliseconds(largest.time)) here, and \(memory)")
        if !largest.cost.isAtLeast(.standard) {
            Console.report("guessing is cheaper with it than with the standard, \(SlotReport.text(.standard))")
        }
        return largest.cost
    }

    /// Reports on stderr if another passphrase of the vault costs more.
    static func reportCheaper(_ cost: ScryptCost, than others: [ScryptCost]) {
        guard let costlier = others.first(where: { !cost.isAtLeast($0) }) else { return }
        Console.report("guessing is cheaper now: \(SlotReport.text(cost)), the vault has \(SlotReport.text(costlier))")
    }

    private func cost(logN: Int) throws(FormatError) -> ScryptCost {
        try ScryptCost(logN: logN, r: ScryptCost.standard.r, p: ScryptCost.standard.p)
    }
}
