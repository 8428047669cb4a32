internal import BackingStore
internal import CLinux
internal import FoundationEssentials
internal import Glibc
internal import VaultControl
internal import VaultFormat
internal import VaultStore

/// `--provider`: a program that is told of a vault and gives a secret for one of its slots, or refuses (KeyProvider).
struct KeyProvider {
    /// The most bytes of its answer: a keyfile as base64, and what is around it.
    private static let answerLimit = SecretReader.keyfileLimit * 2

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

    /// Asks it. Blocks as long as it takes: it may ask a person.
    /// - Throws: `wrongSecret` where it refuses, `failure` where it fails or answers something else.
    func secret(for vault: VaultConfiguration) throws(CommandFailure) -> SlotSecret {
        let request = try self.request(vault)
        let text = try SecretReader.run(
            command: command, option: "--provider", limit: Self.answerLimit, input: request.fd)
        let answer: ProviderAnswer
        do throws(FormatError) {
            answer = try text.withBytes { (bytes) throws(FormatError) in try ProviderAnswer.parse(bytes) }
        } catch {
            throw CommandFailure(.failure, "the --provider command's answer: \(error.reason)")
        }
        switch answer {
        case .secret(let secret): return secret
        case .refused(let reason):
            throw CommandFailure(.wrongSecret, "the --provider command refused: \(EscapedText.escaped(reason))")
        }
    }

    /// In a file rather than a pipe, which would hold up both where the program answers before it has read.
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
