internal import CLinux
internal import Control
internal import FileSystem
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore
internal import ViewFormats

/// `--provider`: a program that reads a vault's slots and returns a secret for one of them, or refuses (KeyProvider).
struct KeyProvider: Codable, Sendable {
    /// The most bytes of its answer: a keyfile in base64 with its JSON.
    private static let answerLimit = SecretReader.keyfileLimit * 2
    /// The longest time of a prefetch.
    private static let prefetchTimeout: Duration = .seconds(30)

    /// For /bin/sh.
    let command: [UInt8]

    private struct Request: Encodable {
        struct Slot: Encodable {
            let id: Int
            let kind: String
            let label: String
            let expires: String?
        }

        let request = "secret"
        let vault: String
        let slots: [Slot]
    }

    /// Runs the program without a timeout: it may ask a person.
    /// - Throws: `wrongSecret` if it refuses, `failure` if it fails or its answer is invalid.
    func secret(for vault: VaultConfiguration) throws(CommandFailure) -> SlotSecret {
        let request = try self.request(vault)
        let text = try SecretReader.run(
            command: command, option: "--provider", limit: Self.answerLimit, input: request.fd)
        return try secret(in: text)
    }

    /// Runs the program in a daemon: without a terminal, and with a timeout.
    func prefetch(for vault: FilePath) -> SecretPrefetch.Fetch {
        { (stop) throws(CommandFailure) in try fetch(for: vault, until: stop) }
    }

    private func fetch(for vault: FilePath, until stop: Waker) throws(CommandFailure) -> SlotSecret {
        let configuration: VaultConfiguration
        do throws(VaultError) { configuration = try VaultDirectory.open(vault).configuration } catch {
            throw CommandFailure(error)
        }
        let request = try self.request(configuration)
        let text = WipedBytes(capacity: Self.answerLimit + 1)
        let end: CommandRun.End
        do throws(StoreError) { end = try run(request, until: stop, into: text) } catch {
            throw CommandFailure(.failure, "cannot run the --provider command: \(error.errno)")
        }
        switch end {
        case .ended(.exited(0)): return try secret(in: text)
        case .ended(let outcome): throw CommandFailure(.failure, "the --provider command \(outcome)")
        case .tooLong:
            throw CommandFailure(.failure, "the --provider command was ended: no answer after \(Self.prefetchTimeout)")
        case .tooMuch:
            throw CommandFailure(.failure, "the --provider command was ended: over \(Self.answerLimit) bytes")
        case .cancelled: throw CommandFailure(.failure, "the --provider command was ended: the vault is unmounted")
        }
    }

    private func run(
        _ request: Descriptor, until stop: Waker, into text: WipedBytes
    ) throws(StoreError) -> CommandRun.End {
        let run = try CommandRun(command: command, input: request)
        return try run.finish(
            within: Self.prefetchTimeout, stopSignal: stop, output: text,
            errors: WipedBytes(capacity: CommandRun.errorSize))
    }

    private func secret(in text: WipedBytes) throws(CommandFailure) -> SlotSecret {
        let answer: ProviderAnswer
        do throws(FormatError) {
            answer = try text.withBytes { (bytes) throws(FormatError) in try ProviderAnswer.parse(bytes) }
        } catch {
            throw CommandFailure(.failure, "the --provider command's answer: \(error.reason)")
        }
        switch answer {
        case .secret(let secret): return secret
        case .refused(let reason):
            throw CommandFailure(.wrongSecret, "the --provider command refused: \(reason.escapedForTerminal)")
        }
    }

    /// A file, not a pipe: the program may answer before it reads, and with a pipe both would wait.
    private func request(_ vault: VaultConfiguration) throws(CommandFailure) -> Descriptor {
        let slots = vault.slots.map {
            Request.Slot(id: $0.id, kind: $0.kind.rawValue, label: $0.label, expires: $0.expires)
        }
        do {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            let text = try Array(encoder.encode(Request(vault: vault.vault.hex, slots: slots))) + Array("\n".utf8)
            let file = Descriptor(owning: try retrying { linux_memory_file("vaultfs-request") })
            try text.withUnsafeBytes { bytes in Result { () throws(StoreError) in try file.write(bytes, at: 0) } }.get()
            return file
        } catch {
            throw CommandFailure(.failure, "cannot ask the --provider command: \(error)")
        }
    }
}
