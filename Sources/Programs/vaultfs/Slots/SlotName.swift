internal import ArgumentParser
internal import LinuxSystem
internal import VaultFormat

/// A slot in the command line: its id, or its label if that is not a number.
struct SlotName: ExpressibleByArgument, Equatable {
    private let text: String

    init?(argument: String) {
        guard !argument.isEmpty else { return nil }
        text = argument
    }

    /// - Throws: code `failure` if no slot has the label, `usage` if several have it.
    func id(in configuration: VaultConfiguration) throws(CommandFailure) -> Int {
        // Leave an unknown id to the command, which refuses it.
        if let id = Int(text) { return id }
        let ids = configuration.slots.filter { $0.label == text }.map(\.id)
        let shown = text.escapedForTerminal
        guard let id = ids.first else {
            throw CommandFailure(.failure, "no slot has the label '\(shown)': 'vaultfs slot list' shows ids and labels")
        }
        guard ids.count == 1 else {
            let list = ids.map(String.init).joined(separator: ", ")
            throw CommandFailure(.usage, "slots \(list) have the label '\(shown)': give an id")
        }
        return id
    }
}
