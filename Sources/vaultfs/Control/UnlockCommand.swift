internal import ArgumentParser
internal import Control
internal import Glibc
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// `vaultfs unlock [MOUNTPOINT | --all]`
struct UnlockCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unlock", abstract: "Let a locked vault be used again.",
        discussion: """
            Where the vault has forgotten its keys (mount --on-lock forget), a secret is needed, as for mount: it is \
            asked for on the terminal, or read from where the options say. With --all each vault is asked for by \
            itself, and root gives a secret to root's own vaults only.

            A lock file keeps the vault locked as long as it exists: the exit code is then \
            \(FailureCode.lockFileExists.rawValue). With --json: the answer as an object; with --all, an array of them.
            """)

    @OptionGroup
    var mounts: MountChoice

    @Flag(help: "Print JSON.")
    var json = false

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    func run() throws {
        ProcessSetup.protectMemory()
        let answers = try withSecrets(mounts.ask(.unlock(nil)))
        if answers.isEmpty, !json { print("No vault is mounted.") }
        try MountAnswerReport(isJSON: json, isList: mounts.all).finish(
            answers, print: Self.show, failure: Self.failure)
    }

    /// Asks those again that want a secret. One by one: there is one terminal.
    private func withSecrets(_ answers: [MountAnswer]) throws(CommandFailure) -> [MountAnswer] {
        // A descriptor can be read only once: what it gives is for all.
        let shared = secret.hasSource && answers.contains(where: wantsSecret) ? try secret.read() : nil
        var result = answers
        for index in answers.indices where wantsSecret(answers[index]) {
            let given = if let shared { shared } else { try read(for: answers[index]) }
            result[index] = answers[index].asking(.unlock(given))
        }
        return result
    }

    /// What calls itself somebody's vault is not to get a secret that was meant for others.
    private func wantsSecret(_ answer: MountAnswer) -> Bool {
        Self.needsSecret(answer) && (!mounts.all || answer.socket?.userID == geteuid())
    }

    private static func needsSecret(_ answer: MountAnswer) -> Bool {
        guard case .answered(.error(let failure)) = answer.outcome else { return false }
        return failure.code == .secretNeeded
    }

    private func read(for answer: MountAnswer) throws(CommandFailure) -> SlotSecret {
        if mounts.all { Console.writeToStandardError("\(answer.mountpoint):\n") }
        return secret.provider == nil ? try secret.read() : try secret.read(for: configuration(of: answer))
    }

    /// Of the vault that is mounted there, as it is now.
    private func configuration(of answer: MountAnswer) throws(CommandFailure) -> VaultConfiguration {
        guard case .answered(.status(let status)) = answer.asking(.status).outcome else {
            throw CommandFailure(.failure, "\(answer.mountpoint): the daemon does not say which vault it is")
        }
        do throws(VaultError) {
            return try VaultDirectory.open(FilePath(status.vaultPath)).configuration
        } catch {
            throw CommandFailure(error)
        }
    }

    private static func show(_ mountpoint: String, _ response: ControlResponse) {
        guard case .unlocked(let already) = response else { return }
        print("\(mountpoint): " + (already ? "is not locked" : "unlocked"))
    }

    private static func failure(_ mountpoint: String, _ response: ControlResponse) -> CommandFailure? {
        switch response {
        case .unlocked: nil
        case .error(let failure): self.failure(mountpoint, failure)
        case .status, .stats, .locked, .subscribed:
            CommandFailure(.failure, "\(mountpoint): the daemon answered something else")
        }
    }

    private static func failure(_ mountpoint: String, _ failure: ControlFailure) -> CommandFailure {
        let reason = Console.shown(failure.message)
        switch failure.code {
        case .lockFileExists:
            let files = (failure.lockFiles ?? []).map(Console.shown).joined(separator: ", ")
            return CommandFailure(
                .lockFileExists, "\(mountpoint): locked by " + (files.isEmpty ? reason : files + ": remove it first"))
        case .wrongSecret, .secretNeeded: return CommandFailure(.wrongSecret, "\(mountpoint): \(reason)")
        case .tooManyTries:
            let wait = failure.retryAfterSeconds.map { ": wait \(Int64($0.rounded(.up))) s" } ?? ""
            return CommandFailure(.failure, "\(mountpoint): too many tries\(wait)")
        default: return CommandFailure(.failure, "\(mountpoint): not unlocked: \(reason)")
        }
    }
}
