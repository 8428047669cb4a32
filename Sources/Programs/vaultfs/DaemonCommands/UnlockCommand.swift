internal import ArgumentParser
internal import Control
internal import Daemon
internal import Glibc
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// `vaultfs unlock [MOUNTPOINT | --all]`
struct UnlockCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unlock", abstract: "Unlock a locked vault.",
        discussion: """
            If the vault has forgotten its keys (mount --on-lock forget), a secret is needed, as for mount: it is \
            asked for on the terminal, or read from the source in the options. With --all each vault needs a secret of \
            its own, and root gives a secret only to root's own vaults.

            A lock file keeps the vault locked while it exists: the exit code is then \
            \(FailureCode.lockFileExists.rawValue). With --json: the answer as an object; with --all, an array of them.
            """)

    /// The longest wait, in seconds, for a daemon that got wrong secrets. It demands 4 s after the third.
    private static let longestWait = 5.0

    @OptionGroup
    var mounts: MountChoice

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    func run() throws {
        ProcessSetup.protectMemory()
        let answers = try mounts.ask(.unlock(nil))
        let locked = Set(answers.filter(wantsSecret).map(\.mountpoint))
        try mounts.report(withSecrets(answers)) { (mountpoint, response) throws(CommandFailure) in
            try show(mountpoint, response, isChecked: secret.isTyped || locked.contains(mountpoint))
        }
    }

    /// Asks the mounts that need a secret again, one by one, because there is only one terminal.
    private func withSecrets(_ answers: [MountAnswer]) throws(CommandFailure) -> [MountAnswer] {
        // Read a descriptor once and share its secret, because it cannot be read again.
        let shared = answers.contains(where: wantsSecret) ? try secret.readSource() : nil
        var result = answers
        for index in answers.indices where wantsSecret(answers[index]) {
            result[index] =
                if let shared { Self.send(shared, to: answers[index]) } else { try unlock(answers[index]) }
        }
        return result
    }

    private func unlock(_ answer: MountAnswer) throws(CommandFailure) -> MountAnswer {
        if mounts.all { Console.writeToStandardError("\(answer.mountpoint):\n") }
        let vault = try secret.keyProvider == nil ? nil : configuration(of: answer)
        return try secret.withSecret(for: vault, refusal: Self.wrongSecret) { secret in Self.send(secret, to: answer) }
    }

    /// Sends the secret. If the daemon demands a short wait because of earlier wrong secrets, waits and sends it again.
    private static func send(_ secret: SlotSecret, to answer: MountAnswer) -> MountAnswer {
        let deadline = ContinuousClock.now + .seconds(longestWait)
        let progress = ProgressLine()
        defer { progress.clear() }
        while true {
            let result = answer.asking(.unlock(ClientSecret(secret)))
            guard case .answered(.error(let failure)) = result.outcome, failure.code == .tooManyTries,
                let seconds = failure.retryAfterSeconds, (0...longestWait).contains(seconds),
                ContinuousClock.now + .seconds(seconds) <= deadline
            else { return result }
            progress.show(["waiting \(Int(seconds.rounded(.up))) s after a wrong secret …"])
            // Sleep, because the daemon sends no event when the wait is over.
            usleep(useconds_t(seconds * 1_000_000))
        }
    }

    private static func wrongSecret(_ answer: MountAnswer) -> CommandFailure? {
        guard case .answered(.error(let failure)) = answer.outcome, failure.code == .wrongSecret else { return nil }
        return Self.failure(answer.mountpoint, failure)
    }

    /// Returns true if this mount needs the secret and may get it. With --all, another user's daemon must not get it.
    private func wantsSecret(_ answer: MountAnswer) -> Bool {
        guard case .answered(.error(let failure)) = answer.outcome else { return false }
        return failure.code == .secretNeeded && (!mounts.all || answer.socket?.userID == geteuid())
    }

    /// Returns the present configuration of the mounted vault.
    private func configuration(of answer: MountAnswer) throws(CommandFailure) -> VaultConfiguration {
        guard case .answered(.status(let status)) = answer.asking(.status).outcome else {
            throw CommandFailure(.failure, "\(answer.mountpoint): the daemon does not answer which vault it serves")
        }
        return try CommandFailure.mapping(try VaultDirectory.open(FilePath(status.vaultPath))).configuration
    }

    /// Prints the answer.
    /// - Parameter isChecked: false if the user gave a secret that the daemon did not need.
    private func show(
        _ mountpoint: String, _ response: ControlResponse, isChecked: Bool
    ) throws(CommandFailure) {
        switch response {
        case .unlocked(let already, let arrived):
            let news = arrived == 0 ? "" : "; \(AmountText.counted(arrived, "file")) arrived while it was locked"
            let text = already ? "is not locked" : "unlocked" + news
            let check = isChecked ? "" : "; it had its keys, so the secret was not checked"
            if !mounts.json { Console.confirm("\(mountpoint): \(text)\(check)") }
        case .error(let failure): throw Self.failure(mountpoint, failure)
        default: throw CommandFailure(.failure, "\(mountpoint): the daemon answered something else")
        }
    }

    private static func failure(_ mountpoint: String, _ failure: ControlFailure) -> CommandFailure {
        let reason = Console.shown(failure.message)
        switch failure.code {
        case .lockFileExists:
            let files = failure.lockFiles ?? []
            let names = files.map(Console.shown).joined(separator: ", ")
            // The agent and the example screen lockers make the lock file of the usual name.
            let isSession = files.contains { FilePath($0).lastComponent?.string == LockArguments.usualName }
            let advice =
                isSession ? ", as while your session is locked: unlock the screen, or remove it" : ": remove it first"
            return CommandFailure(
                .lockFileExists, "\(mountpoint): locked by " + (files.isEmpty ? reason : names + advice))
        case .wrongSecret, .secretNeeded: return CommandFailure(.wrongSecret, "\(mountpoint): \(reason)")
        case .tooManyTries:
            let wait = failure.retryAfterSeconds.map { ": wait \(Int64($0.rounded(.up))) s" } ?? ""
            return CommandFailure(.failure, "\(mountpoint): too many tries\(wait)")
        default: return CommandFailure(.failure, "\(mountpoint): not unlocked: \(reason)")
        }
    }
}
