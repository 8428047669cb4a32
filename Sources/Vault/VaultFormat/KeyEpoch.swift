/// The members of `vaultfs.json` for a rekeyed vault (FileFormat, Epochs).
package struct KeyEpoch: Sendable, Equatable {
    /// The highest epoch number, because a header has one byte for it.
    package static let maximum: UInt8 = .max

    /// How often the vault was rekeyed: 1…255.
    package let number: UInt8
    /// The previous epoch's master key, encrypted under the current one. Nil once every object is of the current epoch.
    package let previous: [UInt8]?

    package var epochs: KeyEpochs { KeyEpochs(current: number, previous: previous == nil ? nil : number - 1) }

    /// The epoch's lines in the text of the MAC.
    var canonicalLines: [String] { ["epoch \(number)", "previous \(previous.map(KdfParameters.text) ?? "-")"] }
}

/// The key epochs that a vault's objects can have (FileFormat, Epochs).
package struct KeyEpochs: Sendable, Equatable {
    /// The epochs of a vault before its first rekey.
    package static let first = KeyEpochs(current: 0, previous: nil)

    /// The epoch of new objects.
    package let current: UInt8
    /// The epoch before, during an unfinished rekey.
    package let previous: UInt8?

    package func contains(_ epoch: UInt8) -> Bool { epoch == current || epoch == previous }

    /// Explains to people why the vault lacks the key of `epoch`.
    package func unknown(_ epoch: UInt8) -> String {
        epoch > current
            ? "it was rekeyed (key epoch \(epoch)) after this vaultfs.json was written: put the newest vaultfs.json there"
            : "a rekey has removed its key (key epoch \(epoch))"
    }
}
