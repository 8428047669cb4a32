internal import CLinux
internal import Control
internal import Daemon
internal import FoundationEssentials
internal import LinuxSystem
internal import Logging
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// `--provider`, `--desktop-keyring`: a program that reads a vault's slots, and returns a secret for one of them or
/// refuses (KeyProvider).
struct KeyProvider: Codable, Sendable {
    /// The most bytes of the program's answer: a keyfile in base64 with its JSON.
    private static let answerLimit = SecretSource.keyfileLimit * 2
    /// The longest time for a prefetch.
    static let prefetchTimeout: Duration = .seconds(30)

    /// The command for /bin/sh.
    let command: [UInt8]
    /// The option that names it, for messages.
    let option: String

    private struct Request: Encodable {
        struct Slot: Encodable {
            let id: Int
            let kind, label: String
            let expires: String?
        }

        let request = "secret"
        let vault: String
        let slots: [Slot]
    }

    /// Runs the program in a daemon, without a terminal and with a timeout.
    func prefetch(for vault: FilePath, until stop: Waker) throws(CommandFailure) -> SlotSecret {
        let directory = try CommandFailure.mapping(try VaultDirectory.open(vault))
        return try secret(for: directory.configuration, .background(limit: Self.prefetchTimeout, stopSignal: stop))
    }

    /// Runs the program, without a timeout if it is interactive.
    /// - Throws: `wrongSecret` if it refuses, `failure` if it fails or its answer is invalid.
    func secret(
        for vault: VaultConfiguration, _ mode: CommandRun.Mode = .interactive
    ) throws(CommandFailure) -> SlotSecret {
        let text = try SecretSource.run(
            command, option: option, limit: Self.answerLimit, input: request(vault), mode: mode)
        let problem: String
        switch text.withBytes(ProviderAnswer.parse) {
        case .secret(let secret):
            do throws(FormatError) { return try SlotSecret(secret) } catch { problem = error.reason }
        case .refused(let reason):
            throw CommandFailure(.wrongSecret, "the \(option) command refused: \(reason.escapedForTerminal)")
        case nil: problem = #"expected {"secret":{"kind":…,"bytes":base64}} or {"refused":…}"#
        }
        throw CommandFailure(.failure, "the \(option) command's answer: \(problem)")
    }

    /// Returns the request in a file, because the program may answer before it reads, and with a pipe both would wait.
    private func request(_ vault: VaultConfiguration) throws(CommandFailure) -> Descriptor {
        let slots = vault.slots.map {
            Request.Slot(id: $0.id, kind: $0.kind.rawValue, label: $0.label, expires: $0.expires)
        }
        do {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            let text = try Array(encoder.encode(Request(vault: vault.vault.hex, slots: slots))) + Array("\n".utf8)
            let file = Descriptor(owning: try retrying { linux_memory_file("vaultfs-request") })
            try text.withBytes { (bytes) throws(StoreError) in try file.write(bytes, at: 0) }
            return file
        } catch {
            throw CommandFailure(.failure, "cannot ask the \(option) command: \(error)")
        }
    }
}

extension SlotSecret {
    /// - Throws: `malformed`, `invalidValue`. The message quotes nothing.
    init(_ given: ClientSecret) throws(FormatError) {
        guard let kind = SlotKind(rawValue: given.kind) else {
            throw FormatError(.malformed, "a secret's kind is passphrase, keyfile or recovery")
        }
        try self.init(kind: kind, bytes: given.bytes)
    }
}

extension ClientSecret {
    init(_ secret: SlotSecret) { self.init(kind: secret.kind.rawValue, bytes: secret.bytes) }
}

/// Fetches a vault's secret in the background (`mount --prewarm`), on its own thread, once at a time. Any thread.
final class SecretPrefetch: SecretPrefetching {
    typealias Receiver = @Sendable (ClientSecret) -> Void

    /// The longest wait of `stop` for an unresponsive store, in milliseconds.
    private static let stopTimeout = 5000

    private struct State {
        var thread: BackgroundThread?
        /// The receiver for the next fetch. Nil if none is requested.
        var next: Receiver?
        var isStopping = false
    }

    private let provider: KeyProvider
    private let vault: FilePath
    private let logger: Logger
    private let stopSignal: Waker
    private let state = Monitor(State())

    /// - Throws: errors of eventfd(2) and pthread_create(3).
    init(_ provider: KeyProvider, for vault: FilePath, logger: Logger) throws(StoreError) {
        (self.provider, self.vault, self.logger) = (provider, vault, logger)
        stopSignal = try Waker()
        let thread = try BackgroundThread { [self] in run() }
        state.update { $0.thread = thread }
    }

    /// Requests a fetch, to follow the running one if any. Does not wait.
    func start(_ receiver: @escaping Receiver) { state.update { $0.next = receiver } }

    /// Ends the running fetch and waits for its end, up to the timeout.
    func stop() {
        let running = state.update { state in
            state.isStopping = true
            return state.thread.take()
        }
        stopSignal.wake()
        _ = withinTime(milliseconds: Self.stopTimeout) { running?.join() }
    }

    private func run() {
        while let receiver = next() {
            do throws(CommandFailure) {
                let secret = try provider.prefetch(for: vault, until: stopSignal)
                linux_scrub_thread()
                receiver(ClientSecret(secret))
            } catch {
                logger.error("stays locked: \(error.message)")
            }
            linux_scrub_thread()
        }
    }

    private func next() -> Receiver? {
        state.next { state in state.isStopping ? .end : state.next.take().map { .item($0) } ?? .wait }
    }
}
