internal import ArgumentParser
internal import Control

/// `vaultfs lock [MOUNTPOINT | --all]`
struct LockCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lock", abstract: "Refuse access now and purge what was decrypted; the vault stays mounted.",
        discussion: """
            Returns when the purge is done, and prints the receipt: what was purged, and what each step took. Where \
            something could not be purged, says what, and the exit code is \(FailureCode.notPurged.rawValue).

            A mount whose daemon has died holds nothing, and is no failure; one that does not answer is. With --json: \
            the receipt as an object; with --all, an array of them.
            """)

    @OptionGroup
    var mounts: MountChoice

    @Flag(help: "Print JSON.")
    var json = false

    func run() throws {
        let answers = try mounts.ask(.lock)
        if answers.isEmpty, !json { print("No vault is mounted.") }
        try MountAnswerReport(isJSON: json, isList: mounts.all).finish(
            answers, print: Self.show, failure: Self.failure)
    }

    private static func show(_ mountpoint: String, _ response: ControlResponse) {
        guard case .locked(let receipt, let already) = response else { return }
        print("\(mountpoint): " + (already ? "is locked already" : "locked"))
        guard !already else { return }
        for (label, text) in ReceiptText(receipt).lines { Console.printField("  " + label, text) }
    }

    private static func failure(_ mountpoint: String, _ response: ControlResponse) -> CommandFailure? {
        switch response {
        case .locked(let receipt, _):
            let unpurged = ReceiptText(receipt).unpurged
            guard !unpurged.isEmpty else { return nil }
            return CommandFailure(
                .notPurged, "\(mountpoint): locked, but not purged: \(unpurged.joined(separator: "; "))")
        case .error(let failure):
            return CommandFailure(.failure, "\(mountpoint): not locked: \(Console.shown(failure.message))")
        case .status, .stats, .unlocked, .subscribed:
            return CommandFailure(.failure, "\(mountpoint): the daemon answered something else")
        }
    }
}
